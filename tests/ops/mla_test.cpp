// The ops of latent attention: latents and packing against reference and finite differences; cached attention
// in both ways against its reference, against each other, and bit for bit against training's pack and
// attention.
#include "ops/mla/mla.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/mla_cached/mla_cached.h"
#include "ops/reference.h"
#include "ops/sequence/sequence_store.h"
#include "support/op_check.h"
#include "support/other_threads.h"
#include "support/sequence_cases.h"

namespace ingot::test::mla_test {

std::vector<int32_t> scattered_positions(int64_t rows) {
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t * t * 37 % 9001);
  return positions;
}

struct Widths {
  int64_t heads, nope, rope, value, rank, q_rank;
};
const Widths kWidths[] = {{2, 6, 4, 10, 12, 9}, {3, 16, 8, 16, 33, 0}, {1, 3, 2, 5, 7, 21}};

RotaryRule rule_of(int64_t rope, bool interleaved, bool turn = true) {
  RotaryRule rule{10000, turn ? rope : 0};
  rule.interleaved = interleaved;
  return rule;
}

TEST(MlaLatents, NormsAndRotations) {
  for (const auto& [type, out] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::f32, DType::bf16}})
    for (const Widths& w : kWidths)
      for (const int64_t rows : {0, 5, 70})
        for (const bool turn : {true, false}) {
          OpCase c;
          c.name = fmt::format("mla_latents {}+{}+{} rows {} {} to {}", w.q_rank, w.rank, w.rope, rows,
                               name_of(type), name_of(out));
          c.op = &mla_latents_op();
          MlaLatentsAttr attr{w.q_rank, w.rank, w.rope, rule_of(w.rope, rows == 5, turn), 1e-6, out};
          c.attr = AttrBox(attr);
          attr.out = DType::f64;
          c.attr_double = AttrBox(attr);
          c.inputs = {{.meta = {{rows, w.q_rank + w.rank + w.rope}, type}, .row_indexed = true},
                      {.meta = {{rows}, DType::i32}, .ints = scattered_positions(rows), .row_indexed = true},
                      {.meta = {{w.q_rank}, DType::f32}, .scale = 0.3, .offset = 1, .present = w.q_rank > 0},
                      {.meta = {{w.rank}, DType::f32}, .scale = 0.3, .offset = 1}};
          c.output_row_indexed = {w.q_rank > 0, true, true, true};
          c.finite_differences = rows < 10;
          check_op(c);
        }
}

TEST(MlaPack, RotatesQueriesAndSharesTheKey) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const Widths& w : kWidths)
      for (const int64_t rows : {0, 5, 70})
        for (const bool all : {true, false}) {
          OpCase c;
          c.name = fmt::format("mla_pack {}x({}+{})/{} rows {} {}{}", w.heads, w.nope, w.rope, w.value, rows,
                               name_of(type), all ? "" : " queries");
          c.op = &mla_pack_op();
          c.attr = c.attr_double =
              AttrBox(MlaPackAttr{w.heads, w.nope, w.rope, w.value, rule_of(w.rope, rows == 5)});
          c.inputs = {
              {.meta = {{rows, w.heads * (w.nope + w.rope)}, type}, .row_indexed = true},
              {.meta = {{rows}, DType::i32}, .ints = scattered_positions(rows), .row_indexed = true},
              {.meta = {{rows, w.heads * (w.nope + w.value)}, type}, .present = all, .row_indexed = true},
              {.meta = {{rows, w.rope}, type}, .present = all, .row_indexed = true}};
          c.output_row_indexed = {true};
          c.finite_differences = rows < 10;
          check_op(c);
        }
}

/// One layer's inputs for several sequences, and functions that run them.
class Cached {
 public:
  Cached(const Widths& w, DType type, int64_t window, double softcap)
      : w_(w),
        type_(type),
        window_(window),
        softcap_(softcap),
        q_(draw(1, lengths_total(), w.heads * (w.nope + w.rope))),
        c_(draw(2, lengths_total(), w.rank)),
        k_rope_(draw(3, lengths_total(), w.rope)),
        kv_up_(draw(4, w.heads * (w.nope + w.value), w.rank)) {}

