// Collectives as tape ops: <C x, y> = <x, C^T y> summed over ranks, gradients that accumulate, wire bytes on
// the null device, and nothing recorded on an axis of one rank. Of exchange_rows and return_rows the adjoint
// is tested here, the rest in nn/dispatch_ranks_test.cpp; merge_vocabulary is in vocabulary_ranks_test.cpp.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "comm/threads.h"
#include "ops/collective/exchange.h"
#include "ops/reference.h"
#include "tape/backward.h"

namespace ingot::collective_ranks_test {

using reference::Array;
using Builder = Value (*)(Tape&, Communicator*, const Value&);

struct Collective {
  const char* name;
  Builder build;
  bool equal_in,
      equal_out;  ///< x, or y and its cotangent, are equal on all ranks: an inner product counts once
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
        Backward(tape).run();
        const Array d_x = reference::load(tape.gradient(leaf));
        forward[me] = 2 * dot(value, d_y) * (op.equal_out && self.rank() > 0 ? 0 : 1);
        backward[me] = dot(x, d_x) * (op.equal_in && self.rank() > 0 ? 0 : 1);
      });
      const Array ones(kRanks, 1);
      EXPECT_NEAR(dot(forward, ones), dot(backward, ones), 1e-12) << op.name << " " << rows;
    }
}

TEST(Collectives, RoutedRowsGoHomeInBackward) {
  constexpr int kRanks = 3;
  constexpr int64_t kSlots = 9, kRoom = 14;
  const int32_t split[kRanks][kRanks] = {{0, 4, 2}, {5, 0, 4}, {1, 0, 0}};  // rows that rank i sends to j
  Array forward(kRanks), backward(kRanks);
  run_ranks(kRanks, [&](ThreadRank& self) {
    const auto me = static_cast<size_t>(self.rank());
    const auto c = self.group("axis", {0, 1, 2});
    HeapArena arena;
    Tape tape(arena, {});
    tape.begin_segment("test", -1);
    Array x = draw(kSlots * 4, me), p = draw(kSlots * 2, 20 + me);
    const std::vector<int32_t> ids(kSlots * 2, 7);
    const Value rows = tape.leaf(Tensor::of(x.data(), {kSlots, 4}), true),
                probs = tape.leaf(Tensor::of(p.data(), {kSlots, 2}), true),
                sent = tape.leaf(Tensor::of(split[me], {kRanks}));
    const Exchanged e = exchange_rows(tape, {c.get(), kRoom}, rows, probs,
                                      tape.leaf(Tensor::of(ids.data(), {kSlots, 2})), sent);
    EXPECT_EQ(reference::load_ints(e.received.tensor()),
              (std::vector<int32_t>{split[0][me], split[1][me], split[2][me]}));
    const auto came = static_cast<size_t>(split[0][me] + split[1][me] + split[2][me]) * 2;
    std::vector<int32_t> expected(kRoom * 2, -1);
    std::fill_n(expected.begin(), came, 7);
    EXPECT_EQ(reference::load_ints(e.ids_AK.tensor()), expected);
    const Value home = return_rows(tape, {c.get(), kSlots}, e.rows_AD, sent, e.received);
    Array returned = reference::load(home.tensor()), sent_rows = x;
    std::fill(sent_rows.begin() + (split[me][0] + split[me][1] + split[me][2]) * 4, sent_rows.end(), 0.0);
    EXPECT_EQ(returned, sent_rows);
    Array d_rows = draw(kRoom * 4, 30 + me), d_probs = draw(kRoom * 2, 40 + me),
          d_home = draw(kSlots * 4, 50 + me);
    tape.seed(e.rows_AD, Tensor::of(d_rows.data(), {kRoom, 4}));  // return_rows' contribution accumulates
    tape.seed(e.probs_AK, Tensor::of(d_probs.data(), {kRoom, 2}));
    tape.seed(home, Tensor::of(d_home.data(), {kSlots, 4}));
    forward[me] = dot(reference::load(e.rows_AD.tensor()), d_rows) +
                  dot(reference::load(e.probs_AK.tensor()), d_probs) + dot(returned, d_home);
    Backward(tape).run();
    backward[me] =
        dot(x, reference::load(tape.gradient(rows))) + dot(p, reference::load(tape.gradient(probs)));
  });
  const Array ones(kRanks, 1);
  EXPECT_NEAR(dot(forward, ones), dot(backward, ones), 1e-12);
}

TEST(Collectives, TheNullDeviceCountsBytesOnTheWire) {
  run_ranks(2, [](ThreadRank& self) {
    const auto c = self.group("axis", {0, 1});
    const double expected[] = {2 * 96 / 2, 2 * 96 / 2, 2 * 192 / 2,
                               2 * 96 / 2};  // fp32 [6, 4], both directions
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
      Backward(tape).run();
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

}  // namespace ingot::collective_ranks_test
