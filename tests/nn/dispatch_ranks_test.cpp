// The dispatchers give the same bits in every type, whoever gets the tokens, with and without a capacity. The
// all-to-all one sends each token once to each rank of its experts, the hierarchical one once to each node,
// no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/philox.h"
#include "comm/threads.h"
#include "nn/moe/layer.h"
#include "ops/collective/exchange.h"
#include "ops/reference.h"
#include "support/counting_communicator.h"
#include "tape/backward.h"

namespace ingot::test::dispatch_ranks_test {

using reference::Array;
constexpr int64_t kSentTokens = 24, kWidth = 16, kExperts = 8, kTopK = 3;

ModelConfig model_of(double capacity, bool pad, int64_t top_k = kTopK) {
  ModelConfig m;
  m.width = kWidth;
  m.moe = {.experts = kExperts, .top_k = top_k, .hidden = 12, .normalize = true, .capacity_factor = capacity};
  m.moe.pad_to_capacity = pad;
  return m;
}

MoeLayer make_layer(ParameterTable& table, const ModelConfig& model) {
  MoeLayer layer(table, "moe", model, 0);
  table.set_init(table.find("moe.router.weight"), Init::normal(0.5));
  return layer;
}

/// Who gets the tokens.
enum class Routing { free, skewed, first_rank };

struct LayerRun {
  Array y, d_h;
  std::vector<Array> gradients;
  std::vector<int32_t> ids;
  double dropped = 0;                        ///< choices beyond the capacity
  double bytes = 0, across = 0, inside = 0;  ///< of the whole group, between nodes and inside them
  bool operator==(const LayerRun& o) const {
    return y == o.y && d_h == o.d_h && gradients == o.gradients && ids == o.ids;
  }
};

/// Routes of rank r: all to the first rank's experts, or the more to the last expert the higher the rank.
std::vector<int32_t> forced(Routing routing, int rank, int64_t top_k) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kSentTokens; ++t)
    for (int32_t j = 0; j < top_k; ++j) {
      const bool last = routing == Routing::skewed && j == top_k - 1 && t < 8 * rank;
      ids.push_back(last ? static_cast<int32_t>(kExperts - 1)
                         : j - (routing == Routing::skewed && t % 5 == 4 && j == 0));
    }
  return ids;
}

/// A rank's expert group, and its parts between nodes and inside them.
struct Groups {
  explicit Groups(World& self, int node_ranks = 0) : all(self.group("expert", members(0, 1, self.ranks()))) {
    if (node_ranks == 0) return;
    across = self.group("across", members(self.rank() % node_ranks, node_ranks, self.ranks() / node_ranks));
    inside = self.group("inside", members(self.rank() / node_ranks * node_ranks, 1, node_ranks));
  }
  static std::vector<int> members(int first, int stride, int count) {
    std::vector<int> m;
    for (int i = 0; i < count; ++i) m.push_back(first + i * stride);
    return m;
  }
  std::unique_ptr<Communicator> all, across = self_communicator("across"),
                                     inside = self_communicator("inside");
};

/// Options of a dispatch.
struct DispatchOptions {
  ReceiveCapacity receive = {};
  bool bf16 = false;
  std::vector<int32_t> ids = {};  ///< routes to take, instead of those of the routing
};

