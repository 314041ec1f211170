// See parity.h.
#include "support/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/philox.h"
#include "tape/backward.h"

namespace ingot::test {
namespace {

/// Every other layer recomputes norms from their streams, the others from the deferred residual add.
class RecomputeNearlyAll final : public SlotPolicy {
 public:
  SlotFate fate(const Op& op, int output, const Segment& segment) const override {
    const bool stream = std::string_view(op.outputs[static_cast<size_t>(output)].name) == "stream";
    return stream && segment.layer % 2 == 0 ? SlotFate::keep : SlotFate::recompute;
  }
};

constexpr double kAuxCoefficient = 0.01;

ModelConfig config_of(const ParityProblem& p) {
  ModelConfig m = small_model_config(p.model);
  if (p.layers > 0) m.layers = p.layers;
  if (p.own_load) m.moe.aux_coefficient = kAuxCoefficient;
  return m;
}

double largest(const Array& a) {
  double m = 0;
  for (const double v : a) m = std::max(m, std::abs(v));
  return m;
}

}  // namespace

ParityInputs parity_inputs(const ParityProblem& p, const Decoder& decoder, uint64_t seed) {
  std::vector<int64_t> documents;
  for (int64_t r = 0; r < p.rows; r += 4)
    for (const int64_t n : {16, 9, 7, 5, 4, 3, 4, 1, 1, 2, 12}) documents.push_back(n);
  ParityInputs inputs;
  inputs.batch = packed_batch(p.rows, kParityLength, documents, 61, seed);
  if (p.mask_last) {
    auto& targets = inputs.batch.targets;
    std::fill(targets.begin() + p.rows / 2 * kParityLength, targets.end(), data::kMasked);
    inputs.batch.valid_targets =
        std::count_if(targets.begin(), targets.end(), [](int32_t t) { return t != data::kMasked; });
  }
  inputs.ahead = shifted_targets(inputs.batch, decoder.config().mtp);
  const int64_t k = decoder.config().moe.top_k;
  for (const int64_t layer : decoder.moe_layers())
    for (int64_t i = 0; p.starve && i < p.rows * kParityLength * k; ++i)
      inputs.routers[layer].ids.push_back(static_cast<int32_t>(i % k));
  return inputs;
}

Array part_of(const ParameterSpec& spec, const Placement& placement, const Array& global) {
  const int rank = spec.shape.rank();
  const Shape local = local_shape(spec, placement);
  Array part(static_cast<size_t>(local.numel()));
  for (const ParameterPiece& p : pieces_of(spec, placement)) {
    const int64_t n = std::accumulate(p.extent.begin(), p.extent.end(), int64_t{1}, std::multiplies<>());
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i, from = 0, to = 0, from_stride = 1, to_stride = 1;
      for (int d = rank - 1; d >= 0; --d) {
        const auto k = static_cast<size_t>(d);
        const int64_t at = rest % p.extent[k];
        rest /= p.extent[k];
        from += (p.global_offset[k] + at) * from_stride;
        to += (p.local_offset[k] + at) * to_stride;
        from_stride *= spec.shape[d];
        to_stride *= local[d];
      }
      part[static_cast<size_t>(to)] = global[static_cast<size_t>(from)];
    }
  }
  return part;
}

ElementRange kept(const FlatLayout& layout, int i, DType type) {
  const auto k = static_cast<size_t>(i);
  const FlatBucket& u = layout.buckets[static_cast<size_t>(layout.bucket_of[k])];
  const int64_t count = layout.shapes[k].numel(), size = size_of(type);
  return {std::clamp<int64_t>((u.own_begin() - layout.offsets[k]) / size, 0, count),
          std::clamp<int64_t>((u.own_end() - layout.offsets[k]) / size, 0, count)};
}

Tensor part_of(const Tensor& tensor, const ElementRange& range) {
  return {static_cast<std::byte*>(tensor.data) + range.begin * size_of(tensor.dtype()), Shape{range.count()},
          tensor.dtype()};
}

void all_reduce(Communicator& group, Array& values) {
  const Tensor t = Tensor::of(values.data(), {static_cast<int64_t>(values.size())});
  group.all_reduce(t, t).wait();
}

TapeOptions parity_tape(const ParityProblem& problem, GradientSink* sink) {
  static const RecomputeNearlyAll recompute;
  return {.policy = problem.recompute ? &recompute : nullptr, .sink = sink};
}

ParityStep::ParityStep(const Decoder& decoder, const ParityInputs& inputs, const WeightSet& weights,
                       Tape& tape, int64_t first, int64_t count, const RankGroups* groups,
                       ParityOutcome& outcome)
    : decoder_(decoder),
      inputs_(inputs),
      tape_(tape),
      batch_(micro_batch(inputs.batch, first, count, inputs.ahead)),
      context_{tape, weights, &batch_.rows},
      outcome_(outcome) {
  if (groups != nullptr) {
    groups->join(context_);
    if (groups->context().size() > 1) cut_sequences(*groups);
  }
  context_.positions_T = tape.leaf(batch_.positions);
  ids_T_ = tape.leaf(batch_.ids);
  feed_routers(first * kParityLength, groups);
}

