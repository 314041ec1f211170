// See run_time.h.
#include "plan/run_time.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "measure/rank_drift.h"
#include "nn/parameter.h"
#include "plan/op_cost.h"
#include "report/table.h"
#include "train/phase_kind.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

/// Which collective an op is, for the fabric.
CommKind kind_of_op(const std::string& op) {
  if (op.find("exchange") != std::string::npos || op.find("return_rows") != std::string::npos ||
      op.find("heads") != std::string::npos)
    return CommKind::all_to_all;
  if (op.find("gather") != std::string::npos) return CommKind::all_gather;
  if (op.find("scatter") != std::string::npos) return CommKind::reduce_scatter;
  return CommKind::all_reduce;
}

/// A buffer of which a rank sends `wire` bytes in a collective.
double buffer_of(CommKind kind, double wire, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  return kind == CommKind::all_reduce ? wire / (2 * share) : wire / share;
}

/// What a layer group of a fully sharded rank exchanges in a pass, in seconds.
struct Gathered {
  double gather = 0, reduce = 0;
};
using GatheredLayers = std::map<int64_t, Gathered>;  ///< empty: weights are not sharded

/// The exchanges of a fully sharded pass, as WeightGatherer and the gradient reducer make them: the weights
/// of a layer group are gathered while the one before runs, its gradients reduced when backward leaves it. So
/// the first gather and the last reduction of a step have nothing to hide behind.
class Gathers {
 public:
  Gathers(const PassProgram& program, WorkKind kind, const GatheredLayers& layers, bool alone, int channel,
          TimedProgram& out)
      : channel_(channel), alone_(alone), out_(out) {
    if (layers.empty()) return;
    Gathered mean;  // of layers, for those of stages that share the program of one that is alike
    double numbered = 0;
    for (const auto& [group, seconds] : layers)
      if (group != depth_of_layer_group(kEmbeddingGroup) && group != depth_of_layer_group(kHeadGroup))
        mean.gather += seconds.gather, mean.reduce += seconds.reduce, ++numbered;
    const double share = numbered > 0 ? 1 / numbered : 0;
    mean = {share * mean.gather, share * mean.reduce};
    for (const PassStep& s : program) {
      if (s.layer_group == kNoLayerGroup || (!order_.empty() && order_.back().first == s.layer_group))
        continue;
      const auto found = layers.find(s.layer_group);
      Gathered of = found != layers.end() ? found->second : mean;
      // Backward finds what forward read last.
      const bool held = alone && kind != WorkKind::forward && order_.size() < 2;
      if (kind == WorkKind::backward_weight || held) of.gather = 0;
      if (kind == WorkKind::forward || kind == WorkKind::backward_input) of.reduce = 0;
      order_.emplace_back(s.layer_group, of);
    }
  }
  /// Before a step of this layer group.
  void reach(int64_t group) {
    if (at_ >= order_.size() || group == kNoLayerGroup || group != order_[at_].first) return;
    const int handle = kFirst + static_cast<int>(at_);
    if (at_ == 0)
      transfer(order_[0].second.gather, alone_ ? -1 : kFirst);
    else
      wait(handle), transfer(order_[at_ - 1].second.reduce, kFirst - static_cast<int>(at_));
    if (++at_ < order_.size()) transfer(order_[at_].second.gather, handle + 1);
  }
  void end() {
    if (order_.empty()) return;
    // Beside the next pass, where there is one; that of the step's last pass is a part of its end.
    transfer(order_.back().second.reduce, alone_ ? -1 : kFirst - static_cast<int>(order_.size()));
    wait(kFirst);
  }

 private:
  static constexpr int kFirst = 1 << 29;
  void transfer(double seconds, int handle) {
    if (seconds > 0) out_.push_back({PassStep::Kind::transfer, TimeOf::exchanges, seconds, channel_, handle});
  }
  void wait(int handle) { out_.push_back({PassStep::Kind::wait, TimeOf::exchanges, 0, channel_, handle}); }

  const int channel_;
  const bool alone_;
  TimedProgram& out_;
  std::vector<std::pair<int64_t, Gathered>> order_;  ///< layer groups
  size_t at_ = 0;
};