LayerRun run_layer(const ModelConfig& o, const Precision& precision, const Groups& groups, DispatchKind kind,
                   Routing routing, const DispatchOptions& options = {}) {
  Communicator& group = *groups.all;
  ParameterTable table;
  const MoeLayer layer = make_layer(table, o);
  WeightSet weights(table, {.expert_size = group.size(), .expert_rank = group.rank()}, precision);
  weights.initialize(3);
  weights.refresh_compute();
  GradientBuffer gradients(table, weights.placement(), precision.stream);
  gradients.begin_step();
  CountingCommunicator counting(group), across(*groups.across), inside(*groups.inside);
  std::vector<double> memory[2];
  HeapArena arena;
  Tape tape(arena, {.sink = &gradients});
  Context c{tape, weights};
  c.expert = &counting;
  c.expert_across = &across;
  c.expert_inside = &inside;
  c.dispatch = kind;
  c.receive = options.receive;
  c.bf16_dispatch = options.bf16;
  std::vector<int32_t> ids = options.ids;
  if (routing != Routing::free) {
    if (ids.empty()) ids = forced(routing, group.rank(), o.moe.top_k);
    c.routers[0].forced_ids_TK = Tensor::of(ids.data(), {kSentTokens, o.moe.top_k});
  }
  const Random random(4, RandomPurpose::test, static_cast<uint64_t>(group.rank()));
  const auto tensor = [&](uint64_t first) {
    std::vector<double>& own = memory[first > 0];
    own.resize(static_cast<size_t>(kSentTokens * kWidth));
    Tensor t(own.data(), {kSentTokens, kWidth}, precision.compute);
    Array values(static_cast<size_t>(kSentTokens * kWidth));
    for (size_t i = 0; i < values.size(); ++i) values[i] = random.normal(first + i);
    reference::store(t, values);
    return t;
  };
  const Value h = tape.leaf(tensor(0), true);
  MoeOutput out = layer.forward(c, h, {}, 0);
  tape.seed(out.y_TD, tensor(1 << 20));
  LayerRun r;
  r.y = reference::load(out.y_TD.tensor());
  for (const Metric& m : tape.metrics()) {
    if (m.name == "router_ids") r.ids = reference::load_ints(m.value.tensor());
    if (m.name == "router_dropped") r.dropped += reference::load(m.value.tensor())[0];
  }
  Backward(tape).run();
  gradients.finish_step();
  r.d_h = reference::load(tape.gradient(h));
  for (int i = 0; i < table.size(); ++i) r.gradients.push_back(reference::load(gradients.gradient(i)));
  r.bytes = counting.bytes;
  r.across = across.bytes;
  r.inside = inside.bytes;
  return r;
}

/// Calls check(options, precision, routing, what they are) for all of them.
template <class Check>
void each_problem(int64_t top_k, const Check& check) {
  for (const Precision& precision : {Precision::f64(), Precision::f32(), Precision::bf16()})
    for (const auto& [capacity, pad] : {std::pair{0.0, false}, {1.25, false}, {1.0, true}})
      for (const Routing routing : {Routing::free, Routing::skewed, Routing::first_rank})
        check(model_of(capacity, pad, top_k), precision, routing,
              fmt::format("{} capacity {} pad {} routing {} top {}", name_of(precision.compute), capacity,
                          pad, static_cast<int>(routing), top_k));
}

TEST(Dispatchers, GiveTheSameBits) {
  for (const int ranks : {2, 4})
    run_ranks(ranks, [&](ThreadRank& self) {
      const Groups groups(self);
      each_problem(kTopK, [&](const ModelConfig& o, const Precision& precision, Routing routing,
                              const std::string& what) {
        const LayerRun gather = run_layer(o, precision, groups, DispatchKind::all_gather, routing);
        const LayerRun exchange = run_layer(o, precision, groups, DispatchKind::all_to_all, routing);
        EXPECT_TRUE(gather == exchange) << what << " ranks " << ranks;
      });
    });
}

struct Topology {
  int nodes, ranks;  ///< of a node
};
constexpr Topology kTopologies[] = {{2, 2}, {4, 2}, {2, 4}, {4, 1}, {1, 4}};

TEST(Dispatchers, OverNodesTheBitsAreTheSameWhileATokenHasTwoRanks) {
  for (const Topology& t : kTopologies)
    run_ranks(t.nodes * t.ranks, [&](ThreadRank& self) {
      const Groups groups(self, t.ranks);
      for (const int64_t top_k : {1, 2})
        each_problem(top_k, [&](const ModelConfig& o, const Precision& precision, Routing routing,
                                const std::string& what) {
          const LayerRun flat = run_layer(o, precision, groups, DispatchKind::all_to_all, routing);
          const LayerRun nodes = run_layer(o, precision, groups, DispatchKind::hierarchical, routing);
          EXPECT_TRUE(flat == nodes) << what << " nodes " << t.nodes << " x " << t.ranks;
        });
    });
}

double largest_difference(const Array& a, const Array& b) {
  double worst = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return scale > 0 ? worst / scale : worst;
}