void ParityStep::cut_sequences(const RankGroups& groups) {
  context_rows_.emplace(batch_.rows, kParityLength, batch_.positions.as<int32_t>(), groups.context().rank(),
                        groups.context().size(), groups.context_inner().size());
  context_.context_rows = &*context_rows_;
  Tensor* const columns[] = {&batch_.ids, &batch_.targets, &batch_.positions};
  for (size_t i = 0; i < 3; ++i) {
    columns_[i] = context_rows_->share_of(columns[i]->as<int32_t>());
    *columns[i] = Tensor::of(columns_[i].data(), {context_rows_->count()});
  }
}

void ParityStep::feed_routers(int64_t first, const RankGroups* groups) {
  const MoeConfig& moe = decoder_.config().moe;
  const int64_t k = moe.top_k, local = batch_.ids.dim(0);
  const bool shared_out = groups != nullptr && groups->options().sequence_parallel;
  const int64_t own = local / (shared_out ? groups->tensor().size() : 1),
                from = shared_out ? groups->tensor().rank() * own : 0;
  share_ = static_cast<double>(own) / static_cast<double>(inputs_.batch.tokens.size());
  for (const auto& [layer, feed] : inputs_.routers) {
    RouterInputs& inputs = context_.routers[layer];
    if (!feed.load.empty()) inputs.load_E = Tensor::of(feed.load.data(), {moe.experts});
    if (!feed.bias.empty()) inputs.bias = Tensor::of(feed.bias.data(), {moe.experts});
    if (feed.ids.empty()) continue;
    std::vector<int32_t>& routes = routes_[layer];
    for (int64_t row = from; row < from + own; ++row) {
      const int64_t token =
          first + (context_rows_ ? context_rows_->whole_row(context_rows_->rank(), row) : row);
      routes.insert(routes.end(), feed.ids.begin() + token * k, feed.ids.begin() + (token + 1) * k);
    }
    if (inputs_.replay) inputs.forced_ids_TK = Tensor::of(routes.data(), {own, k});
  }
}

void ParityStep::losses(const std::vector<BalanceLosses>& balance) {
  for (const Metric& m : tape_.metrics())
    if (!dry()) collect(m);
  for (const BalanceLosses& b : balance) {
    seed(b.aux, kAuxCoefficient * share_);
    seed(b.z, 0.001 * share_);
  }
}

void ParityStep::collect(const Metric& m) {
  const auto add = [&](Array& sum, double factor) {
    const Array values = reference::load(m.value.tensor());
    sum.resize(values.size());
    for (size_t e = 0; e < values.size(); ++e) sum[e] += factor * values[e];
  };
  if (m.name == "router_counts") add(outcome_.counts[m.layer], 1);
  if (m.name == "router_aux_loss") add(outcome_.balance[m.layer], share_);
  if (m.name == "router_z_loss") add(outcome_.z[m.layer], share_);
  if (m.name != "router_ids") return;
  const std::vector<int32_t> ids = reference::load_ints(m.value.tensor());
  std::vector<int32_t>& all = outcome_.ids[m.layer];
  all.insert(all.end(), ids.begin(), ids.end());
  const auto routes = routes_.find(m.layer);
  const int64_t k = m.value.dim(1);
  for (int64_t t = 0; routes != routes_.end() && t < m.value.dim(0); ++t, ++outcome_.routed)
    outcome_.rerouted +=
        !std::equal(ids.begin() + t * k, ids.begin() + (t + 1) * k, routes->second.begin() + t * k);
}

void ParityStep::seed(const Value& v, double cotangent) {
  Buffer& memory = cotangents_.emplace_back(v.meta().bytes());
  const Tensor t(memory.data(), v.shape(), v.dtype());
  reference::store(t, Array(static_cast<size_t>(t.numel()), cotangent));
  tape_.seed(v, t);
}

std::vector<Value> ParityStep::forward(const StageParts& parts, const std::vector<Value>& received) {
  StageForward stage(decoder_, parts, context_, ids_T_, received);
  for (int64_t depth = 0; depth <= stage.depths(); ++depth) {
    Value hidden_TD =
        stage.head_input(depth, depth > 0 ? batch_.mtp.at(static_cast<size_t>(depth) - 1).ids : Tensor());
    if (parts.loss) predict(depth, std::move(hidden_TD));
  }
  losses(stage.balance_losses());
  return parts.loss ? std::vector<Value>() : stage.live_values();
}