/// How a rank's passes of a micro-batch are divided by meetings with other ranks.
struct Meetings {
  double kernels = 0;  ///< seconds
  int64_t count = 0;
  void add(const TimedProgram& program) {
    for (const TimedStep& s : program) {
      if (s.kind == PassStep::Kind::compute) kernels += s.seconds;
      if (s.kind == PassStep::Kind::transfer && s.seconds > 0) ++count;
    }
  }
  /// Of so many micro-batches: the seconds from the last meeting of a step's passes to the next step's first,
  /// without the update.
  double apart(int64_t micro_batches) const {
    return count > 0 ? kernels / static_cast<double>(count) : static_cast<double>(micro_batches) * kernels;
  }
};

/// Times what ranks do, and counts how good the numbers are that it follows from.
class Timer {
 public:
  Timer(const Cluster& cluster, const TimeFor& what, RunTime& out)
      : cluster_(cluster), fabric_(cluster, what.degraded), costs_(cluster, what.type), out_(out) {}

  /// `alone`: no pass before the first one and none beside it could gather for it.
  TimedProgram timed(const PassProgram& program, WorkKind kind,
                     const std::map<std::string, GroupShape>& groups, const GatheredLayers& layers,
                     bool alone) {
    TimedProgram result;
    Gathers gathers(program, kind, layers, alone, channel("data"), result);
    double apart = 0;  // seconds since the ranks met
    for (const PassStep& s : program) {
      gathers.reach(s.layer_group);
      if (s.kind == PassStep::Kind::wait) {
        result.push_back({s.kind, s.what, 0, 0, s.handle});
        continue;
      }
      if (s.kind == PassStep::Kind::transfer) {
        const auto group = groups.find(s.group);
        const CommKind kind = kind_of_op(s.op);
        double seconds = 0;
        if (group != groups.end() && group->second.ranks > 1) {
          seconds = collective(kind, group->second, buffer_of(kind, s.wire_bytes, group->second.ranks)) +
                    wait(group->second.ranks, apart);
          apart = 0;
        }
        result.push_back({s.kind, TimeOf::exchanges, seconds, channel(s.group), s.handle});
        // Ops that compute around their exchange.
        if (s.flops == 0) continue;
      }
      const OpTime t = costs_.time_of(s);
      count(t.seconds, t.quality);
      kernels_ += t.seconds, launches_ += 1e-6 * cluster_.device.launch_us;
      out_.launch_share = launches_ / kernels_;
      apart += t.seconds;
      result.push_back({PassStep::Kind::compute, s.what == TimeOf::exchanges ? TimeOf::kernels : s.what,
                        t.seconds, 0, -1});
    }
    gathers.end();
    return result;
  }

  /// Sums of gradients, update and exchange of weights of a rank. `apart`: seconds of passes from their last
  /// meeting to the first of the next step.
  StepEnd end_of(const PaperRank& rank, const GatheredLayers& layers, bool alone, double apart) {
    StepEnd end;
    // Backward ends with the first layer group, whose gradients have nothing to hide behind.
    if (!layers.empty() && !alone) end.buckets.push_back(layers.begin()->second.reduce);
    const TrainEngine& engine = rank.engine();
    const ShardLevel level = engine.recipe().parallel.shard;
    for (const FlatBucket& b : engine.gradients().layout().buckets) {
      Communicator& data = rank.groups().data_group(b.group);
      if (data.size() == 1 || level == ShardLevel::full) continue;
      const GroupShape shape = shape_of_group(data, rank.groups().grid(), cluster_);
      const auto bytes = static_cast<double>(b.end - b.begin);
      const CommKind kind = level == ShardLevel::none ? CommKind::all_reduce : CommKind::reduce_scatter;
      // A rank reduces a large bucket in parts, which are as long as the recipe's bucket
      // (parallel/reduction_parts.h).
      const double part = std::max(1.0, static_cast<double>(rank.groups().options().shards.bucket_bytes));
      for (double left = bytes; left > 0; left -= part)
        end.buckets.push_back(collective(kind, shape, std::min(left, part)));
      if (level == ShardLevel::optimizer)
        end.exchange += fabric_.collective(CommKind::all_gather, shape, bytes / 2).seconds;
    }
    const OpTime update = costs_.time_of(update_cost(engine.optimizer()));
    end.update = update.seconds;
    if (const int ranks = rank.groups().data().size(); ranks > 1 && !end.buckets.empty())
      end.buckets.back() += wait(ranks, apart + end.update);
    for (const UpdateGather& g : update_gathers(engine.optimizer()))
      end.exchange +=
          collective(CommKind::all_gather, shape_of_group(*g.ranks, rank.groups().grid(), cluster_), g.bytes);
    end.channel = channel("data");
    count(update.seconds, update.quality);
    return end;
  }