  /// Outputs of all tokens, sequences advancing by `chunk` tokens a call.
  std::vector<double> run(const Kernel& kernel, bool absorb, int64_t chunk) {
    SequenceStore store({1, 1, w_.rank + w_.rope, type_, 0, 0, 0, 0}, 1000);
    std::vector<SequenceState> states;
    for (size_t s = 0; s < kLengths.size(); ++s) states.push_back(store.create());
    std::vector<double> out(static_cast<size_t>(lengths_total() * w_.heads * w_.value));
    max_logit_ = -INFINITY;
    for (int64_t past = 0; past < 200; past += chunk) step(kernel, absorb, past, chunk, states, out);
    int64_t pages = 0;
    for (const SequenceState& s : states) pages += SequenceStore::pages_for(s.tokens());
    EXPECT_EQ(store.pages_in_use() * store.page_bytes(), pages * 64 * (w_.rank + w_.rope) * size_of(type_));
    return out;
  }

  /// The same outputs through training's ops: up-projection, pack, attention.
  std::vector<double> trained() {
    BatchLayout rows = make_rows(kLengths);
    const int64_t T = rows.count, K = w_.nope + w_.rope;
    Memory kv({T, w_.heads * (w_.nope + w_.value)}, type_), packed({T, w_.heads * (2 * K + w_.value)}, type_);
    Memory o({T, w_.heads * w_.value}, type_), lse({T, w_.heads}, stat()), top({w_.heads}, stat());
    const auto positions = scattered_positions(T);
    const Tensor p = Tensor::of(positions.data(), {T});
    const AttrBox linear(LinearAttr{type_}), pack(MlaPackAttr{w_.heads, w_.nope, w_.rope, w_.value, {}});
    const AttrBox attend(AttentionAttr{w_.heads, w_.heads, K, kScale, window_, softcap_, &rows, 0, w_.value});
    call(linear_op(), linear, {c_.tensor, kv_up_.tensor, {}}, {kv.tensor});
    call(mla_pack_op(), pack, {q_.tensor, p, kv.tensor, k_rope_.tensor}, {packed.tensor});
    call(attention_op(), attend, {packed.tensor}, {o.tensor, lse.tensor, top.tensor});
    return reference::load(o.tensor);
  }
  double max_logit() const { return max_logit_; }

 private:
  struct Memory {
    Memory(Shape shape, DType type)
        : bytes(static_cast<size_t>(shape.numel() * size_of(type)) + 64), tensor(bytes.data(), shape, type) {}
    std::vector<std::byte> bytes;
    Tensor tensor;
  };

  static int64_t lengths_total() {
    int64_t n = 0;
    for (const int64_t l : kLengths) n += l;
    return n;
  }
  DType stat() const { return type_ == DType::f64 ? DType::f64 : DType::f32; }
  Memory draw(uint64_t stream, int64_t rows, int64_t width) const {
    Memory m({rows, width}, type_);
    const Random random(21, RandomPurpose::test, stream);
    reference::Array values(static_cast<size_t>(rows * width));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = to_float(to_bf16(static_cast<float>(0.6 * random.normal(i))));
    reference::store(m.tensor, values);
    return m;
  }
  void call(const Op& op, const AttrBox& attr, std::vector<Tensor> in, std::vector<Tensor> out) const {
    const Kernel& kernel = type_ == DType::f64 ? op.kernels.back() : op.kernels.front();
    kernel.forward({attr.data(), in, out, {}, {}});
  }