/// Sums of three or four parts in another order: a few units in the last place.
TEST(Dispatchers, OverNodesSumsOfMoreRanksAgreeToRounding) {
  for (const Topology& t : kTopologies)
    run_ranks(t.nodes * t.ranks, [&](ThreadRank& self) {
      const Groups groups(self, t.ranks);
      for (const int64_t top_k : {3, 4})
        each_problem(top_k, [&](const ModelConfig& o, const Precision& precision, Routing routing,
                                const std::string& what) {
          const LayerRun flat = run_layer(o, precision, groups, DispatchKind::all_to_all, routing);
          const LayerRun nodes = run_layer(o, precision, groups, DispatchKind::hierarchical, routing);
          const double unit = precision.compute == DType::f64   ? 0x1p-53
                              : precision.compute == DType::f32 ? 0x1p-24
                                                                : 0x1p-8;
          EXPECT_LE(largest_difference(nodes.y, flat.y), 4 * unit) << what;
          EXPECT_LE(largest_difference(nodes.d_h, flat.d_h), 4 * unit) << what;
          EXPECT_EQ(nodes.ids, flat.ids) << what;
        });
    });
}

/// By rank, how many of these tokens go there from another rank.
std::vector<int32_t> rows_to_others(const std::vector<int32_t>& ids, int rank, int ranks) {
  std::vector<int32_t> rows(static_cast<size_t>(ranks), 0);
  for (int64_t t = 0; t < kSentTokens; ++t) {
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
    const Groups groups(self);
    for (const Routing routing : {Routing::free, Routing::skewed, Routing::first_rank}) {
      const LayerRun r =
          run_layer(model_of(0, false), Precision::f32(), groups, DispatchKind::all_to_all, routing);
      std::vector<int32_t> arrive = rows_to_others(r.ids, self.rank(), kRanks);
      const int64_t sent = std::accumulate(arrive.begin(), arrive.end(), int64_t{0});
      const Tensor sums = Tensor::of(arrive.data(), {kRanks});
      groups.all->all_reduce(sums, sums).wait();
      const int64_t received = arrive[static_cast<size_t>(self.rank())];
      // Rows, weights and ids out, sums back; then the sums' cotangents out, those of rows and weights back.
      const int64_t floats = (kWidth + kTopK) * 4, counts = (kRanks - 1) * 4;
      const int64_t forward = counts + sent * (floats + kTopK * 4) + received * kWidth * 4;
      const int64_t backward = received * floats + sent * kWidth * 4;
      EXPECT_EQ(r.bytes, static_cast<double>(forward + backward)) << "routing " << static_cast<int>(routing);
      if (routing == Routing::first_rank) {  // experts 0 to 2
        EXPECT_EQ(sent, self.rank() < 2 ? kSentTokens : 2 * kSentTokens);
      }
    }
  });
}

/// Of every rank, the different ranks of each of its tokens' experts.
std::vector<std::vector<std::set<int>>> destinations(Communicator& group, std::vector<int32_t> ids) {
  const auto own = static_cast<int64_t>(ids.size()), ranks = static_cast<int64_t>(group.size());
  std::vector<int32_t> all(static_cast<size_t>(own * ranks));
  group.all_gather(Tensor::of(ids.data(), {own}), Tensor::of(all.data(), {own * ranks})).wait();
  std::vector<std::vector<std::set<int>>> to(static_cast<size_t>(ranks),
                                             std::vector<std::set<int>>(kSentTokens));
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] >= 0)
      to[i / static_cast<size_t>(own)][i % static_cast<size_t>(own) / kTopK].insert(
          static_cast<int>(all[i] / (kExperts / ranks)));
  return to;
}

/// Bytes of a hop in both passes: rows, weights and ids out, sums back; then the cotangents of the sums out,
/// of the others back.
double leg_bytes(int64_t sent, int64_t received, int64_t counts) {
  const int64_t floats = (kWidth + kTopK) * 4;
  return static_cast<double>(4 * counts + sent * (floats + kTopK * 4) + received * kWidth * 4 +
                             received * floats + sent * kWidth * 4);
}