  /// Full sharding: seconds by layer group.
  GatheredLayers gathered_layers(const PaperRank& rank) {
    GatheredLayers layers;
    if (rank.engine().recipe().parallel.shard != ShardLevel::full) return layers;
    const auto seconds = [&](CommKind kind, FlatGroup group, double bytes) {
      const Communicator& ranks = rank.groups().shard_group(group);
      const double fresh = 1e9 * cluster_.device.fresh_gb_per_s;  // what is gathered or summed is given back
      return collective(kind, shape_of_group(ranks, rank.groups().grid(), cluster_), bytes) +
             (fresh > 0 ? bytes / fresh : 0);
    };
    const WeightSet& weights = rank.engine().model().weights();
    const std::vector<FlatBucket>& held = weights.layout().buckets;
    for (size_t b = 0; b < held.size(); ++b)
      layers[held[b].layer_group].gather +=
          seconds(CommKind::all_gather, held[b].group,
                  static_cast<double>(weights.gather_tensor(static_cast<int>(b)).bytes()));
    for (const FlatBucket& b : rank.engine().gradients().layout().buckets)
      layers[b.layer_group].reduce +=
          seconds(CommKind::reduce_scatter, b.group, static_cast<double>(b.end - b.begin));
    const int64_t embedding = depth_of_layer_group(kEmbeddingGroup);
    if (rank.engine().model().config().tied && layers.count(embedding) > 0)  // the head reads it once more
      layers[depth_of_layer_group(kHeadGroup)].gather += layers[embedding].gather;
    return layers;
  }

  double message(const PaperRank& rank, int64_t bytes) {
    const Grid& grid = rank.groups().grid();
    const int stride = grid.ranks() / grid.size(GridAxis::pp);
    const int64_t domain = usable_domain(grid, cluster_);
    return fabric_.message(domain > 0 && stride >= domain, static_cast<double>(bytes)).seconds;
  }

  int channel(const std::string& group) {
    const auto at = std::find(out_.channels.begin(), out_.channels.end(), group) - out_.channels.begin();
    if (at == std::ssize(out_.channels)) out_.channels.push_back(group);
    return static_cast<int>(at);
  }

 private:
  void count(double seconds, Quality quality) {
    out_.seconds_by_quality[static_cast<size_t>(quality)] += seconds;
  }
  /// Of a mean rank for the last of its group, after so many seconds of work.
  double wait(int ranks, double apart) {
    const auto [after_a_second, is_new] = waits_.try_emplace(ranks);
    if (is_new) after_a_second->second = expected_wait(1e-3 * cluster_.device.drift_ms, ranks, 1);
    return after_a_second->second * std::sqrt(apart);
  }
  double collective(CommKind kind, const GroupShape& group, double bytes) {
    const LinkTime t = fabric_.collective(kind, group, bytes);
    count(t.seconds, t.quality);
    return t.seconds;
  }

  const Cluster& cluster_;
  Fabric fabric_;
  OpCostModel costs_;
  RunTime& out_;
  std::map<int, double> waits_;  ///< after a second of work, by ranks
  double kernels_ = 0, launches_ = 0;
};

}  // namespace

