// device/attention: forward and backward against the double reference; packed = chunked = token by token,
// bit by bit.
#include "device/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/philox.h"
#include "device/simd/isa.h"
#include "support/attention_reference.h"

namespace ingot::attention_test {

struct Shape {
  int64_t heads, kv_heads, width;
  std::vector<int64_t> documents;
  int64_t window = 0;
  float softcap = 0;
  DType type = DType::f32;
};

/// One packed [T, (H + 2 G) K] buffer of q | k | v, and everything a call needs.
struct Problem {
  explicit Problem(const Shape& s)
      : s(s), stride((s.heads + 2 * s.kv_heads) * s.width), o_stride(s.heads * s.width) {
    for (const int64_t n : s.documents) {
      AttentionSpan span;
      span.first_row = rows;
      span.rows = n;
      spans.push_back(span);
      rows += n;
    }
    const Random random(11, RandomPurpose::test);
    qkv.resize(static_cast<size_t>(rows * stride));
    for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = to_float(to_bf16(random.normal(i)));
    narrow.resize(qkv.size());
    for (size_t i = 0; i < qkv.size(); ++i) narrow[i] = to_bf16(qkv[i]);
    o.assign(static_cast<size_t>(rows * o_stride), NAN);
    lse.assign(static_cast<size_t>(rows * s.heads), NAN);
    top.assign(static_cast<size_t>(s.heads), NAN);
  }
  void* column(int64_t c) {
    return s.type == DType::bf16 ? static_cast<void*>(narrow.data() + c) : static_cast<void*>(qkv.data() + c);
  }
  AttentionArgs args() {
    AttentionArgs a;
    a.heads = s.heads;
    a.kv_heads = s.kv_heads;
    a.width = s.width;
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.width));
    a.window = s.window;
    a.softcap = s.softcap;
    a.spans = spans.data();
    a.span_count = static_cast<int64_t>(spans.size());
    a.type = s.type;
    a.q = column(0);
    a.k = column(s.heads * s.width);
    a.v = column((s.heads + s.kv_heads) * s.width);
    a.q_stride = a.k_stride = a.v_stride = stride;
    a.o = o.data();
    a.o_stride = o_stride;
    a.lse = lse.data();
    a.max_logit = top.data();
    return a;
  }
  std::vector<double> column_block(int64_t doc, int64_t c, int64_t width) const {
    std::vector<double> x;
    const AttentionSpan& span = spans[static_cast<size_t>(doc)];
    for (int64_t r = 0; r < span.rows; ++r)
      for (int64_t j = 0; j < width; ++j)
        x.push_back(qkv[static_cast<size_t>((span.first_row + r) * stride + c + j)]);
    return x;
  }

  Shape s;
  int64_t rows = 0, stride, o_stride;
  std::vector<AttentionSpan> spans;
  std::vector<float> qkv, o, lse, top;
  std::vector<bf16> narrow;
};

class Attention : public ::testing::Test {
 protected:
  Attention() : before_(active_isa()) {}
  ~Attention() override { force_isa(before_); }
  template <class F>
  void each_isa(F&& f) {
    for (const Isa isa : kEveryIsa)
      if (isa_available(isa)) {
        force_isa(isa);
        f();
      }
  }

 private:
  Isa before_;
};

const std::vector<Shape> kShapes = {
    {2, 2, 16, {1, 5, 0, 70}},
    {4, 2, 24, {66, 130}},
    {6, 1, 8, {37, 64}},
    {2, 1, 40, {150}, 20},
    {3, 3, 16, {90, 33}, 70, 5.0f},
    {2, 2, 1, {65}, 1},
    {2, 2, 64, {129}, 0, 0, DType::bf16},
    {8, 1, 144, {90, 31}},  // backward takes these in several shares of the rows
    {9, 1, 144, {150}, 40, 5.0f},
};

void expect_close(const float* found, const std::vector<double>& expected, double bound,
                  const std::string& what) {
  double largest = 0.1;
  for (const double e : expected) largest = std::max(largest, std::abs(e));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], bound * largest) << what << " " << i << " of " << expected.size();
}