TEST(Dispatchers, OverNodesATokenCrossesOncePerNode) {
  for (const Topology& t : {Topology{2, 2}, Topology{2, 4}, Topology{4, 2}})
    run_ranks(t.nodes * t.ranks, [&](ThreadRank& self) {
      const Groups groups(self, t.ranks);
      const int me = self.rank(), my_node = me / t.ranks, my_place = me % t.ranks;
      for (const Routing routing : {Routing::free, Routing::skewed, Routing::first_rank}) {
        const LayerRun r =
            run_layer(model_of(0, false), Precision::f32(), groups, DispatchKind::hierarchical, routing);
        const auto to = destinations(*groups.all, r.ids);
        int64_t across_out = 0, across_in = 0, inside_out = 0, inside_in = 0, copies = 0;
        for (int from = 0; from < self.ranks(); ++from)
          for (const std::set<int>& ranks : to[static_cast<size_t>(from)]) {
            std::set<int> nodes;
            for (const int rank : ranks) nodes.insert(rank / t.ranks);
            for (const int node : nodes) {
              if (node == from / t.ranks) continue;
              across_out += from == me;
              across_in += node == my_node && from % t.ranks == my_place;
            }
            for (const int rank : ranks) {
              copies += from == me && rank / t.ranks != my_node;  // that would cross without nodes
              if (rank / t.ranks != my_node || rank % t.ranks == from % t.ranks) continue;
              inside_out += from % t.ranks == my_place;
              inside_in += rank == me;
            }
          }
        EXPECT_EQ(r.bytes, 0);
        EXPECT_EQ(r.across, leg_bytes(across_out, across_in, t.nodes - 1));
        EXPECT_EQ(r.inside, leg_bytes(inside_out, inside_in, t.nodes * (t.ranks - 1)));
        EXPECT_LE(across_out, copies);
        if (routing == Routing::free) {
          EXPECT_LT(across_out, copies);
        }
      }
    });
}

/// What both passes of a layer send according to a dry run.
TapeProfile planned_bytes(int rank, const Groups& groups, const ModelConfig& model, DispatchKind kind) {
  ParameterTable table;
  const MoeLayer layer = make_layer(table, model);
  WeightSet weights(table, {.expert_size = 4, .expert_rank = rank}, Precision::f32(), Backing::nothing);
  GradientBuffer gradients(table, weights.placement(), DType::f32, Backing::nothing);
  CountingArena arena;
  TapeProfile profile;
  TapeOptions options{.device = DeviceKind::null, .sink = &gradients};
  options.profile = &profile;
  Tape tape(arena, options);
  Context c{.tape = tape, .weights = weights, .expert = groups.all.get()};
  c.expert_across = groups.across.get(), c.expert_inside = groups.inside.get(), c.dispatch = kind;
  const Value h = tape.leaf(Tensor(nullptr, {kSentTokens, kWidth}, DType::f32, DeviceKind::null), true);
  const Value y = layer.forward(c, h, {}, 0).y_TD;
  EXPECT_EQ(y.shape(), (Shape{kSentTokens, kWidth}));
  tape.seed(y, Tensor(nullptr, y.shape(), DType::f32, DeviceKind::null));
  Backward(tape).run();
  return profile;
}

/// How often no expert of a token, 3 of 8, is among the 4 of a node or the 2 of a rank: where it may choose
/// among all; one half of them, which is a node's; three quarters, of which a rank has one.
TEST(Dispatchers, APlanCountsTheExpectedBytes) {
  const double any_node = 4.0 / 8 * 3 / 7 * 2 / 6, any_rank = 6.0 / 8 * 5 / 7 * 4 / 6;
  const std::tuple<int64_t, int64_t, double, double> limits[] = {
      {1, 1, any_node, any_rank}, {2, 1, 0.5, 0.5}, {4, 3, 0.5 * 0.2, 0.25 + 0.75 * 0.2}};
  for (const auto& [all, kept, no_node, no_rank] : limits)
    run_ranks(4, [&](ThreadRank& self) {
      ModelConfig model = model_of(0, false);
      model.moe.groups = all, model.moe.groups_kept = kept;
      const Groups groups(self, 2);
      const double floats = (kWidth + kTopK) * 4;
      // Both ranks of a pair have tokens of two.
      double rows = kSentTokens * (1 - no_node) + 2 * kSentTokens * (1 - no_rank);
      TapeProfile p = planned_bytes(self.rank(), groups, model, DispatchKind::hierarchical);
      EXPECT_NEAR(p["exchange_rows"].wire_bytes, rows * (2 * floats + kTopK * 4) + 4 + 8, 1e-6);
      EXPECT_NEAR(p["return_rows"].wire_bytes, rows * 2 * kWidth * 4, 1e-6);
      rows = kSentTokens * 3 * (1 - no_rank);
      p = planned_bytes(self.rank(), groups, model, DispatchKind::all_to_all);
      EXPECT_NEAR(p["exchange_rows"].wire_bytes, rows * (2 * floats + kTopK * 4) + 12, 1e-6);
      EXPECT_NEAR(p["return_rows"].wire_bytes, rows * 2 * kWidth * 4, 1e-6);
    });
}

