// The dispatchers: both give the same bits in every type, whoever gets the tokens, with and without a capacity; and the
// all-to-all one sends each token once to each rank of its experts, no more.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "base/philox.h"
#include "comm/threads.h"
#include "nn/moe/layer.h"
#include "ops/collective/exchange.h"
#include "ops/reference.h"
#include "support/counting_communicator.h"

namespace ingot::test {
namespace {

using reference::Array;
constexpr int64_t kTokens = 24, kWidth = 16, kExperts = 8, kTopK = 3;

MoeOptions options_of(double capacity, bool pad) {
  MoeOptions o;
  o.router = {.width = kWidth, .experts = kExperts, .init_std = 0.5};
  o.route = {.normalize = true, .experts = kExperts, .k = kTopK};
  o.width = kWidth;
  o.experts = kExperts;
  o.hidden = 12;
  o.capacity_factor = capacity;
  o.pad_to_capacity = pad;
  return o;
}

/// Who gets the tokens.
enum class Routing { free, skewed, first_rank };

struct LayerRun {
  Array y, d_h;
  std::vector<Array> gradients;
  std::vector<int32_t> ids;
  double bytes = 0;
  bool operator==(const LayerRun& o) const { return y == o.y && d_h == o.d_h && gradients == o.gradients && ids == o.ids; }
};

/// Routes of rank r: all to the first rank's experts, or the more to the last expert the higher the rank.
std::vector<int32_t> forced(Routing routing, int rank) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int32_t j = 0; j < kTopK; ++j) {
      const bool last = routing == Routing::skewed && j == kTopK - 1 && t < 8 * rank;
      ids.push_back(last ? static_cast<int32_t>(kExperts - 1) : j - (routing == Routing::skewed && t % 5 == 4 && j == 0));
    }
  return ids;
}

LayerRun run_layer(const MoeOptions& o, const Precision& precision, Communicator& group, DispatchKind kind, Routing routing) {
  ParameterTable table;
  const MoeLayer layer(table, "moe", o);
  WeightSet weights(table, {.expert_size = group.size(), .expert_rank = group.rank()}, precision);
  weights.initialize(3);
  weights.refresh_compute();
  GradientBuffer gradients(table, weights.placement(), precision.stream);
  gradients.begin_step();
  CountingCommunicator counting(group);
  HeapArena arena;
  Tape tape(arena, {.sink = &gradients});
  Context c{tape, weights};
  c.expert = &counting;
  c.dispatch = kind;
  std::vector<int32_t> ids;
  if (routing != Routing::free) {
    ids = forced(routing, group.rank());
    c.routers[0].forced_ids_TK = Tensor::of(ids.data(), {kTokens, kTopK});
  }
  const Random random(4, RandomPurpose::test, static_cast<uint64_t>(group.rank()));
  const auto tensor = [&](uint64_t first) {
    Tensor t(arena.allocate(kTokens * kWidth * 8, "test").data, {kTokens, kWidth}, precision.compute);
    Array values(static_cast<size_t>(kTokens * kWidth));
    for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(first + i);
    reference::store(t, values);
    return t;
  };
  const Value h = tape.leaf(tensor(0), true);
  MoeOutput out = layer.forward(c, h, {}, 0);
  tape.seed(out.y_TD, tensor(1 << 20));
  LayerRun r;
  r.y = reference::load(out.y_TD.tensor());
  for (const Metric& m : tape.metrics())
    if (m.name == "router_ids") r.ids = reference::load_ints(m.value.tensor());
  Cursor(tape).run();
  gradients.finish_step();
  r.d_h = reference::load(tape.gradient(h));
  for (int i = 0; i < table.size(); ++i) r.gradients.push_back(reference::load(gradients.gradient(i)));
  r.bytes = counting.bytes;
  return r;
}

std::vector<int> all_of(int n) {
  std::vector<int> members;
  for (int i = 0; i < n; ++i) members.push_back(i);
  return members;
}

TEST(Dispatchers, GiveTheSameBits) {
  for (const int ranks : {2, 4})
    run_ranks(ranks, [&](ThreadRank& self) {
      const auto group = self.group("expert", all_of(ranks));
      for (const Precision& precision : {Precision::f64(), Precision::f32(), Precision::bf16()})
        for (const auto& [capacity, pad] : {std::pair{0.0, false}, {1.25, false}, {1.0, true}})
          for (const Routing routing : {Routing::free, Routing::skewed, Routing::first_rank}) {
            const MoeOptions o = options_of(capacity, pad);
            const LayerRun gather = run_layer(o, precision, *group, DispatchKind::all_gather, routing);
            const LayerRun exchange = run_layer(o, precision, *group, DispatchKind::all_to_all, routing);
            EXPECT_TRUE(gather == exchange) << name_of(precision.compute) << " capacity " << capacity << " pad " << pad
                                            << " routing " << static_cast<int>(routing) << " ranks " << ranks;
          }
    });
}