TEST_F(Attention, MatchesTheDoubleReference) {
  each_isa([] {
    for (const Shape& s : kShapes) {
      Problem p(s);
      attention_forward(p.args());
      std::vector<float> d_o(p.o.size()), d_qkv(p.qkv.size(), NAN);
      const Random random(12, RandomPurpose::test);
      for (size_t i = 0; i < d_o.size(); ++i) d_o[i] = random.normal(i);
      AttentionBackwardArgs b;
      b.forward = p.args();
      b.d_o = d_o.data();
      b.d_o_stride = p.o_stride;
      b.d_q = d_qkv.data();
      b.d_k = d_qkv.data() + s.heads * s.width;
      b.d_v = d_qkv.data() + (s.heads + s.kv_heads) * s.width;
      b.d_q_stride = b.d_k_stride = b.d_v_stride = p.stride;
      attention_backward(b);
      double top = -1e30;
      for (size_t doc = 0; doc < p.spans.size(); ++doc) {
        const AttentionSpan& span = p.spans[doc];
        const int64_t hk = s.heads * s.width, gk = s.kv_heads * s.width;
        const auto q = p.column_block(int64_t(doc), 0, hk), k = p.column_block(int64_t(doc), hk, gk),
                   v = p.column_block(int64_t(doc), hk + gk, gk);
        const AttentionReference<double> r{span.rows, s.heads,   s.kv_heads, s.width,  p.args().scale,
                                           s.window,  s.softcap, q.data(),   k.data(), v.data()};
        const auto n = static_cast<size_t>(span.rows);
        std::vector<double> o(n * size_t(hk)), lse(n * size_t(s.heads));
        attention_reference_forward(r, o.data(), lse.data());
        expect_close(p.o.data() + span.first_row * p.o_stride, o, 2e-6, "o");
        expect_close(p.lse.data() + span.first_row * s.heads, lse, 2e-6, "lse");
        const std::vector<double> g(d_o.begin() + span.first_row * hk,
                                    d_o.begin() + (span.first_row + span.rows) * hk);
        std::vector<double> d_q(q.size()), d_k(k.size()), d_v(v.size());
        attention_reference_backward(r, g.data(), d_q.data(), d_k.data(), d_v.data());
        const auto gather = [&](int64_t c, int64_t width) {
          std::vector<float> x;
          for (int64_t i = 0; i < span.rows; ++i)
            for (int64_t j = 0; j < width; ++j)
              x.push_back(d_qkv[size_t((span.first_row + i) * p.stride + c + j)]);
          return x;
        };
        expect_close(gather(0, hk).data(), d_q, 1e-5, "dq");
        expect_close(gather(hk, gk).data(), d_k, 1e-5, "dk");
        expect_close(gather(hk + gk, gk).data(), d_v, 1e-5, "dv");
        for (int64_t i = 0; i < span.rows; ++i)
          for (int64_t j = 0; j <= i; ++j) {
            if (s.window > 0 && j < i - s.window + 1) continue;
            double dot = 0;
            for (int64_t d = 0; d < s.width; ++d) dot += q[size_t(i * hk + d)] * k[size_t(j * gk + d)];
            dot *= p.args().scale;
            top = std::max(top, s.softcap > 0 ? s.softcap * std::tanh(dot / s.softcap) : dot);
          }
      }
      EXPECT_NEAR(p.top[0], top, 1e-5);
    }
  });
}

