// See micro_step.h.
#include "train/micro_step.h"

#include <algorithm>

#include "device/host_kernel.h"
#include "tensor/convert.h"
#include "tensor/host_copy.h"
#include "train/micro_places.h"
#include "train/micro_stats.h"

namespace ingot {
namespace {

void scale(std::vector<float>& values, double weight) {
  if (weight != 1)
    for (float& v : values) v *= static_cast<float>(weight);
}

HeadAllowed allowed_ids(Tape& tape, const MicroBatch& batch) {
  if (!batch.allowed.defined()) return {};
  return {tape.unplanned_leaf(batch.allowed), tape.unplanned_leaf(batch.allowed_ids)};
}

}  // namespace

namespace {

/// Keeps of every sequence the chunks of this context rank.
void keep_chunks(MicroBatch& m, int64_t sequence_length, const RankGroups& groups) {
  const Communicator& context = groups.context();
  m.chunks = std::make_unique<ContextRows>(m.rows, sequence_length, m.positions.as<int32_t>(), context.rank(),
                                           context.size(), groups.context_inner().size());
  const auto keep = [&](Tensor& column) {
    m.columns.push_back(m.chunks->share_of(column.as<int32_t>()));
    column = Tensor::of(m.columns.back().data(), {m.chunks->count()});
  };
  for (Tensor* column : {&m.ids, &m.targets, &m.positions, &m.sources}) keep(*column);
  const auto keep_given = [&]<class T>(std::span<const T>& column) {
    if (column.empty()) return;
    m.columns.push_back(m.chunks->share_of(reinterpret_cast<const int32_t*>(column.data())));
    column = {reinterpret_cast<const T*>(m.columns.back().data()), m.columns.back().size()};
  };
  ColumnSpans& g = m.given;
  for (auto* column : {&g.weight, &g.advantage, &g.recorded, &g.reference, &g.cotangent}) keep_given(*column);
  for (auto* column : {&g.sequence, &g.version}) keep_given(*column);
  for (MtpInputs& inputs : m.mtp) {
    keep(inputs.ids);
    keep(inputs.targets);
  }
}

}  // namespace

MicroBatch micro_batch(const data::Batch& batch, int64_t first, int64_t count,
                       std::span<const ShiftedTargets> mtp, const RankGroups* groups) {
  const int64_t begin = first * batch.sequence_length, tokens = count * batch.sequence_length;
  MicroBatch m;
  m.rows.count = tokens;
  for (const data::Span& s : batch.spans)
    if (s.begin >= begin && s.begin < begin + tokens)
      m.rows.spans.push_back({s.begin - begin, s.end - s.begin, 0, nullptr, s.begin % batch.sequence_length});
  const auto column = [&](const std::vector<int32_t>& values) {
    return Tensor::of(values.data() + begin, {tokens});
  };
  m.ids = column(batch.tokens);
  m.targets = column(batch.targets);
  m.positions = column(batch.positions);
  const auto given = [&]<class T>(const std::vector<T>& values) {
    INGOT_CHECK(values.empty() || values.size() == batch.tokens.size(), "a column of {} values for {} tokens",
                values.size(), batch.tokens.size());
    return values.empty()
               ? std::span<const T>()
               : std::span(values).subspan(static_cast<size_t>(begin), static_cast<size_t>(tokens));
  };
  m.baseline = batch.baseline;
  const data::TokenColumns& c = batch.columns;
  m.given = {given(c.weight),    given(c.advantage), given(c.recorded), given(c.reference),
             given(c.cotangent), given(c.sequence),  given(c.version)};
  std::vector<int32_t>& sources = m.columns.emplace_back();
  for (int64_t row = first; row < first + count; ++row)
    sources.insert(sources.end(), static_cast<size_t>(batch.sequence_length),
                   batch.origins.empty() ? 0 : batch.origins[static_cast<size_t>(row)].source);
  m.sources = Tensor::of(sources.data(), {tokens});
  for (const std::vector<int32_t>& layer : batch.routes) {
    const int64_t k = static_cast<int64_t>(layer.size()) / (batch.rows * batch.sequence_length);
    m.routes.push_back(Tensor::of(layer.data() + begin * k, {tokens, k}));
  }
  if (!batch.allowed.empty()) {
    m.allowed = Tensor::of(batch.allowed.data() + 2 * begin, {tokens, 2});
    m.allowed_ids = Tensor::of(batch.allowed_ids.data(), {static_cast<int64_t>(batch.allowed_ids.size())});
  }
  INGOT_CHECK(
      (batch.routes.empty() && batch.allowed.empty()) || groups == nullptr || groups->context().size() == 1,
      "routes and allowed ids are replayed for whole sequences");
  for (const ShiftedTargets& s : mtp) m.mtp.push_back({column(s.ids), column(s.targets), s.weight});
  if (groups != nullptr && groups->context().size() > 1) keep_chunks(m, batch.sequence_length, *groups);
  return m;
}

RunningCounts::RunningCounts(const Model& model) {
  const MoeConfig& moe = model.config().moe;
  if (moe.aux_coefficient == 0 || moe.aux_scope != AuxScope::global) return;
  for (const int64_t layer : model.decoder().moe_layers())
    layers_[layer].resize(static_cast<size_t>(moe.experts) + 1);
}

void RunningCounts::add(int64_t layer, std::span<const double> choices_E) {
  std::vector<float>& counts_E1 = layers_.at(layer);
  for (size_t e = 0; e < choices_E.size(); ++e) counts_E1[e] += static_cast<float>(choices_E[e]);
  ++counts_E1.back();
}

MicroStep::MicroStep(const Model& model, Tape& tape, std::shared_ptr<const MicroBatch> batch,
                     const StepOptions& options, const StepTokens& step, StepStats* stats,
                     RunningCounts& running, StepReads& reads, MicroPlaces* places)
    : model_(model),
      tape_(tape),
      shared_(std::move(batch)),
      options_(options),
      step_(step),
      stats_(stats),
      running_(running),
      reads_(reads),
      places_(places),
      context_{tape, model.weights(), &batch_.rows,
               tape.leaf(places != nullptr ? places->positions() : batch_.positions)},
      ids_T_(tape.leaf(places != nullptr ? places->ids(0) : batch_.ids)),
      objectives_(1 + batch_.mtp.size()) {
  if (places != nullptr && places->documents().defined()) {
    context_.rows = nullptr;
    context_.documents = tape.leaf(places->documents());
  }
  context_.context_rows = batch_.chunks.get();
  model.equip(context_);
  const std::vector<int64_t>& layers = model.decoder().moe_layers();
  INGOT_CHECK(batch_.routes.empty() || batch_.routes.size() == layers.size(),
              "routes of {} layers, {} have experts", batch_.routes.size(), layers.size());
  for (size_t i = 0; i < batch_.routes.size(); ++i)
    context_.routers[layers[i]].forced_ids_TK = batch_.routes[i];
  const int64_t rows = router_rows();
  counts_ = std::make_shared<const MicroStats>(
      MicroStats{.batch = shared_,
                 .objective = options.objective,
                 .z_coefficient = options.z_coefficient,
                 .model = &model,
                 .stats = stats,
                 .running = &running,
                 .router_rows = rows,
                 // Where tensor ranks share the rows, the router of each sees its part of them.
                 .first_router_row = rows < batch_.ids.numel() ? rows * context_.tensor->rank() : 0});
}

int64_t MicroStep::router_rows() const {
  const int64_t rows = batch_.ids.numel();
  return context_.sequence_parallel && context_.tensor != nullptr ? rows / context_.tensor->size() : rows;
}

void MicroStep::take_running_counts() {
  for (const auto& [layer, counts_E1] : running_.layers()) {
    Tensor& earlier_E1 = context_.routers[layer].earlier_E1;
    if (places_ != nullptr) {
      earlier_E1 = places_->earlier_choices(layer);
    } else {
      std::vector<float>& mine = earlier_[layer] = counts_E1;
      earlier_E1 = Tensor::of(mine.data(), {std::ssize(mine)});
    }
  }
}

std::vector<Value> MicroStep::forward(const StageParts& parts, const std::vector<Value>& received) {
  if (places_ == nullptr && running_.used() && reads_.pending())
    reads_.finish();  // this micro-batch's balance loss needs them
  reads_.keep(shared_);
  take_running_counts();
  StageForward stage(model_.decoder(), parts, context_, ids_T_, received);
  for (int64_t depth = 0; depth <= stage.depths(); ++depth) {
    Tensor ids;
    if (depth > 0) ids = batch_.mtp.at(static_cast<size_t>(depth) - 1).ids;
    if (depth > 0 && places_ != nullptr) ids = places_->ids(depth);
    Value hidden_TD = stage.head_input(depth, ids);
    if (parts.loss) predict(depth, std::move(hidden_TD));
  }
  seed_router_losses(stage.balance_losses());
  if (stats_ != nullptr) collect_metrics();
  return parts.loss ? std::vector<Value>() : stage.live_values();
}

void MicroStep::predict(int64_t depth, Value hidden_TD) {
  if (depth == 0)
    return run_head(
        std::move(hidden_TD),
        {0, batch_.targets, 1, batch_.given, options_.objective->logit_scale, allowed_ids(tape_, batch_)},
        objectives_[0], stats_);
  const auto k = static_cast<size_t>(depth) - 1;
  const MtpInputs& inputs = batch_.mtp.at(k);
  if (stats_ != nullptr) stats_->mtp.resize(batch_.mtp.size());
  run_head(std::move(hidden_TD), {depth, inputs.targets, inputs.weight}, objectives_[k + 1],
           stats_ != nullptr ? &stats_->mtp[k] : nullptr);
}

void MicroStep::run_head(Value hidden_TD, const Prediction& what, Cotangents& c, HeadStats* stats) {
  const int64_t rows = what.targets.numel();
  const auto tokens = static_cast<size_t>(rows);
  const Objective& objective = *options_.objective;
  Tensor targets_T = what.targets, weights_T;
  if (places_ != nullptr) {
    targets_T = places_->targets(what.depth), weights_T = places_->row_weights(what.depth);
  } else if (objective.known_cotangent) {
    c.row_weight = known_cotangents(what.columns, tokens, what.weight);
    weights_T = Tensor::of(c.row_weight.data(), {rows});
  }
  c.is_late = options_.head == HeadMode::gradient && (tape_.options().copies_leaves || options_.has_places);
  const Value targets = tape_.leaf(targets_T);
  Value row_weight;
  if (options_.head == HeadMode::gradient) row_weight = tape_.leaf(weights_T);
  // In mode gradient the head takes the z-loss cotangent relative to the row weight, which is negative.
  const HeadAttr attr{.mode = options_.head,
                      .entropy = objective.entropy,
                      .z_coefficient = -options_.z_coefficient,
                      .scale = what.logit_scale};
  const HeadResult h =
      model_.decoder().head(context_, attr, hidden_TD, targets, {}, row_weight, what.allowed);
  hidden_TD = {};  // the tape may free it
  if (tape_.options().device == DeviceKind::null) {
    c.objective.d_logprob.assign(tokens, 0);
    if (options_.z_coefficient != 0 && !c.is_late) c.objective.d_lse.assign(tokens, 0);
    if (objective.entropy) c.objective.d_entropy.assign(tokens, 0);
  } else {
    const std::initializer_list<Tensor> statistics = {h.logprob_T.tensor(), h.lse_T.tensor(),
                                                      objective.entropy ? h.entropy_T.tensor() : Tensor()};
    if (stats == stats_ && options_.sums != nullptr)
      add_logprobs(h.logprob_T.tensor(), targets.tensor(), options_.sums->loss);
    if (c.is_late) {
      read({what.depth}, statistics);
    } else {
      StepReads now(device_of(tape_.options().device));  // the host decides what backward begins with
      now.read(statistics, [&](std::span<const Tensor> values) {
        c.objective = counts_->add_head(what.targets, what.columns, stats, values);
      });
      now.finish();
    }
    scale(c.objective.d_logprob, what.weight);
    scale(c.objective.d_lse, what.weight);
    scale(c.objective.d_entropy, what.weight);
    if (objective.known_cotangent) c.objective.d_logprob = c.row_weight;
  }
  const auto seed = [&](const Value& statistic, const std::vector<float>& cotangent) {
    if (!cotangent.empty()) tape_.seed(statistic, Tensor::of(cotangent.data(), {rows}));
  };
  if (places_ != nullptr)
    tape_.seed(h.logprob_T, weights_T);
  else
    seed(h.logprob_T, c.objective.d_logprob);
  seed(h.lse_T, c.objective.d_lse);
  seed(h.entropy_T, c.objective.d_entropy);
}

void MicroStep::read(const MicroRead& what, std::initializer_list<Tensor> values) {
  if (places_ != nullptr) places_->take(what, values);
  if (places_ == nullptr || !places_->has_results())
    reads_.read(values, [counts = counts_, what](std::span<const Tensor> read) { counts->add(what, read); });
}

void MicroStep::sum_on_device(const Metric& metric) const {
  const bool largest = metric.reduce == Reduce::max;
  const std::map<int64_t, void*>& of_layer = largest ? options_.sums->logits : options_.sums->counts;
  const auto sums = of_layer.find(metric.layer);
  if (metric.name != (largest ? "max_attention_logit" : "router_counts") || sums == of_layer.end()) return;
  add_values(metric.value.tensor(), sums->second, largest);
}

void MicroStep::seed_loss(const Value& loss, const float& cotangent, Tensor place) {
  tape_.seed(loss, place.defined() ? place : Tensor::of(&cotangent, {1}));
}

void MicroStep::seed_router_losses(const std::vector<BalanceLosses>& losses) {
  const MoeConfig& moe = model_.config().moe;
  seeds_ = router_seeds(moe, step_, router_rows());
  const bool placed = places_ != nullptr;
  for (const BalanceLosses& b : losses) {
    if (moe.aux_coefficient != 0) seed_loss(b.aux, seeds_.aux, placed ? places_->aux_seed() : Tensor());
    if (b.sequence.defined())
      seed_loss(b.sequence, seeds_.sequence, placed ? places_->sequence_seed() : Tensor());
    if (moe.z_coefficient != 0) seed_loss(b.z, seeds_.z, placed ? places_->z_seed() : Tensor());
  }
}

void MicroStep::collect_metrics() {
  for (const Metric& m : tape_.metrics()) {
    if (options_.sums != nullptr) sum_on_device(m);
    if (places_ != nullptr && m.name == "router_counts_of_all" && running_.used())
      places_->add_choices(m.layer, m.value.tensor());
    read({-1, m.name, m.layer}, {m.value.tensor()});
  }
}

EvaluationStep::EvaluationStep(const Model& model, Tape& tape, MicroBatch batch, HeadStats& stats,
                               std::span<float> logprobs, float logit_scale)
    : model_(model),
      tape_(tape),
      batch_(std::move(batch)),
      stats_(stats),
      logprobs_(logprobs),
      logit_scale_(logit_scale),
      context_{tape, model.weights(), &batch_.rows, tape.leaf(batch_.positions)},
      ids_T_(tape.leaf(batch_.ids)) {
  context_.context_rows = batch_.chunks.get();
  model.equip(context_);
}

std::vector<Value> EvaluationStep::forward(const StageParts& parts, const std::vector<Value>& received) {
  StageForward stage(model_.decoder(), parts, context_, ids_T_, received);
  const Value hidden_TD = stage.head_input(0);
  if (!parts.loss) return stage.live_values();
  const HeadResult h =
      model_.decoder().head(context_, {.mode = HeadMode::recompute, .scale = logit_scale_}, hidden_TD,
                            tape_.leaf(batch_.targets), {}, {}, allowed_ids(tape_, batch_));
  const HostCopy logprob_T(h.logprob_T.tensor());
  const auto* logprob = logprob_T.as<float>();
  for (int64_t t = 0; t < batch_.targets.numel(); ++t) {
    if (batch_.targets.as<int32_t>()[t] < 0) continue;
    stats_.nll -= logprob[t], ++stats_.valid;
    if (!logprobs_.empty()) logprobs_[static_cast<size_t>(t)] = logprob[t];
  }
  return {};
}

void evaluate(const Model& model, const data::Batch& batch, HeadStats& stats) {
  HeapArena arena(device_of(compute_device()));
  Tape tape(arena, {.device = compute_device(), .record = false});
  EvaluationStep(model, tape, micro_batch(batch, 0, batch.rows), stats).forward(whole_model(model.config()));
}

}  // namespace ingot