/// By rank, how many of these tokens go there from another rank.
std::vector<int32_t> rows_to_others(const std::vector<int32_t>& ids, int rank, int ranks) {
  std::vector<int32_t> rows(static_cast<size_t>(ranks), 0);
  for (int64_t t = 0; t < kTokens; ++t) {
    std::set<int64_t> to;
    for (int64_t j = 0; j < kTopK; ++j) {
      const int32_t id = ids[static_cast<size_t>(t * kTopK + j)];
      if (id >= 0) to.insert(id / (kExperts / ranks));
    }
    for (const int64_t p : to) rows[static_cast<size_t>(p)] += p != rank;
  }
  return rows;
}

TEST(Dispatchers, AllToAllSendsATokenOncePerRank) {
  constexpr int kRanks = 4;
  run_ranks(kRanks, [&](ThreadRank& self) {
    const auto group = self.group("expert", all_of(kRanks));
    for (const Routing routing : {Routing::free, Routing::skewed, Routing::first_rank}) {
      const LayerRun r = run_layer(options_of(0, false), Precision::f32(), *group, DispatchKind::all_to_all, routing);
      std::vector<int32_t> arrive = rows_to_others(r.ids, self.rank(), kRanks);
      const int64_t sent = std::accumulate(arrive.begin(), arrive.end(), int64_t{0});
      const Tensor sums = Tensor::of(arrive.data(), {kRanks});
      group->all_reduce(sums, sums).wait();
      const int64_t received = arrive[static_cast<size_t>(self.rank())];
      // Rows, weights and ids out, sums back; then the sums' cotangents out, those of rows and weights back.
      const int64_t floats = (kWidth + kTopK) * 4, counts = (kRanks - 1) * 4;
      const int64_t forward = counts + sent * (floats + kTopK * 4) + received * kWidth * 4;
      const int64_t backward = received * floats + sent * kWidth * 4;
      EXPECT_EQ(r.bytes, static_cast<double>(forward + backward)) << "routing " << static_cast<int>(routing);
      if (routing == Routing::first_rank) {  // experts 0 to 2
        EXPECT_EQ(sent, self.rank() < 2 ? kTokens : 2 * kTokens);
      }
    }
  });
}

TEST(Dispatchers, APlanCountsTheExpectedBytesAndShapesThatNoRoutingChanges) {
  run_ranks(4, [](ThreadRank& self) {
    const auto group = self.group("expert", all_of(4));
    ParameterTable table;
    const MoeLayer layer(table, "moe", options_of(0, false));
    WeightSet weights(table, {.expert_size = 4, .expert_rank = self.rank()}, Precision::f32(), Backing::nothing);
    GradientBuffer gradients(table, weights.placement(), DType::f32, Backing::nothing);
    CountingArena arena;
    TapeProfile profile;
    TapeOptions options{.device = DeviceKind::null, .sink = &gradients};
    options.profile = &profile;
    Tape tape(arena, options);
    Context c{tape, weights};
    c.expert = group.get();
    const Value h = tape.leaf(Tensor(nullptr, {kTokens, kWidth}, DType::f32, DeviceKind::null), true);
    const Value y = layer.forward(c, h, {}, 0).y_TD;
    EXPECT_EQ(y.shape(), (Shape{kTokens, kWidth}));
    tape.seed(y, Tensor(nullptr, y.shape(), DType::f32, DeviceKind::null));
    Cursor(tape).run();
    // A rank misses a token when none of its 3 of 8 experts is among 2: 6/8 5/7 4/6.
    const double rows = kTokens * 3 * (1 - 6.0 / 8 * 5 / 7 * 4 / 6), floats = (kWidth + kTopK) * 4;
    EXPECT_NEAR(profile["exchange_rows"].wire_bytes, rows * (2 * floats + kTopK * 4) + 12, 1e-6);
    EXPECT_NEAR(profile["return_rows"].wire_bytes, rows * 2 * kWidth * 4, 1e-6);
  });
}

TEST(Dispatchers, RanksWithUnequalTokensAreAnError) {
  try {
    run_ranks(2, [](ThreadRank& self) {
      const auto group = self.group("expert", all_of(2));
      const int64_t tokens = 2 + 4 * self.rank();
      const std::vector<float> x(static_cast<size_t>(tokens), 1.0f);
      const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0), sent = {static_cast<int32_t>(tokens), 0};
      HeapArena arena;
      Tape tape(arena, {.record = false});
      tape.begin_segment("test", -1);
      const Value rows = tape.leaf(Tensor::of(x.data(), {tokens, 1}));
      exchange_rows(tape, {group.get(), 2 * tokens}, rows, rows, tape.leaf(Tensor::of(ids.data(), {tokens, 1})),
                    tape.leaf(Tensor::of(sent.data(), {2})));
    });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0 of group 'expert' gets 8 rows, it has room for 4"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace ingot::test
