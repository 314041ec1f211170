// What CCA's halo sends: queries and keys of two rows, delayed values of one, and the rows of one rank come
// out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>

#include "base/philox.h"
#include "comm/threads.h"
#include "nn/context_region.h"
#include "ops/reference.h"
#include "support/counting_communicator.h"
#include "tape/backward.h"

namespace ingot::test::cca_halo_ranks_test {

constexpr int64_t kLength = 24, kHeads = 8, kGroups = 2, kWidth = 128,
                  kChannels = (kHeads + kGroups) * kWidth, kPacked = kChannels + kGroups * kWidth;
constexpr int kRanks = 2;

/// Tensors of one call, drawn at random; `rows` are rows of the whole sequence.
struct Call {
  explicit Call(std::vector<int64_t> rows) : rows(std::move(rows)) {
    const auto n = static_cast<int64_t>(this->rows.size());
    qkv = bf16_tensor(1, {n, kPacked}, 1, this->rows);
    grouped = bf16_tensor(2, {kHeads + kGroups, kWidth, 2 * kWidth}, 0.05);
    depthwise = f32_tensor(3, {kChannels, 2});
    depthwise_bias = f32_tensor(4, {kChannels});
    grouped_bias = f32_tensor(5, {kChannels});
    temperature = f32_tensor(6, {kGroups});
  }
  static double draw(uint64_t stream, int64_t i) {
    return Random(11, RandomPurpose::test, stream).normal(static_cast<uint64_t>(i));
  }
  Tensor bf16_tensor(uint64_t stream, const Shape& shape, double scale, const std::vector<int64_t>& of = {}) {
    const Tensor t(memory.emplace_back(shape.numel() * 2).data(), shape, DType::bf16);
    const int64_t width = shape[-1];
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const int64_t row = i / width, from = of.empty() ? row : of[static_cast<size_t>(row)];
      t.as<bf16>()[i] = to_bf16(static_cast<float>(scale * draw(stream, from * width + i % width)));
    }
    return t;
  }
  Tensor f32_tensor(uint64_t stream, const Shape& shape) {
    const Tensor t(memory.emplace_back(shape.numel() * 4).data(), shape, DType::f32);
    for (int64_t i = 0; i < shape.numel(); ++i) t.as<float>()[i] = static_cast<float>(draw(stream, i));
    return t;
  }
  std::vector<int64_t> rows;
  std::deque<Buffer> memory;
  Tensor qkv, grouped, depthwise, depthwise_bias, grouped_bias, temperature;
};

struct Outcome {
  std::vector<uint16_t> packed;  ///< bits of the result
  reference::Array d_qkv;
};

Outcome pass(const Call& call, Context& c) {
  const CcaAttr attr{.heads = kHeads, .kv_heads = kGroups, .head_width = kWidth, .out = DType::bf16};
  const Value qkv = c.tape.leaf(call.qkv, true);
  const CcaParams params{c.tape.leaf(call.depthwise), c.tape.leaf(call.depthwise_bias),
                         c.tape.leaf(call.grouped), c.tape.leaf(call.grouped_bias),
                         c.tape.leaf(call.temperature)};
  const Value y = prepare_cca(c, attr, qkv, params);
  Outcome o;
  o.packed.resize(static_cast<size_t>(y.shape().numel()));
  std::memcpy(o.packed.data(), y.tensor().data, o.packed.size() * 2);
  Call cotangent(call.rows);
  const Tensor d = cotangent.bf16_tensor(7, y.shape(), 1, call.rows);
  c.tape.seed(y, d);
  Backward(c.tape).run();
  o.d_qkv = reference::load(c.tape.gradient(qkv));
  return o;
}

TEST(CcaHalo, SendsWhatIsNeeded) {
  ParameterTable table;
  const WeightSet weights(table, {}, Precision::bf16());
  std::vector<int32_t> positions(kLength);
  std::iota(positions.begin(), positions.end(), 0);
  const BatchLayout layout{kLength, {{0, kLength, 0, nullptr, 0}}};
  std::vector<int64_t> all(kLength);
  std::iota(all.begin(), all.end(), 0);
  HeapArena arena;
  Tape tape(arena, {});
  tape.begin_segment("attention", 0);
  Context alone{tape, weights, &layout, tape.leaf(Tensor::of(positions.data(), {kLength}))};
  const Outcome whole = pass(Call(all), alone);
  run_ranks(kRanks, [&](ThreadRank& self) {
    const auto group = self.group("context", {0, 1});
    CountingCommunicator counted(*group);
    const ContextRows rows(layout, kLength, positions.data(), self.rank(), kRanks);
    std::vector<int64_t> mine;
    for (int64_t i = 0; i < rows.count(); ++i) mine.push_back(rows.whole_row(self.rank(), i));
    HeapArena own_arena;
    Tape own(own_arena, {});
    own.begin_segment("attention", 0);
    const std::vector<int32_t> own_positions = rows.share_of(positions.data());
    Context c{own, weights, &layout, own.leaf(Tensor::of(own_positions.data(), {rows.count()}))};
    c.context = &counted, c.context_rows = &rows;
    const Outcome o = pass(Call(mine), c);
    // Each rank sends one of its two tails to the other, and in backward one halo's cotangent back.
    EXPECT_EQ(counted.bytes, 2 * 5376);
    double worst = 0;
    for (size_t i = 0; i < mine.size(); ++i)
      for (size_t j = 0; j < static_cast<size_t>(kPacked); ++j) {
        const size_t at = static_cast<size_t>(mine[i]) * kPacked + j;
        EXPECT_EQ(o.packed[i * kPacked + j], whole.packed[at]) << mine[i] << " " << j;
        worst = std::max(worst, std::abs(o.d_qkv[i * kPacked + j] - whole.d_qkv[at]));
      }
    EXPECT_LE(worst, 0.1) << "the cotangents of a halo are rounded to bf16 once more";
  });
}

}  // namespace ingot::test::cca_halo_ranks_test
