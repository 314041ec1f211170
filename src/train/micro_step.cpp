// See micro_step.h.
#include "train/micro_step.h"

#include <algorithm>

#include "tensor/convert.h"

namespace ingot {
namespace {

void scale(std::vector<float>& values, double weight) {
  if (weight != 1)
    for (float& v : values) v *= static_cast<float>(weight);
}

void collect(std::span<const float> logprob, std::span<const float> lse, std::span<const int32_t> targets,
             const ObjectiveResult& objective, HeadStats& stats) {
  stats.objective += objective.loss;
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    stats.nll -= logprob[t];
    stats.lse += lse[t];
    ++stats.valid;
  }
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
  std::vector<int32_t>& sources = m.columns.emplace_back();
  for (int64_t row = first; row < first + count; ++row)
    sources.insert(sources.end(), static_cast<size_t>(batch.sequence_length),
                   batch.origins.empty() ? 0 : batch.origins[static_cast<size_t>(row)].source);
  m.sources = Tensor::of(sources.data(), {tokens});
  for (const ShiftedTargets& s : mtp) m.mtp.push_back({column(s.ids), column(s.targets), s.weight});
  if (groups != nullptr && groups->context().size() > 1) keep_chunks(m, batch.sequence_length, *groups);
  return m;
}

RunningCounts::RunningCounts(const Model& model) {
  const MoeConfig& moe = model.config().moe;
  if (moe.aux_coefficient == 0 || moe.aux_scope != AuxScope::global) return;
  for (const int64_t layer : model.decoder().moe_layers())
    layers_[layer].choices.resize(static_cast<size_t>(moe.experts));
}

void RunningCounts::add(int64_t layer, std::span<const double> choices, int64_t tokens) {
  Layer& l = layers_.at(layer);
  for (size_t e = 0; e < choices.size(); ++e) l.choices[e] += static_cast<float>(choices[e]);
  l.tokens += tokens;
}

MicroStep::MicroStep(const Model& model, Tape& tape, MicroBatch batch, const StepOptions& options,
                     const StepTokens& step, StepStats* stats, RunningCounts& running)
    : model_(model),
      tape_(tape),
      batch_(std::move(batch)),
      options_(options),
      step_(step),
      stats_(stats),
      running_(running),
      context_{tape, model.weights(), &batch_.rows, tape.leaf(batch_.positions)},
      ids_T_(tape.leaf(batch_.ids)),
      objectives_(1 + batch_.mtp.size()) {
  context_.context_rows = batch_.chunks.get();
  model.equip(context_);
}

int64_t MicroStep::router_rows() const {
  const int64_t rows = batch_.ids.numel();
  return context_.sequence_parallel && context_.tensor != nullptr ? rows / context_.tensor->size() : rows;
}

void MicroStep::take_running_counts() {
  for (const auto& [layer, running] : running_.layers()) {
    std::vector<float>& mine = earlier_[layer] = running.choices;
    RouterInputs& inputs = context_.routers[layer];
    inputs.earlier_E = Tensor::of(mine.data(), {static_cast<int64_t>(mine.size())});
    inputs.earlier_tokens = running.tokens;
  }
}

std::vector<Value> MicroStep::forward(const StageParts& parts, const std::vector<Value>& received) {
  take_running_counts();
  StageForward stage(model_.decoder(), parts, context_, ids_T_, received);
  for (int64_t depth = 0; depth <= stage.depths(); ++depth) {
    Value hidden_TD =
        stage.head_input(depth, depth > 0 ? batch_.mtp.at(static_cast<size_t>(depth) - 1).ids : Tensor());
    if (parts.loss) predict(depth, std::move(hidden_TD));
  }
  seed_router_losses(stage.balance_losses());
  if (stats_ != nullptr) collect_metrics(*stats_);
  return parts.loss ? std::vector<Value>() : stage.live_values();
}

void MicroStep::predict(int64_t depth, Value hidden_TD) {
  if (depth == 0) return run_head(std::move(hidden_TD), batch_.targets, 1, objectives_[0], stats_);
  const auto k = static_cast<size_t>(depth) - 1;
  const MtpInputs& inputs = batch_.mtp.at(k);
  if (stats_ != nullptr) stats_->mtp.resize(batch_.mtp.size());
  run_head(std::move(hidden_TD), inputs.targets, inputs.weight, objectives_[k + 1],
           stats_ != nullptr ? &stats_->mtp[k] : nullptr);
}

void MicroStep::run_head(Value hidden_TD, const Tensor& targets, double weight, Cotangents& c,
                         HeadStats* stats) {
  const int64_t rows = targets.numel();
  const auto tokens = static_cast<size_t>(rows);
  Value row_weight;
  if (options_.head == HeadMode::gradient) {
    c.row_weight.assign(tokens, static_cast<float>(-weight));
    row_weight = tape_.leaf(Tensor::of(c.row_weight.data(), {rows}));
  }
  // In mode gradient the head takes the z-loss cotangent relative to the row weight, which is negative.
  const HeadAttr attr{.mode = options_.head, .z_coefficient = -options_.z_coefficient};
  const HeadResult h = model_.decoder().head(context_, attr, hidden_TD, tape_.leaf(targets), {}, row_weight);
  hidden_TD = {};  // the tape may free it
  if (tape_.options().device == DeviceKind::cpu) {
    const std::span<const float> logprob(h.logprob_T.tensor().as<float>(), tokens),
        lse(h.lse_T.tensor().as<float>(), tokens);
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

/// A router's losses are means; each counts as often as the step has valid tokens, times the share of the
/// step's rows that this router sees.
void MicroStep::seed_router_losses(const std::vector<BalanceLosses>& losses) {
  const MoeConfig& moe = model_.config().moe;
  const double weight = static_cast<double>(step_.valid) *
                        (static_cast<double>(router_rows()) / static_cast<double>(step_.all));
  d_aux_ = static_cast<float>(moe.aux_coefficient * weight);
  d_sequence_ = static_cast<float>(moe.sequence_aux_coefficient * weight);
  d_z_ = static_cast<float>(moe.z_coefficient * weight);
  for (const BalanceLosses& b : losses) {
    if (moe.aux_coefficient != 0) tape_.seed(b.aux, Tensor::of(&d_aux_, {1}));
    if (b.sequence.defined()) tape_.seed(b.sequence, Tensor::of(&d_sequence_, {1}));
    if (moe.z_coefficient != 0) tape_.seed(b.z, Tensor::of(&d_z_, {1}));
  }
}

void MicroStep::collect_metrics(StepStats& stats) const {
  for (const Metric& m : tape_.metrics()) {
    const auto layer = static_cast<int64_t>(m.layer);
    if (m.name == "router_ids") {
      count_by_source(stats, layer, m.value.tensor());
      continue;
    }
    const std::vector<double> values = to_doubles(m.value.tensor());
    if (m.name == "max_attention_logit") {
      auto& largest = stats.attention_logits[layer];
      if (largest.empty()) largest = values;
      for (size_t h = 0; h < values.size(); ++h) largest[h] = std::max(largest[h], values[h]);
      stats.max_attention_logit =
          std::max(stats.max_attention_logit, *std::max_element(values.begin(), values.end()));
    }
    if (m.name == "router_counts") {
      auto& counts = stats.expert_counts[layer];
      counts.resize(values.size());
      for (size_t e = 0; e < values.size(); ++e) counts[e] += static_cast<int64_t>(values[e]);
    }
    if (m.name == "residual_rstd" && stats.residual_square.contains(layer))
      for (const double r : values) stats.residual_square[layer] += 1 / (r * r) - model_.config().norm_eps;
    if (m.name == "residual_mean" && stats.residual_square.contains(layer))
      for (const double mean : values) stats.residual_square[layer] += mean * mean;
    if (m.name == "router_counts_of_all" && running_.used())
      running_.add(layer, values, router_rows() * (context_.tokens != nullptr ? context_.tokens->size() : 1));
    if (m.name == "router_dropped") stats.dropped_choices += static_cast<int64_t>(values[0]);
    if (m.name == "router_entropy")
      stats.router_entropy[layer] += values[0] * static_cast<double>(router_rows());
  }
}

/// Adds each choice of an expert to the counts of its row's source.
void MicroStep::count_by_source(StepStats& stats, int64_t layer, const Tensor& ids_TK) const {
  const auto found = stats.source_expert_counts.find(layer);
  if (found == stats.source_expert_counts.end()) return;
  const int64_t experts = model_.config().moe.experts, rows = ids_TK.dim(0), choices = ids_TK.dim(1);
  // Where tensor ranks share the rows, the router of each sees its part of them.
  const int64_t first = rows < batch_.ids.numel() ? rows * context_.tensor->rank() : 0;
  const auto* ids = ids_TK.as<int32_t>();
  const auto* sources = batch_.sources.as<int32_t>();
  for (int64_t i = 0; i < rows * choices; ++i) {
    const int64_t row = first + i / choices;
    if (ids[i] >= 0 && ids[i] < experts)
      ++found->second[static_cast<size_t>(sources[row] * experts + ids[i])];
  }
}

EvaluationStep::EvaluationStep(const Model& model, Tape& tape, MicroBatch batch, HeadStats& stats)
    : model_(model),
      tape_(tape),
      batch_(std::move(batch)),
      stats_(stats),
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
      model_.decoder().head(context_, {.mode = HeadMode::recompute}, hidden_TD, tape_.leaf(batch_.targets));
  const auto* logprob = h.logprob_T.tensor().as<float>();
  for (int64_t t = 0; t < batch_.targets.numel(); ++t)
    if (batch_.targets.as<int32_t>()[t] >= 0) stats_.nll -= logprob[t], ++stats_.valid;
  return {};
}

void evaluate(const Model& model, const data::Batch& batch, HeadStats& stats) {
  HeapArena arena;
  Tape tape(arena, {.record = false});
  EvaluationStep(model, tape, micro_batch(batch, 0, batch.rows), stats).forward(whole_model(model.config()));
}

}  // namespace ingot
