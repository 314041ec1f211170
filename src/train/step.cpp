// See step.h.
#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ops/reference.h"
#include "train/objective.h"
#include "train/rank_stats.h"

namespace ingot {

MicroBatch micro_batch(const data::Batch& batch, int64_t first, int64_t rows, std::span<const LookAhead> ahead) {
  const int64_t begin = first * batch.sequence_length, count = rows * batch.sequence_length;
  MicroBatch m;
  m.rows.count = count;
  for (const data::Span& s : batch.spans)
    if (s.begin >= begin && s.begin < begin + count) m.rows.spans.push_back({s.begin - begin, s.end - s.begin, 0, nullptr, s.begin % batch.sequence_length});
  m.ids = Tensor::of(batch.tokens.data() + begin, {count});
  m.targets = Tensor::of(batch.targets.data() + begin, {count});
  m.positions = Tensor::of(batch.positions.data() + begin, {count});
  for (const LookAhead& a : ahead)
    m.ahead.push_back({Tensor::of(a.ids.data() + begin, {count}), Tensor::of(a.targets.data() + begin, {count}), a.weight});
  return m;
}

std::vector<ParamView> optimizer_views(const WeightSet& w, const GradientBuffer& gradients, const RankGroups* groups,
                                       const Shards* shards) {
  std::vector<ParamView> params;
  for (int i = 0; i < w.size(); ++i) {
    const ParameterSpec& spec = w.table()[i];
    if (!spec.trainable || !holds(w.placement(), spec)) continue;
    ParamView p;
    p.name = spec.name;
    p.shape = w.master(i).shape();
    p.matrices = spec.matrices > 1 ? p.shape[0] : 1;
    p.row_splits = local_row_splits(spec, w.placement());
    p.width_multiple = spec.width_multiple;
    if (shards != nullptr) {
      p.shards = &shards->of(i);
      const auto r = static_cast<size_t>(p.shards->group->rank());
      p.begin = p.shards->begins[r];
      p.count = p.shards->begins[r + 1] - p.begin;
    }
    if (groups != nullptr && groups->tensor().size() > 1 && spec.shard.axis == ShardAxis::tensor)
      p.cut = {&groups->tensor(), spec.shard.dim == spec.shape.rank() - 1 ? 1 : 0};
    p.master = w.master(i).as<float>() + p.begin;
    p.grad = gradients.gradient(i).as<float>() + p.begin;
    if (w.has_copy(i)) {
      p.compute_dtype = w.compute(i).dtype();
      p.compute = static_cast<std::byte*>(w.compute(i).data) + p.begin * size_of(p.compute_dtype);
    }
    params.push_back(std::move(p));
  }
  return params;
}

namespace {

/// Forward, objective, backward of one micro-batch on a tape. Used for real steps and (null device) for plans.
class MicroStep {
 public:
  MicroStep(const Model& model, Tape& tape, const MicroBatch& mb, const StepOptions& options)
      : model_(model), tape_(tape), mb_(mb), options_(options),
        context_{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)}, objectives_(1 + mb.ahead.size()) {
    model.equip(context_);
  }

  /// `balance_weight` scales the routers' losses: valid tokens of the step times this micro-batch's share of it.
  void run(double balance_weight, StepStats* stats) {
    const Decoder& decoder = model_.decoder();
    DecoderOutput out = decoder.forward(context_, tape_.leaf(mb_.ids));
    predict(out, mb_.targets, 1, objectives_[0], stats);
    if (stats != nullptr) stats->ahead.resize(mb_.ahead.size());
    for (size_t k = 0; k < mb_.ahead.size(); ++k) {
      const MicroBatch::Ahead& a = mb_.ahead[k];
      DecoderOutput next = decoder.predict_ahead(context_, out.stream_TD, tape_.leaf(a.ids), static_cast<int64_t>(k) + 1);
      predict(next, a.targets, a.weight, objectives_[k + 1], stats != nullptr ? &stats->ahead[k] : nullptr);
      out.stream_TD = std::move(next.stream_TD);
      std::move(next.balance.begin(), next.balance.end(), std::back_inserter(out.balance));
    }
    seed_router_losses(out.balance, balance_weight);
    if (stats != nullptr) collect_metrics(*stats);
    out = {};
    Cursor(tape_).run();
  }

 private:
  /// What the backward pass reads after the heads are done.
  struct Cotangents {
    std::vector<float> row_weight;
    ObjectiveResult objective;
  };