void ParityStep::predict(int64_t depth, Value hidden_TD) {
  const auto k = static_cast<size_t>(depth) - 1;
  const Tensor targets = depth > 0 ? batch_.mtp.at(k).targets : batch_.targets;
  const double weight = depth > 0 ? batch_.mtp[k].weight : 1;
  const HeadResult h = decoder_.head(context_, {.mode = HeadMode::store}, hidden_TD, tape_.leaf(targets));
  if (!dry())
    for (const double lp : reference::load(h.logprob_T.tensor())) outcome_.nll -= weight * lp;
  seed(h.logprob_T, -weight / static_cast<double>(inputs_.batch.valid_targets));
}

ParityOutcome one_rank_step(const ParityProblem& problem, const Decoder& decoder, const ParityInputs& inputs,
                            const WeightSet& weights, GradientBuffer& gradients) {
  ParityOutcome outcome;
  HeapArena arena;
  Tape tape(arena, parity_tape(problem, &gradients));
  gradients.begin_step();
  ParityStep step(decoder, inputs, weights, tape, 0, problem.rows, nullptr, outcome);
  step.forward(whole_model(decoder.config()), {});
  Backward(tape).run();
  gradients.finish_step();
  for (int i = 0; i < weights.size(); ++i)
    for (const double g : reference::load(gradients.gradient(i))) outcome.square_sum += g * g;
  return outcome;
}

OneRank::OneRank(const ParityProblem& p)
    : problem(p), decoder(config_of(p)), inputs(parity_inputs(p, decoder)) {
  WeightSet weights(decoder.table(), {}, p.precision);
  weights.initialize(5);
  for (int i = 0; i < weights.size(); ++i) {
    initial.push_back(reference::load(weights.master(i)));
    Array values = initial.back();
    if (decoder.table()[i].init.kind == Init::Kind::constant) {
      const Random random(5, RandomPurpose::test, static_cast<uint64_t>(i));
      for (size_t j = 0; j < values.size(); ++j) values[j] += 0.1 * random.normal(j);
    }
    reference::store(weights.master(i), values);
    start.push_back(std::move(values));
  }
  GradientBuffer buffer(decoder.table(), {}, p.precision.stream);
  outcome = one_rank_step(p, decoder, inputs, weights, buffer);
  const auto choices = static_cast<double>(decoder.config().moe.top_k * p.rows * kParityLength);
  for (const auto& [layer, counts] : outcome.counts)
    for (const double n : p.own_load ? Array() : counts)
      inputs.routers[layer].load.push_back(static_cast<float>(n / choices));
  outcome = one_rank_step(p, decoder, inputs, weights, buffer);
  for (int i = 0; i < weights.size(); ++i) {
    gradients.push_back(reference::load(buffer.gradient(i)));
    largest_gradient = std::max(largest_gradient, largest(gradients.back()));
  }
  if (!in_double())
    for (const auto& [layer, ids] : outcome.ids) inputs.routers[layer].ids = ids;
}

void OneRank::give_weights(WeightSet& weights) const {
  const ParameterTable& table = decoder.table();
  weights.initialize(5);
  for (int i = 0; i < table.size(); ++i) {
    const Array expected = part_of(table[i], weights.placement(), initial[static_cast<size_t>(i)]);
    const ElementRange range = kept(weights.layout(), i, problem.precision.stream);
    EXPECT_EQ(reference::load(part_of(weights.master(i), range)),
              Array(expected.begin() + range.begin, expected.begin() + range.end))
        << table[i].name;
  }
  for (size_t u = 0; u < weights.layout().buckets.size(); ++u) {
    for (const int i : weights.layout().buckets[u].parameters)
      reference::store(weights.master(i),
                       part_of(table[i], weights.placement(), start[static_cast<size_t>(i)]));
    weights.masters_written(static_cast<int>(u));
  }
}

void OneRank::expect_gradients(const GradientBuffer& buffer, const Placement& placement, int rank) const {
  const ParameterTable& table = decoder.table();
  const double bound = in_double() ? 1e-9 : 1e-5;
  for (int i = 0; i < table.size(); ++i) {
    if (!table[i].trainable) continue;
    const Array expected = part_of(table[i], placement, gradients[static_cast<size_t>(i)]);
    ASSERT_EQ(buffer.gradient(i).numel(), static_cast<int64_t>(expected.size())) << table[i].name;
    const ElementRange range = kept(buffer.layout(), i, problem.precision.stream);
    const Array found = reference::load(part_of(buffer.gradient(i), range));
    const double lost = in_double() ? 1e-6 : table[i].role == ParamRole::temperature ? 1e-2 : 1e-3;
    const double floor = lost * largest_gradient;
    double worst = 0;
    for (size_t j = 0; j < found.size(); ++j)
      worst = std::max(worst, std::abs(found[j] - expected[static_cast<size_t>(range.begin) + j]));
    EXPECT_LE(worst / std::max(largest(expected), floor), bound) << table[i].name << " on rank " << rank;
  }
}

}  // namespace ingot::test
