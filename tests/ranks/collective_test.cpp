// Collectives as tape ops: <C x, y> = <x, C^T y> summed over ranks, gradients that accumulate, wire bytes on the null
// device, and nothing recorded on an axis of one rank.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "comm/threads.h"
#include "ops/collective/collective.h"
#include "ops/reference.h"

namespace ingot {
namespace {

using reference::Array;
using Builder = Value (*)(Tape&, Communicator*, const Value&);

struct Collective {
  const char* name;
  Builder build;
  bool equal_in, equal_out;  ///< x, or y and its cotangent, are equal on all ranks: an inner product counts once
};

const Collective kCollectives[] = {{"copy_to_axis", copy_to_axis, true, false},
                                   {"reduce_from_axis", reduce_from_axis, false, true},
                                   {"all_gather_rows", all_gather_rows, false, false},
                                   {"reduce_scatter_rows", reduce_scatter_rows, false, false}};

Array draw(int64_t n, uint64_t stream) {
  const Random random(8, RandomPurpose::test, stream);
  Array a(static_cast<size_t>(n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = random.normal(i);
  return a;
}

double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(Collectives, BackwardIsTheAdjoint) {
  constexpr int kRanks = 3;
  for (const Collective& op : kCollectives)
    for (const int64_t rows : {0, 6}) {
      Array forward(kRanks), backward(kRanks);
      run_ranks(kRanks, [&](ThreadRank& self) {
        const auto me = static_cast<size_t>(self.rank());
        const auto c = self.group("axis", {0, 1, 2});
        HeapArena arena;
        Tape tape(arena, {});
        tape.begin_segment("test", -1);
        Array x = draw(rows * 4, op.equal_in ? 0 : me);
        const Value leaf = tape.leaf(Tensor::of(x.data(), {rows, 4}), true);
        const Value y = op.build(tape, c.get(), leaf), again = op.build(tape, c.get(), leaf);
        Array d_y = draw(y.meta().shape.numel(), 10 + (op.equal_out ? 0 : me));
        tape.seed(y, Tensor::of(d_y.data(), y.shape()));
        tape.seed(again, Tensor::of(d_y.data(), y.shape()));  // the second contribution accumulates
        const Array value = reference::load(y.tensor());
        Cursor(tape).run();
        const Array d_x = reference::load(tape.gradient(leaf));
        forward[me] = 2 * dot(value, d_y) * (op.equal_out && self.rank() > 0 ? 0 : 1);
        backward[me] = dot(x, d_x) * (op.equal_in && self.rank() > 0 ? 0 : 1);
      });
      const Array ones(kRanks, 1);
      EXPECT_NEAR(dot(forward, ones), dot(backward, ones), 1e-12) << op.name << " " << rows;
    }
}

TEST(Collectives, TheNullDeviceCountsBytesOnTheWire) {
  run_ranks(2, [](ThreadRank& self) {
    const auto c = self.group("axis", {0, 1});
    const double expected[] = {2 * 96 / 2, 2 * 96 / 2, 2 * 192 / 2, 2 * 96 / 2};  // fp32 [6, 4], both directions
    for (size_t i = 0; i < 4; ++i) {
      CountingArena arena;
      TapeProfile profile;
      TapeOptions options;
      options.device = DeviceKind::null;
      options.profile = &profile;
      Tape tape(arena, options);
      tape.begin_segment("test", -1);
      const Value x = tape.leaf(Tensor(nullptr, {6, 4}, DType::f32, DeviceKind::null), true);
      const Value y = kCollectives[i].build(tape, c.get(), x);
      tape.seed(y, Tensor(nullptr, y.shape(), DType::f32, DeviceKind::null));
      Cursor(tape).run();
      EXPECT_EQ(profile[kCollectives[i].name].wire_bytes, expected[i]) << kCollectives[i].name;
    }
  });
}

TEST(Collectives, OneRankRecordsNothing) {
  const auto alone = self_communicator("axis");
  HeapArena arena;
  Tape tape(arena, {});
  tape.begin_segment("test", -1);
  Array x(8, 1.0);
  const Value leaf = tape.leaf(Tensor::of(x.data(), {2, 4}), true);
  for (const Collective& op : kCollectives)
    for (Communicator* axis : {static_cast<Communicator*>(nullptr), alone.get()})
      EXPECT_EQ(op.build(tape, axis, leaf).id(), leaf.id()) << op.name;
  EXPECT_TRUE(tape.nodes().empty());
}

}  // namespace
}  // namespace ingot