RunTime time_stages(const std::vector<StageRank>& stages, size_t phase, int64_t micro_batches,
                    const Cluster& cluster, const TimeFor& what, bool extends) {
  const PaperRank& one = *stages.front().rank;
  const Recipe& recipe = one.engine().recipe();
  const PhaseConfig& s = recipe.phases[phase];
  RunTime out;
  Timer timer(cluster, what, out);
  timer.channel("data");
  StepInput input;
  const auto count = static_cast<int>(stages.size());
  const auto chunks = static_cast<int>(stages.front().program->chunks.size());
  input.slow.assign(stages.size(), 1);
  for (const auto& [position, factor] : what.slow)
    if (position >= 0 && position < count) input.slow[static_cast<size_t>(position)] = factor;
  input.ends.resize(stages.size());
  input.stages.resize(static_cast<size_t>(count * chunks));
  input.message = timer.message(one, one.engine().boundary_bytes(phase));
  const bool alone = count == 1 && chunks == 1 && micro_batches == 1;
  for (int stage = 0; stage < count; ++stage) {
    const auto& [rank, program] = stages[static_cast<size_t>(stage)];
    const auto at = [&](int of, int chunk) -> TimedStage& {
      return input.stages[static_cast<size_t>(chunk * count + of)];
    };
    const auto first = std::find(stages.begin(), stages.end(), stages[static_cast<size_t>(stage)]);
    StepEnd& end = input.ends[static_cast<size_t>(stage)];
    if (const auto alike = static_cast<int>(first - stages.begin()); alike < stage) {
      for (int c = 0; c < chunks; ++c) at(stage, c) = at(alike, c);
      end = input.ends[static_cast<size_t>(alike)];
      continue;
    }
    const GatheredLayers layers = timer.gathered_layers(*rank);
    Meetings meetings;
    for (int c = 0; c < chunks; ++c)
      for (size_t k = 0; k < kWorkKinds; ++k) {
        at(stage, c)[k] = timer.timed(program->chunks[static_cast<size_t>(c)][k], static_cast<WorkKind>(k),
                                      program->groups, layers, alone);
        meetings.add(at(stage, c)[k]);
      }
    end = timer.end_of(*rank, layers, alone, meetings.apart(micro_batches));
  }
  input.channels = out.channels;
  input.beside = cluster.device.rate_beside_transfers;
  input.ranks_per_core = cluster.device.ranks_per_core;
  input.traces = what.traces;
  const auto simulate = [&](int64_t m) {
    input.schedule = make_pipeline_schedule(recipe.parallel.schedule, {count, chunks, static_cast<int>(m)});
    return simulate_step(input);
  };
  // It repeats itself once the others wait for the rank with the most work, which they may be ahead of first.
  for (int64_t rounds = 6;; rounds *= 2) {
    const int64_t some = rounds * count + micro_batches % count;
    const bool all = !extends || micro_batches <= some + count;
    out.step = simulate(all ? micro_batches : some + count);
    if (all) break;
    const StepTime before = simulate(some);
    const double further = out.step.seconds - before.seconds;
    double most = 0;
    for (size_t r = 0; r < stages.size(); ++r)
      most = std::max(most, out.step.ranks[r].work() - before.ranks[r].work());
    if (most > 1.001 * further) continue;
    out.step.seconds += static_cast<double>((micro_batches - some - count) / count) * further;
    break;
  }
  const auto tokens = static_cast<double>(micro_batches * micro_rows(s, 0, recipe.data_ranks()) *
                                          recipe.data_ranks() * s.sequence);
  out.tokens_per_second = tokens / out.step.seconds / one.groups().grid().ranks();
  return out;
}

double least_seconds(const std::vector<const RankProgram*>& stages, const Cluster& cluster,
                     const TimeFor& what, bool merged) {
  RunTime counted;
  Timer timer(cluster, what, counted);
  double kernels = 0, waits = 0;
  std::map<int, double> channels;
  for (const RankProgram* stage : stages)
    for (const StagePrograms& chunk : stage->chunks)
      for (const PassProgram& pass : chunk)
        for (const TimedStep& s : timer.timed(pass, WorkKind::forward, stage->groups, {}, false)) {
          (s.kind == PassStep::Kind::compute ? kernels : channels[s.channel]) += s.seconds;
          if (s.kind == PassStep::Kind::transfer && s.handle < 0) waits += s.seconds;
        }
  double least = merged ? kernels : kernels + waits;
  for (const auto& [channel, seconds] : channels) least = std::max(least, seconds);
  return least;
}

double gather_seconds(const PaperRank& rank, const Cluster& cluster, const TimeFor& what) {
  RunTime counted;
  double seconds = 0, held = 0;
  for (const auto& [group, of] : Timer(cluster, what, counted).gathered_layers(rank))
    if (group != depth_of_layer_group(kEmbeddingGroup) && group != depth_of_layer_group(kHeadGroup))
      seconds += 2 * of.gather + of.reduce, held = std::max(held, of.gather);
  return seconds - held;  // forward and backward gather, but backward may find the last layer
}

