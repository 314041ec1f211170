// The bytes that ranks send, counted per axis at their communicators, equal the plan: the dry run where
// shapes are fixed (tensor, context, experts by all-gather, pipeline), the flat layout for gradients and
// shards, and the recorded routes of the step for the all-to-all of experts.
#include <gtest/gtest.h>

#include <set>

#include "comm/threads.h"
#include "models/stage_boundary.h"
#include "support/counting_communicator.h"
#include "support/layout_parity.h"

namespace ingot::test::traffic_ranks_test {

/// The groups of a rank, each counting.
class CountedGroups {
 public:
  explicit CountedGroups(World& world) : world_(world) {}
  GroupMaker maker() {
    return [this](std::string name, const std::vector<int>& members) {
      auto counting = std::make_unique<CountingCommunicator>(world_.group(name, members));
      counters_[name] = counting.get();
      return counting;
    };
  }
  void restart() {
    for (auto& [name, c] : counters_) c->bytes = 0;
  }
  double bytes(const std::string& name) const { return counters_.at(name)->bytes; }

 private:
  World& world_;
  std::map<std::string, CountingCommunicator*> counters_;
};

double sum_of(const TapeProfile& profile, std::initializer_list<const char*> ops) {
  double bytes = 0;
  for (const char* op : ops)
    if (const auto p = profile.find(op); p != profile.end()) bytes += p->second.wire_bytes;
  return bytes;
}

LayoutCase traffic_case(const char* model, const GridShape& grid, const RankOptions& options = {},
                        bool recompute = false) {
  return {.problem = {.model = model, .layers = 4, .recompute = recompute},
          .grid = grid,
          .options = options,
          .whole_batch = grid.pp == 1};
}

void each_rank(const LayoutCase& c,
               const std::function<void(LayoutRank&, CountedGroups&, const OneRank&, int)>& check) {
  const OneRank one(c.problem);
  run_ranks(Grid(c.grid).ranks(), [&](ThreadRank& self) {
    CountedGroups counted(self);
    LayoutRank rank(c, one, self.rank(), counted.maker());
    one.give_weights(rank.weights());
    check(rank, counted, one, self.rank());
  });
}

TEST(Traffic, OfFixedShapesIsTheDryRuns) {
  const RankOptions sequence{.sequence_parallel = true}, gather{.context = ContextForm::gather},
      ring{.context = ContextForm::ring}, mixed{.context = ContextForm::ring, .context_inner = 2},
      experts{.dispatch = DispatchKind::all_gather};
  for (const char* model : {"llama", "moe", "zaya"})
    for (const bool recompute : {false, true})
      for (const auto& [grid, options] : {std::pair{GridShape{.tp = 2}, RankOptions{}},
                                          {{.tp = 2}, sequence},
                                          {{.cp = 2}, {}},
                                          {{.cp = 2}, gather},
                                          {{.cp = 2}, ring},
                                          {{.cp = 4}, mixed},
                                          {{.dp = 2, .ep = 2}, experts},
                                          {{.cp = 2, .tp = 2}, ring},
                                          {{.pp = 2, .tp = 2}, sequence},
                                          {{.pp = 2, .cp = 2}, {}}}) {
        const LayoutCase c = traffic_case(model, grid, options, recompute);
        SCOPED_TRACE(c.name());
        each_rank(c, [&](LayoutRank& rank, CountedGroups& counted, const OneRank& one, int) {
          const TapeProfile plan = rank.profile(one.inputs);
          rank.passes(one.inputs);  // with the dry run, which sends nothing
          const double gathers = sum_of(plan, {"all_gather_rows", "reduce_scatter_rows"});
          const bool of_experts = options.dispatch == DispatchKind::all_gather;
          EXPECT_EQ(counted.bytes("tensor"),
                    sum_of(plan, {"copy_to_axis", "reduce_from_axis", "merge_vocabulary"}) +
                        (of_experts ? 0 : gathers));
          EXPECT_EQ(counted.bytes("context"), sum_of(plan, {"with_halo", "without_halo"}));
          EXPECT_EQ(counted.bytes("context inner"), sum_of(plan, {"rows_to_heads", "heads_to_rows"}));
          EXPECT_EQ(counted.bytes("context outer"), sum_of(plan, {"context_attention"}));
          if (of_experts) {
            EXPECT_EQ(counted.bytes("expert"), gathers);
          }
          if (grid.tp > 1) {
            EXPECT_GT(counted.bytes("tensor"), 0);
          }
          if (grid.cp > 1) {
            EXPECT_EQ(counted.bytes("context inner") > 0,
                      options.context == ContextForm::heads || options.context_inner > 1);
            EXPECT_EQ(counted.bytes("context outer") > 0, options.context != ContextForm::heads);
          }
        });
      }
}

TEST(Traffic, OfAPipelineIsItsLiveValues) {
  for (const char* model : {"llama", "zaya", "record", "mtp"})
    for (const int chunks : {1, 2}) {
      LayoutCase c = traffic_case(model, {.pp = 2, .dp = 2});
      c.problem.layers = model == std::string("record") ? 0 : 4;
      c.chunks = chunks;
      if (chunks > 1) c.schedule = PipelineScheduleKind::interleaved;
      const bool ahead = model == std::string("mtp");
      if (ahead) c.layout = chunks > 1 ? "Et|tt|tm|mL" : "E,t*4,mm|L";
      SCOPED_TRACE(c.name());
      each_rank(c, [&](LayoutRank& rank, CountedGroups& counted, const OneRank& one, int) {
        rank.passes(one.inputs);
        const PipelineLayout& layout = rank.pipe().layout();
        const auto stages = static_cast<int>(layout.stages.size());
        const StageBoundaries& boundaries =
            one.decoder.boundaries(Precision::f64(), one.decoder.config().mtp.depths);
        const auto sent_to = [&](int stage) {  // per micro-batch
          const StageParts& parts = layout.stages[static_cast<size_t>(stage)];
          double bytes = 0;
          for (const TensorMeta& m : boundaries.at(position_before(parts)).metas(kParityLength))
            bytes += static_cast<double>(m.bytes());
          return bytes;
        };
        if (ahead) {  // hidden states of three heads, or of two and the stream
          EXPECT_EQ(sent_to(stages - 1),
                    3.0 * kParityLength * static_cast<double>(one.decoder.config().width) * 8);
        }
        double forward = 0, backward = 0;
        for (int stage = rank.pipe().stage(); stage < stages; stage += 2) {
          if (stage + 1 < stages) forward += sent_to(stage + 1);
          if (stage > 0) backward += sent_to(stage);
        }
        const auto micro_batches = static_cast<double>(rank.share());
        EXPECT_EQ(counted.bytes("pipeline forward"), micro_batches * forward);
        EXPECT_EQ(counted.bytes("pipeline backward"), micro_batches * backward);
      });
    }
}

TEST(Traffic, OfGradientsAndSharesIsTheFlatLayouts) {
  for (const char* model : {"llama", "zaya"})
    for (const GridShape& grid : {GridShape{.dp = 2}, GridShape{.dp = 4, .ep = 2},
                                  GridShape{.dp = 2, .cp = 2}, GridShape{.dp = 2, .tp = 2}})
      for (const ShardLevel level : {ShardLevel::none, ShardLevel::optimizer, ShardLevel::full}) {
        const bool shared = level != ShardLevel::none;
        const LayoutCase c = traffic_case(
            model, grid,
            {.shards = {.level = level,
                        .buckets = shared ? FlatBuckets::layer_group : FlatBuckets::tensor_group}});
        SCOPED_TRACE(c.name());
        each_rank(c, [&](LayoutRank& rank, CountedGroups& counted, const OneRank& one, int) {
          rank.passes(one.inputs);
          counted.restart();
          rank.reduce();
          double dense = 0, experts = 0;  // bytes of the flat buffer, planned without one
          for (const FlatBucket& u :
               flat_layout(one.decoder.table(), rank.placement(), DType::f64, true).buckets)
            (u.group == FlatGroup::experts ? experts : dense) += static_cast<double>(u.end - u.begin);
          const auto share = [](const Communicator& g) { return (g.size() - 1.0) / g.size(); };
          const double data = share(rank.groups().data()) * dense,
                       copies = share(rank.groups().expert_data()) * experts;
          EXPECT_EQ(counted.bytes(shared ? "shard" : "data"), (shared ? 1 : 2) * data);
          EXPECT_EQ(counted.bytes(shared ? "expert shard" : "expert data"), (shared ? 1 : 2) * copies);
          if (level != ShardLevel::optimizer) return;  // with full, weights are gathered when they are read
          counted.restart();
          rank.weights_moved();
          EXPECT_EQ(counted.bytes("shard"), data);
          EXPECT_EQ(counted.bytes("expert shard"), copies);
        });
      }
}

/// Full sharding in a pipeline: weights are gathered as the table reads them, a bucket is reduced once per
/// tape that uses it, and both stages sum the shards of parameters that they both hold.
TEST(Traffic, OfAFullyShardedPipelineFollowsTheTables) {
  using enum PipelineScheduleKind;
  const RankOptions full{.shards = {.level = ShardLevel::full, .buckets = FlatBuckets::layer_group}};
  for (const char* model : {"llama", "gpt2", "moe", "zaya"})
    for (const auto& [kind, chunks] :
         {std::pair{one_forward_one_backward, 1}, {zero_bubble, 1}, {interleaved, 2}}) {
      LayoutCase c = traffic_case(model, {.pp = 2, .dp = 2}, full);
      c.problem.rows = 8, c.chunks = chunks, c.schedule = kind;
      SCOPED_TRACE(c.name());
      each_rank(c, [&](LayoutRank& rank, CountedGroups& counted, const OneRank& one, int) {
        const ParameterTable& table = one.decoder.table();
        rank.passes(one.inputs, true);
        rank.reduce();
        const WeightGatherer::Plan plan = rank.unit_plan();
        EXPECT_EQ(rank.gatherer()->gathers(), plan.gathers);
        EXPECT_EQ(rank.gatherer()->peak_bytes(), plan.peak_bytes);
        double dense = 0, experts = 0, copies = 0;
        const FlatLayout& layout = rank.weights().layout();
        for (size_t u = 0; u < layout.buckets.size(); ++u) {
          const FlatBucket& unit = layout.buckets[u];
          const auto bytes = static_cast<double>(unit.end - unit.begin);
          double tapes = 0;
          for (int chunk = 0; chunk < chunks; ++chunk)
            tapes += std::any_of(unit.parameters.begin(), unit.parameters.end(),
                                 [&](int i) { return rank.pipe().uses(chunk, table[i]); });
          (unit.group == FlatGroup::experts ? experts : dense) +=
              (static_cast<double>(plan.gathers[u]) + tapes * static_cast<double>(rank.share())) * bytes / 2;
          if (unit.parameters.size() == 1 && rank.pipe().held_by_other_stages(unit.parameters[0]))
            copies += bytes / 2;
        }
        EXPECT_EQ(counted.bytes("shard"), dense);
        EXPECT_EQ(counted.bytes("expert shard"), experts);
        EXPECT_EQ(copies > 0, one.decoder.config().tied);
        if (copies > 0) {
          EXPECT_EQ(counted.bytes("pipeline copies of embed.weight"), copies);
        }
        if (kind != one_forward_one_backward || model != std::string("llama")) return;
        // By hand, of four micro-batches: what the last pass left or announced is not brought again.
        std::map<int64_t, int64_t> times;
        for (size_t u = 0; u < layout.buckets.size(); ++u)
          if (layout.buckets[u].end > layout.buckets[u].begin)
            times[layout.buckets[u].layer_group] = plan.gathers[u];
        using Times = std::map<int64_t, int64_t>;
        EXPECT_EQ(times, rank.pipe().stage() == 0 ? (Times{{kEmbeddingGroup, 3}, {0, 1}, {1, 4}})
                                                  : (Times{{2, 5}, {3, 1}, {INT64_MAX, 4}}));
      });
    }
}

/// How many rows a rank sends to each rank of its expert group: a token once to every other rank with one of
/// its experts.
std::vector<int64_t> rows_to(const ParityOutcome& o, const MoeConfig& moe, const RankGroups& groups) {
  const int n = groups.expert().size(), copies = groups.placement().expert_tensor_size;
  const int64_t each = moe.experts / (n / copies);
  std::vector<int64_t> rows(static_cast<size_t>(n), 0);
  for (const auto& [layer, ids] : o.ids)
    for (size_t t = 0; t < ids.size(); t += static_cast<size_t>(moe.top_k)) {
      std::set<int64_t> to;
      for (size_t j = t; j < t + static_cast<size_t>(moe.top_k); ++j)
        for (int copy = 0; copy < copies && ids[j] >= 0; ++copy) to.insert(ids[j] / each * copies + copy);
      for (const int64_t r : to) rows[static_cast<size_t>(r)] += r != groups.expert().rank();
    }
  return rows;
}

TEST(Traffic, OfTheAllToAllIsThatOfTheRecordedRoutes) {
  const RankOptions sequence{.sequence_parallel = true};
  for (const char* model : {"moe", "zaya"})
    for (const auto& [grid, options] : {std::pair{GridShape{.dp = 2, .ep = 2}, RankOptions{}},
                                        {{.dp = 4, .ep = 4}, {}},
                                        {{.dp = 4, .ep = 2, .etp = 2}, {}},
                                        {{.dp = 2, .tp = 2, .ep = 4, .etp = 1}, sequence},
                                        {{.pp = 2, .dp = 2, .ep = 2}, {}}}) {
      const LayoutCase c = traffic_case(model, grid, options);
      SCOPED_TRACE(c.name());
      each_rank(c, [&](LayoutRank& rank, CountedGroups& counted, const OneRank& one, int) {
        const MoeConfig& moe = one.decoder.config().moe;
        const ParityOutcome o = rank.passes(one.inputs);
        const double bytes = counted.bytes("expert");
        std::vector<int64_t> rows = rows_to(o, moe, rank.groups());
        Array arrive(rows.begin(), rows.end());
        double sent = 0;
        for (const double n : arrive) sent += n;
        all_reduce(rank.groups().expert(), arrive);
        const double received = arrive[static_cast<size_t>(rank.groups().expert().rank())];
        const double width = 8.0 * static_cast<double>(one.decoder.config().width),
                     k = static_cast<double>(moe.top_k);
        const double exchanges =
            static_cast<double>(o.ids.size()) * static_cast<double>(rank.share() / rank.micro_rows());
        // Counts; rows, weights and ids out, sums back; then cotangents of sums out, of rows and weights
        // back.
        const double forward =
            exchanges * 4 * (rank.groups().expert().size() - 1) + sent * (width + 12 * k) + received * width;
        EXPECT_EQ(bytes, forward + received * (width + 8 * k) + sent * width);
        EXPECT_GT(sent + received, 0);
      });
    }
}

}  // namespace ingot::test::traffic_ranks_test