/// All tokens go to experts 0 to 2, of the first two of four ranks; the capacity is the balanced load, from
/// each rank 16 tokens with 18 choices. So the first rank gets 9 tokens with two choices each, the second
/// one 16.
TEST(Dispatchers, ChoicesBeyondTheCapacityAreDroppedOrAnError) {
  const ReceiveCapacity drop{.factor = 1, .drop = true};
  ModelConfig o = model_of(0, false);
  o.moe.normalize = false;  // a choice that is gone must not change the others' weights
  run_ranks(4, [&](ThreadRank& self) {
    const Groups groups(self, 2);
    std::vector<int32_t> kept = forced(Routing::first_rank, self.rank(), kTopK);
    for (size_t i = 0; i < kept.size(); ++i)
      if (i / kTopK >= (kept[i] < 2 ? 9u : 16u)) kept[i] = -1;
    for (const Precision& precision : {Precision::f64(), Precision::f32(), Precision::bf16()}) {
      const LayerRun bounded =
          run_layer(o, precision, groups, DispatchKind::all_to_all, Routing::first_rank, {drop});
      const LayerRun expected =
          run_layer(o, precision, groups, DispatchKind::all_to_all, Routing::first_rank, {.ids = kept});
      EXPECT_EQ(bounded.y, expected.y) << name_of(precision.compute);
      EXPECT_EQ(bounded.d_h, expected.d_h) << name_of(precision.compute);
      EXPECT_EQ(bounded.gradients, expected.gradients) << name_of(precision.compute);
      EXPECT_EQ(bounded.dropped, (24 - 9) * 2 + (24 - 16));
      const ReceiveCapacity roomy{.factor = 3, .drop = true};
      const LayerRun all =
          run_layer(o, precision, groups, DispatchKind::all_to_all, Routing::first_rank, {roomy});
      EXPECT_TRUE(all == run_layer(o, precision, groups, DispatchKind::all_to_all, Routing::first_rank));
      EXPECT_EQ(all.dropped, 0);
      const LayerRun nodes =
          run_layer(o, precision, groups, DispatchKind::hierarchical, Routing::first_rank, {drop});
      EXPECT_GT(nodes.dropped, 0);
    }
  });
  const auto message = [&](DispatchKind kind, const ReceiveCapacity& bound) -> std::string {
    try {
      run_ranks(4, [&](ThreadRank& self) {
        run_layer(o, Precision::f32(), Groups(self, 2), kind, Routing::first_rank, {bound});
      });
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message(DispatchKind::all_to_all, {.factor = 1}).find("gets 96 rows, its capacity is 64"),
            std::string::npos)
      << message(DispatchKind::all_to_all, {.factor = 1});
  const std::string choices = message(DispatchKind::all_to_all, {.factor = 2});
  EXPECT_NE(choices.find("192 choices came for the experts of this rank, which has a capacity of 144"),
            std::string::npos)
      << choices;
  EXPECT_NE(message(DispatchKind::all_gather, {.factor = 1}).find("it has no capacity"), std::string::npos);
}

/// Rows, sums and their cotangents are rounded once per hop; weights and ids are not. What is bf16 or f64
/// anyway keeps its bits.
TEST(Dispatchers, RowsCanBeSentInBf16) {
  run_ranks(4, [](ThreadRank& self) {
    const Groups groups(self, 2);
    for (const DispatchKind kind : {DispatchKind::all_to_all, DispatchKind::hierarchical})
      for (const Routing routing : {Routing::free, Routing::skewed}) {
        const auto run = [&](const Precision& precision, bool bf16) {
          return run_layer(model_of(0, false), precision, groups, kind, routing, {.bf16 = bf16});
        };
        for (const Precision& precision : {Precision::f64(), Precision::bf16()})
          EXPECT_TRUE(run(precision, true) == run(precision, false));
        const LayerRun wide = run(Precision::f32(), false), narrow = run(Precision::f32(), true);
        EXPECT_EQ(narrow.ids, wide.ids);
        EXPECT_LE(largest_difference(narrow.y, wide.y), 4 * 0x1p-8);
        EXPECT_LE(largest_difference(narrow.d_h, wide.d_h), 4 * 0x1p-8);
        EXPECT_NE(narrow.y, wide.y);
        // Each of a row's four transfers takes two bytes per channel; the rest is unchanged.
        const double rows =
            wide.bytes + wide.across + wide.inside - narrow.bytes - narrow.across - narrow.inside;
        EXPECT_GT(rows, 0.3 * (wide.bytes + wide.across + wide.inside));
        if (kind == DispatchKind::all_to_all) {
          std::vector<int32_t> arrive = rows_to_others(wide.ids, self.rank(), 4);
          const int64_t sent = std::accumulate(arrive.begin(), arrive.end(), int64_t{0});
          const Tensor sums = Tensor::of(arrive.data(), {4});
          groups.all->all_reduce(sums, sums).wait();
          EXPECT_EQ(rows,
                    static_cast<double>(2 * (sent + arrive[static_cast<size_t>(self.rank())]) * kWidth * 2));
        }
      }
    try {
      run_layer(model_of(0, false), Precision::f32(), groups, DispatchKind::all_gather, Routing::free,
                {.bf16 = true});
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("not in bf16"), std::string::npos) << e.what();
    }
  });
}