  void step(const Kernel& kernel, bool absorb, int64_t past, int64_t chunk,
            std::vector<SequenceState>& states, std::vector<double>& out) {
    BatchLayout rows;
    std::vector<int64_t> from;
    int64_t begin = 0;
    for (size_t s = 0; s < kLengths.size(); begin += kLengths[s], ++s) {
      const int64_t n = std::clamp<int64_t>(kLengths[s] - past, 0, chunk);
      if (n == 0) continue;
      rows.spans.push_back({rows.count, n, past, &states[s]});
      rows.count += n;
      for (int64_t t = 0; t < n; ++t) from.push_back(begin + past + t);
    }
    if (rows.count == 0) return;
    const auto gather = [&](const Memory& m) {
      Memory part({rows.count, m.tensor.dim(1)}, type_);
      const auto width = static_cast<size_t>(m.tensor.dim(1) * size_of(type_));
      for (size_t t = 0; t < from.size(); ++t)
        std::memcpy(part.bytes.data() + t * width, m.bytes.data() + static_cast<size_t>(from[t]) * width,
                    width);
      return part;
    };
    const Memory q = gather(q_), c = gather(c_), k_rope = gather(k_rope_);
    Memory o({rows.count, w_.heads * w_.value}, type_), top({w_.heads}, stat());
    const AttrBox attr(MlaCachedAttr{w_.heads, w_.nope, w_.rope, w_.value, w_.rank, kScale, window_, softcap_,
                                     &rows, 0, absorb});
    const Tensor in[] = {q.tensor, c.tensor, k_rope.tensor, kv_up_.tensor}, result[] = {o.tensor, top.tensor};
    kernel.forward({attr.data(), in, result, {}, {}});
    const auto values = reference::load(o.tensor);
    const auto width = static_cast<size_t>(w_.heads * w_.value);
    for (size_t t = 0; t < from.size(); ++t)
      std::copy_n(values.begin() + static_cast<int64_t>(t * width), width,
                  out.begin() + from[t] * static_cast<int64_t>(width));
    for (const double m : reference::load(top.tensor)) max_logit_ = std::max(max_logit_, m);
  }

  static constexpr double kScale = 0.31;
  inline static const std::vector<int64_t> kLengths = {70, 1, 3, 130};
  Widths w_;
  DType type_;
  int64_t window_;
  double softcap_;
  Memory q_, c_, k_rope_, kv_up_;
  double max_logit_ = 0;
};

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, scale = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return worst / scale;
}

// check_op() has no cached sequences, so mla_cached is tested here.
const Op* const kCached = &mla_cached_op();

const std::pair<int64_t, double> kMasks[] = {{0, 0}, {40, 0}, {0, 3}, {9, 2}};

TEST(MlaCached, BothWaysAreOneFunctionInDouble) {
  const Kernel& reference = kCached->kernels.back();
  for (const Widths& w : kWidths)
    for (const auto& [window, cap] : kMasks) {
      Cached c(w, DType::f64, window, cap);
      const auto trained = c.trained(), made = c.run(reference, false, 64),
                 absorbed = c.run(reference, true, 64);
      EXPECT_EQ(made, trained);
      EXPECT_LE(difference(absorbed, trained), 1e-12);
      EXPECT_LE(difference(c.run(reference, true, 1), absorbed), 0.0);
    }
}

TEST(MlaCached, MaterialisedHasTheBitsOfTraining) {
  const Kernel& fast = kCached->kernels.front();
  for (const DType type : {DType::f32, DType::bf16})
    for (const Widths& w : kWidths)
      for (const auto& [window, cap] : kMasks) {
        Cached c(w, type, window, cap);
        const auto trained = c.trained();
        for (const int64_t chunk : {1, 7, 64, 200})
          EXPECT_EQ(c.run(fast, false, chunk), trained) << "chunk " << chunk;
        const OtherThreads others;
        EXPECT_EQ(c.run(fast, false, 64), trained) << "other threads";
      }
}

TEST(MlaCached, AbsorbedIsCloseAndItsBitsDoNotDependOnChunks) {
  const Kernel &fast = kCached->kernels.front(), &reference = kCached->kernels.back();
  for (const DType type : {DType::f32, DType::bf16})
    for (const Widths& w : kWidths)
      for (const auto& [window, cap] : kMasks) {
        Cached c(w, type, window, cap);
        const auto exact = c.run(reference, true, 200);
        const double top = c.max_logit();
        const auto absorbed = c.run(fast, true, 200);
        EXPECT_NEAR(c.max_logit(), top, type == DType::f32 ? 1e-5 : 0.05);
        EXPECT_LE(difference(absorbed, exact), type == DType::f32 ? 1e-5 : 0.03);
        for (const int64_t chunk : {1, 7, 64})
          EXPECT_EQ(c.run(fast, true, chunk), absorbed) << "chunk " << chunk;
        const OtherThreads others;
        EXPECT_EQ(c.run(fast, true, 64), absorbed) << "other threads";
      }
}

}  // namespace ingot::test::mla_test