RunTime time_run(const RunPlan& plan, const Cluster& cluster, const TimeFor& what) {
  if (cluster.devices > 0 && plan.what.ranks > cluster.devices)
    throw Error(fmt::format("the plan has {} ranks, cluster '{}' {} devices", plan.what.ranks, cluster.name,
                            cluster.devices),
                fmt::format("plan --ranks {}, or name a larger cluster", cluster.devices));
  const Recipe& recipe = plan.recipe;
  size_t phase = 0;
  while (recipe.phases[phase].name != plan.classes.front().plan.phase) ++phase;
  std::deque<PaperRank> ranks;
  std::deque<RankProgram> programs;
  std::vector<StageRank> stages;
  int64_t micro_batches = 1;
  while (std::ssize(stages) < recipe.parallel.pipeline) {
    // Of the ranks of a stage, those with the most parameters.
    const RankClass* most = nullptr;
    for (const RankClass& c : plan.classes)
      if (c.plan.stage == std::ssize(stages) &&
          (most == nullptr || c.plan.memory.state() > most->plan.memory.state()))
        most = &c;
    INGOT_CHECK(most != nullptr, "no rank has stage {}", stages.size());
    const PaperRank& rank = ranks.emplace_back(recipe, plan.what, most->ranks.front());
    stages.push_back({&rank, &programs.emplace_back(record_program(rank, phase, cluster))});
    micro_batches = most->plan.micro_batches;
  }
  RunTime out = time_stages(stages, phase, micro_batches, cluster, what);
  const double seconds = out.step.seconds * plan.what.ranks;
  out.tokens_per_second = static_cast<double>(plan.tokens()) / seconds;
  out.model_tflops = plan.model_flops / seconds * 1e-12;
  out.utilisation = plan.model_flops / seconds / OpCostModel(cluster, what.type).peak();
  return out;
}

std::string describe_fit(const RunPlan& plan, const Cluster& cluster) {
  const RankClass& most = plan.fullest();
  const int64_t needed = most.plan.memory.on_device(), has = cluster.device_bytes();
  const auto amount = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  return named_line("device", fmt::format("rank {} needs {}, a device of '{}' has {}: it {}",
                                          most.ranks.front(), amount(needed), cluster.name, amount(has),
                                          needed <= has ? "fits"
                                                        : fmt::format("does not fit, {} are missing",
                                                                      amount(needed - has))));
}

std::vector<std::pair<std::string, double>> purposes_of(const RunTime& t) {
  const RankTime& r = t.step.ranks[static_cast<size_t>(t.step.critical)];
  std::vector<std::pair<std::string, double>> purposes;
  for (size_t i = 0; i < r.busy.size(); ++i)
    purposes.emplace_back(name_of(static_cast<TimeOf>(i)), r.busy[i]);
  for (const auto& [channel, seconds] : r.exposed)
    purposes.emplace_back("waits for " + channel + " ranks", seconds);
  purposes.emplace_back("waits for other stages", r.bubble);
  return purposes;
}

std::string to_text(const RunTime& t) {
  std::string text =
      named_line("time",
                 fmt::format("{} a step; {:.0f} tokens/s, {:.1f} TFLOP/s of the model and {:.1f} % of the "
                             "dense peak a device",
                             format_seconds(t.step.seconds), t.tokens_per_second, t.model_tflops,
                             100 * t.utilisation)) +
      fmt::format("  of a rank of stage {}, whose passes end last:\n", t.step.critical);
  for (const auto& [name, seconds] : purposes_of(t))
    if (seconds > 0)
      text +=
          fmt::format("    {:<26} {:>10.4f} s {:>6.1f} %\n", name, seconds, 100 * seconds / t.step.seconds);
  const auto& [described, published, measured] = t.seconds_by_quality;
  if (const double all = described + published + measured; all > 0)
    text += named_line("times from",
                       fmt::format("{:.0f} % measured, {:.0f} % published, {:.0f} % described",
                                   100 * measured / all, 100 * published / all, 100 * described / all));
  return text;
}

std::string to_json(const RunTime& t) {
  Json ranks = Json::array();
  for (const RankTime& r : t.step.ranks) {
    Json busy = Json::object();
    for (int i = 0; i < kTimesOf; ++i) busy[name_of(static_cast<TimeOf>(i))] = r.busy[static_cast<size_t>(i)];
    ranks.push_back({{"busy", busy}, {"exposed", r.exposed}, {"bubble", r.bubble}, {"live", r.live}});
  }
  return Json{{"step_seconds", t.step.seconds},
              {"tokens_per_second_per_device", t.tokens_per_second},
              {"model_tflops_per_device", t.model_tflops},
              {"utilisation", t.utilisation},
              {"critical_stage", t.step.critical},
              {"stages", ranks}}
      .dump(2);
}

}  // namespace ingot