TEST(Dispatchers, ACapacityTakesLessMemory) {
  run_ranks(4, [](ThreadRank& self) {
    const Groups groups(self);
    int64_t peaks[2];
    for (const bool bounded : {false, true}) {
      ParameterTable table;
      const MoeLayer layer = make_layer(table, model_of(0, false));
      WeightSet weights(table, {.expert_size = 4, .expert_rank = self.rank()}, Precision::f32(),
                        Backing::nothing);
      CountingArena arena;
      Tape tape(arena, {.device = DeviceKind::null, .record = false});
      Context c{tape, weights};
      c.expert = groups.all.get();
      c.receive.factor = bounded ? 1 : 0;
      layer.forward(c, tape.leaf(Tensor(nullptr, {kSentTokens, kWidth}, DType::f32, DeviceKind::null)), {},
                    0);
      peaks[bounded] = arena.peak_bytes();
    }
    EXPECT_LT(static_cast<double>(peaks[1]),
              0.75 * static_cast<double>(peaks[0]));  // 16 of 24 rows from each rank
  });
}

TEST(Dispatchers, RanksWithUnequalTokensAreAnError) {
  try {
    run_ranks(2, [](ThreadRank& self) {
      const auto group = self.group("expert", {0, 1});
      const int64_t tokens = 2 + 4 * self.rank();
      const std::vector<float> x(static_cast<size_t>(tokens), 1.0f);
      const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0),
          sent = {static_cast<int32_t>(tokens), 0};
      HeapArena arena;
      Tape tape(arena, {.record = false});
      tape.begin_segment("test", -1);
      const Value rows = tape.leaf(Tensor::of(x.data(), {tokens, 1}));
      exchange_rows(tape, {group.get(), 2 * tokens}, rows, rows,
                    tape.leaf(Tensor::of(ids.data(), {tokens, 1})), tape.leaf(Tensor::of(sent.data(), {2})));
    });
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 0 of group 'expert' gets 8 rows, its capacity is 4"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace ingot::test::dispatch_ranks_test