  /// One head: statistics, objective times `weight`, cotangents. Gives the hidden states back.
  void predict(DecoderOutput& out, const Tensor& targets, double weight, Cotangents& c, HeadStats* stats) {
    const int64_t rows = mb_.rows.count;
    const auto tokens = static_cast<size_t>(rows);
    Value row_weight;
    if (options_.head == HeadMode::gradient) {
      c.row_weight.assign(tokens, static_cast<float>(-weight));
      row_weight = tape_.leaf(Tensor::of(c.row_weight.data(), {rows}));
    }
    // In mode gradient the z-loss cotangent is relative to the (negative) row weight.
    const HeadAttr attr{.mode = options_.head, .z_coefficient = -options_.z_coefficient};
    const HeadResult h = model_.decoder().head(context_, attr, out.hidden_TD, tape_.leaf(targets), {}, row_weight);
    out.hidden_TD = {};
    if (tape_.options().device == DeviceKind::cpu) {
      const std::span<const float> logprob(h.logprob_T.tensor().as<float>(), tokens), lse(h.lse_T.tensor().as<float>(), tokens);
      const std::span<const int32_t> ids(targets.as<int32_t>(), tokens);
      c.objective = (*options_.objective)({logprob, lse, ids, options_.z_coefficient});
      if (stats != nullptr) collect(logprob, lse, ids, c.objective, *stats);
      scale(c.objective.d_logprob, weight);
      scale(c.objective.d_lse, weight);
    } else {
      c.objective.d_logprob.assign(tokens, 0);
      if (options_.z_coefficient != 0) c.objective.d_lse.assign(tokens, 0);
    }
    tape_.seed(h.logprob_T, Tensor::of(c.objective.d_logprob.data(), {rows}));
    if (!c.objective.d_lse.empty()) tape_.seed(h.lse_T, Tensor::of(c.objective.d_lse.data(), {rows}));
  }

  static void scale(std::vector<float>& values, double weight) {
    if (weight != 1)
      for (float& v : values) v *= static_cast<float>(weight);
  }

  void seed_router_losses(const std::vector<BalanceLosses>& losses, double weight) {
    const MoeConfig& moe = model_.config().moe;
    d_aux_ = static_cast<float>(moe.aux_coefficient * weight);
    d_sequence_ = static_cast<float>(moe.sequence_aux_coefficient * weight);
    d_z_ = static_cast<float>(moe.z_coefficient * weight);
    for (const BalanceLosses& b : losses) {
      if (moe.aux_coefficient != 0) tape_.seed(b.aux, Tensor::of(&d_aux_, {1}));
      if (b.sequence.defined()) tape_.seed(b.sequence, Tensor::of(&d_sequence_, {1}));
      if (moe.z_coefficient != 0) tape_.seed(b.z, Tensor::of(&d_z_, {1}));
    }
  }

  static void collect(std::span<const float> logprob, std::span<const float> lse, std::span<const int32_t> targets,
                      const ObjectiveResult& objective, HeadStats& stats) {
    stats.objective += objective.loss;
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] < 0) continue;
      stats.nll -= logprob[t];
      stats.lse += lse[t];
      ++stats.valid;
    }
  }

  void collect_metrics(StepStats& stats) const {
    for (const Metric& m : tape_.metrics()) {
      const auto layer = static_cast<int64_t>(m.layer);
      if (m.name == "router_ids") continue;
      const reference::Array values = reference::load(m.value.tensor());
      if (m.name == "max_attention_logit") {
        auto& largest = stats.attention_logits[layer];
        if (largest.empty()) largest = values;
        for (size_t h = 0; h < values.size(); ++h) largest[h] = std::max(largest[h], values[h]);
        stats.max_attention_logit = std::max(stats.max_attention_logit, *std::max_element(values.begin(), values.end()));
      }
      if (m.name == "router_counts") {
        auto& counts = stats.expert_counts[layer];
        counts.resize(values.size());
        for (size_t e = 0; e < values.size(); ++e) counts[e] += static_cast<int64_t>(values[e]);
      }
      if (m.name == "router_entropy") stats.router_entropy[layer] += values[0] * static_cast<double>(mb_.rows.count);
    }
  }

  const Model& model_;
  Tape& tape_;
  const MicroBatch& mb_;
  const StepOptions& options_;
  Context context_;
  std::vector<Cotangents> objectives_;
  float d_aux_ = 0, d_sequence_ = 0, d_z_ = 0;
};

TapeOptions tape_options(const StepOptions& o, GradientSink* sink, DeviceKind device) {
  TapeOptions t;
  t.device = device;
  t.check_finite = o.check_finite;
  t.policy = o.policy;
  t.tier = o.tier;
  t.sink = sink;
  t.observer = o.observer;
  t.profile = o.profile;
  return t;
}

/// Accepts every contribution without memory: the null device's sink.
class NullSink final : public GradientSink {
 public:
  explicit NullSink(const WeightSet& w) : weights_(w) {}
  bool wants(int p) override { return weights_.table()[p].trainable; }
  GradSlot slot(int p) override {
    const Tensor m = weights_.master(p);
    return {Tensor(nullptr, m.shape(), m.dtype(), DeviceKind::null), false};
  }
  void finished(int) override {}