/// Runs the documents again in calls of at most `chunk` rows, keys and values in separate 64-row pages.
std::vector<float> in_chunks(Problem& p, int64_t chunk) {
  const Shape& s = p.s;
  const int64_t width = s.kv_heads * s.width, page = kAttentionBlock * width;
  std::vector<float> o(p.o.size(), NAN), lse(p.lse.size(), NAN);
  std::vector<std::vector<float>> pages;
  std::vector<std::vector<const void*>> k_blocks, v_blocks;
  for (const AttentionSpan& span : p.spans) {
    k_blocks.emplace_back();
    v_blocks.emplace_back();
    for (int64_t b = 0; b * kAttentionBlock < span.rows; ++b)
      for (const bool value : {false, true}) {
        pages.emplace_back(static_cast<size_t>(page), NAN);  // rows not appended yet must not matter
        (value ? v_blocks : k_blocks).back().push_back(pages.back().data());
      }
  }
  const int64_t longest = *std::max_element(s.documents.begin(), s.documents.end());
  for (int64_t done = 0; done < longest; done += chunk) {
    std::vector<AttentionSpan> spans;
    for (size_t d = 0; d < p.spans.size(); ++d) {
      AttentionSpan span = p.spans[d];
      const int64_t rows = std::clamp<int64_t>(span.rows - done, 0, chunk);
      for (int64_t r = done; r < done + rows; ++r)
        for (int64_t j = 0; j < width; ++j) {
          const float* row = p.qkv.data() + (span.first_row + r) * p.stride + s.heads * s.width;
          const auto at = static_cast<size_t>(r % kAttentionBlock * width + j);
          const auto b = static_cast<size_t>(r / kAttentionBlock);
          const_cast<float*>(static_cast<const float*>(k_blocks[d][b]))[at] = row[j];
          const_cast<float*>(static_cast<const float*>(v_blocks[d][b]))[at] = row[width + j];
        }
      span.first_row += std::min(done, span.rows);
      span.rows = rows;
      span.past = done;
      span.k_blocks = k_blocks[d].data();
      span.v_blocks = v_blocks[d].data();
      spans.push_back(span);
    }
    AttentionArgs a = p.args();
    a.spans = spans.data();
    a.k_stride = a.v_stride = width;
    a.o = o.data();
    a.lse = lse.data();
    attention_forward(a);
  }
  o.insert(o.end(), lse.begin(), lse.end());
  return o;
}

TEST_F(Attention, PackedEqualsChunkedEqualsTokenByToken) {
  std::vector<std::vector<float>> first;
  each_isa([&] {
    size_t index = 0;
    for (const Shape& s : kShapes) {
      if (s.type == DType::bf16) continue;
      Problem p(s);
      attention_forward(p.args());
      std::vector<float> packed = p.o;
      packed.insert(packed.end(), p.lse.begin(), p.lse.end());
      for (const int64_t chunk : {1, 7, 64, 100}) {
        const std::vector<float> chunked = in_chunks(p, chunk);
        ASSERT_EQ(std::memcmp(packed.data(), chunked.data(), packed.size() * 4), 0)
            << index << " chunk " << chunk;
      }
      if (first.size() <= index) first.push_back(packed);
      ASSERT_EQ(std::memcmp(packed.data(), first[index].data(), packed.size() * 4), 0)
          << "instruction sets differ";
      ++index;
    }
  });
}

TEST_F(Attention, NeighboursAndThreadsDoNotMatter) {
  Problem all({4, 2, 32, {200, 3, 81}});
  const auto run = [](Problem& p) {
    attention_forward(p.args());
    std::vector<float> d(p.qkv.size(), NAN);
    AttentionBackwardArgs b;
    b.forward = p.args();
    b.d_o = p.o.data();
    b.d_o_stride = p.o_stride;
    b.d_q = d.data();
    b.d_k = d.data() + p.s.heads * p.s.width;
    b.d_v = d.data() + (p.s.heads + p.s.kv_heads) * p.s.width;
    b.d_q_stride = b.d_k_stride = b.d_v_stride = p.stride;
    attention_backward(b);
    return d;
  };
  const std::vector<float> expected = run(all);
  const std::vector<float> o = all.o, top = all.top;
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    ASSERT_EQ(run(all), expected);
    ASSERT_EQ(all.o, o);
    ASSERT_EQ(all.top, top);
  }
  set_num_threads(before);
  all.spans = {all.spans[2]};  // the last document alone
  std::fill(all.o.begin(), all.o.end(), NAN);
  const std::vector<float> alone = run(all);
  const auto first = all.spans[0].first_row;
  EXPECT_EQ(std::memcmp(alone.data() + first * all.stride, expected.data() + first * all.stride,
                        size_t(81 * all.stride) * 4),
            0);
  EXPECT_EQ(std::memcmp(all.o.data() + first * all.o_stride, o.data() + first * all.o_stride,
                        size_t(81 * all.o_stride) * 4),
            0);
}

TEST_F(Attention, NarrowStorageRoundsOnce) {
  Problem p({2, 1, 32, {100}, 0, 0, DType::bf16});
  attention_forward(p.args());
  std::vector<bf16> narrow(p.o.size());
  AttentionArgs a = p.args();
  a.o_type = DType::bf16;
  a.o = narrow.data();
  attention_forward(a);
  for (size_t i = 0; i < narrow.size(); ++i) ASSERT_EQ(narrow[i].bits, to_bf16(p.o[i]).bits);
}

}  // namespace ingot::attention_test