 private:
  const WeightSet& weights_;
};

}  // namespace

double StepPlan::flops() const {
  double sum = 0;
  for (const auto& [name, p] : work) sum += p.flops[0] + p.flops[1] + p.flops[2];
  return sum;
}

StepPlan plan_step(const Model& model, const StepOptions& options, int64_t sequences, int64_t length) {
  StepPlan plan;
  data::Batch batch;
  batch.rows = sequences;
  batch.sequence_length = length;
  const auto tokens = static_cast<size_t>(sequences * length);
  batch.tokens.assign(tokens, 0);
  batch.targets.assign(tokens, 0);
  batch.positions.assign(tokens, 0);
  for (int64_t r = 0; r < sequences; ++r)
    batch.spans.push_back({static_cast<int32_t>(r * length), static_cast<int32_t>((r + 1) * length)});
  CountingArena arena;
  NullSink sink(model.weights());
  StepOptions o = options;
  o.profile = &plan.work;
  o.observer = nullptr;
  o.check_finite = false;
  {
    Tape tape(arena, tape_options(o, &sink, DeviceKind::null));
    const std::vector<LookAhead> ahead = look_ahead(batch, model.config().mtp);
    const MicroBatch mb = micro_batch(batch, 0, sequences, ahead);
    MicroStep(model, tape, mb, o).run(1, nullptr);
  }
  plan.memory = plan_memory(arena.lives());
  plan.peak_bytes = arena.peak_bytes();
  plan.categories = arena.peak_by_category();
  return plan;
}

StepRunner::StepRunner(Model& model, GradientBuffer& gradients, const RankGroups* groups)
    : model_(model), gradients_(gradients), groups_(groups) {}

void StepRunner::prepare_arena(const data::Batch& batch, const StepOptions& options) {
  const std::string key = fmt::format("{}x{} head {} z {} policy {}", options.micro_batch, batch.sequence_length,
                                      static_cast<int>(options.head), options.z_coefficient != 0,
                                      static_cast<const void*>(options.policy));
  if (arena_ && key == arena_key_) return;
  arena_.reset();  // give the old slab back first
  arena_ = std::make_unique<PlannedArena>(plan_step(model_, options, options.micro_batch, batch.sequence_length).memory);
  arena_key_ = key;
}

StepStats StepRunner::run(const data::Batch& batch, const StepOptions& options) {
  const int64_t ranks = groups_ != nullptr ? groups_->batch_ranks() : 1, rank = groups_ != nullptr ? groups_->batch_rank() : 0;
  INGOT_CHECK(options.micro_batch > 0 && batch.rows % (options.micro_batch * ranks) == 0,
              "{} rows in micro-batches of {} on {} ranks", batch.rows, options.micro_batch, ranks);
  const int64_t rows = batch.rows / ranks;
  prepare_arena(batch, options);
  StepStats stats;
  gradients_.begin_step();
  const std::vector<LookAhead> ahead = look_ahead(batch, model_.config().mtp);
  const double share = static_cast<double>(options.micro_batch) / static_cast<double>(batch.rows);
  for (int64_t first = rank * rows; first < (rank + 1) * rows; first += options.micro_batch) {
    const MicroBatch mb = micro_batch(batch, first, options.micro_batch, ahead);
    arena_->restart();
    Tape tape(*arena_, tape_options(options, &gradients_, DeviceKind::cpu));
    MicroStep(model_, tape, mb, options).run(static_cast<double>(batch.valid_targets) * share, &stats);
  }
  if (groups_ != nullptr) combine(*groups_, stats);
  const double tokens = static_cast<double>(batch.rows * batch.sequence_length);
  for (auto& [layer, entropy] : stats.router_entropy) entropy /= tokens;
  return stats;
}

std::pair<double, int64_t> StepRunner::evaluate(const data::Batch& batch) {
  const MicroBatch mb = micro_batch(batch, 0, batch.rows);
  Tape tape(heap_, {.record = false});
  Context c{tape, model_.weights(), &mb.rows, tape.leaf(mb.positions)};
  model_.equip(c);
  const Value hidden_TD = model_.decoder().forward(c, tape.leaf(mb.ids)).hidden_TD;
  const HeadResult h = model_.decoder().head(c, {.mode = HeadMode::recompute}, hidden_TD, tape.leaf(mb.targets));
  const auto* logprob = h.logprob_T.tensor().as<float>();
  double nll = 0;
  int64_t valid = 0;
  for (int64_t t = 0; t < mb.rows.count; ++t)
    if (mb.targets.as<int32_t>()[t] >= 0) nll -= logprob[t], ++valid;
  return {nll, valid};
}

}  // namespace ingot
