// See parity.h.
#include "support/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace ingot::test {
namespace {

constexpr int64_t kLength = kParityLength;

class RecomputeAll final : public SlotPolicy {
 public:
  SlotFate fate(const Op&, int, const Segment&) const override { return SlotFate::recompute; }
};

ModelConfig config_of(const ParityProblem& p) {
  ModelConfig m = small_model_config(p.model);
  if (p.layers > 0) m.layers = p.layers;
  return m;
}

/// Rows with different numbers of documents, so ranks have different numbers of valid targets.
data::Batch batch_of(const ParityProblem& p) {
  std::vector<int64_t> documents;
  for (int64_t r = 0; r < p.rows; r += 4)
    for (const int64_t n : {12, 7, 5, 3, 3, 3, 3, 1, 1, 2, 8}) documents.push_back(n);
  data::Batch b = packed_batch(p.rows, kLength, documents, 61);
  if (p.mask_last) std::fill(b.targets.begin() + p.rows / 2 * kLength, b.targets.end(), data::kMasked);
  return b;
}

double largest(const Array& a) {
  double m = 0;
  for (const double v : a) m = std::max(m, std::abs(v));
  return m;
}

}  // namespace

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

void all_reduce(Communicator& group, Array& values) {
  const Tensor t = Tensor::of(values.data(), {static_cast<int64_t>(values.size())});
  group.all_reduce(t, t).wait();
}

TapeOptions parity_tape(const ParityProblem& problem, GradientSink* sink) {
  static const RecomputeAll recompute;
  return {.policy = problem.recompute ? &recompute : nullptr, .sink = sink};
}

ParityStep::ParityStep(const OneRank& one, const WeightSet& weights, Tape& tape, int64_t first, int64_t count,
                       const RankGroups* groups, ParityOutcome& outcome)
    : one_(one),
      tape_(tape),
      batch_(micro_batch(one.batch, first, count, one.ahead)),
      context_{tape, weights, &batch_.rows, tape.leaf(batch_.positions)},
      ids_T_(tape.leaf(batch_.ids)),
      outcome_(outcome) {
  if (groups != nullptr) groups->join(context_);
  const MoeConfig& moe = one.decoder.config().moe;
  for (const int64_t layer : one.decoder.moe_layers()) {
    RouterInputs& inputs = context_.routers[layer];
    if (!one.forced.empty())
      inputs.forced_ids_TK =
          Tensor::of(one.forced.data() + first * kLength * moe.top_k, {count * kLength, moe.top_k});
    if (one.load.count(layer)) inputs.load_E = Tensor::of(one.load.at(layer).data(), {moe.experts});
  }
}

void ParityStep::losses(DecoderOutput& out) {
  if (out.hidden_TD.defined()) {
    predict(out, batch_.targets, 1);
    for (size_t k = 0; k < batch_.ahead.size(); ++k) {
      const MicroBatch::Ahead& a = batch_.ahead[k];
      DecoderOutput next =
          one_.decoder.predict_ahead(context_, out.stream_TD, tape_.leaf(a.ids), static_cast<int64_t>(k) + 1);
      predict(next, a.targets, a.weight);
      out.stream_TD = std::move(next.stream_TD);
      std::move(next.balance.begin(), next.balance.end(), std::back_inserter(out.balance));
    }
  }
  for (const Metric& m : tape_.metrics()) {
    if (m.name != "router_counts" || dry()) continue;
    const Array counts = reference::load(m.value.tensor());
    Array& sum = outcome_.counts[m.layer];
    sum.resize(counts.size());
    for (size_t e = 0; e < counts.size(); ++e) sum[e] += counts[e];
  }
  const double share =
      static_cast<double>(batch_.rows.count) / static_cast<double>(one_.problem.rows * kLength);
  const auto seed = [&](const Value& v, double coefficient) {
    cotangents_.push_back(std::make_unique<Array>(1, coefficient * share));
    tape_.seed(v, Tensor::of(cotangents_.back()->data(), {1}));
  };
  for (const BalanceLosses& b : out.balance) {
    seed(b.aux, 0.01);
    seed(b.z, 0.001);
  }
}

void ParityStep::predict(DecoderOutput& out, const Tensor& targets, double weight) {
  const HeadResult h =
      one_.decoder.head(context_, {.mode = HeadMode::store}, out.hidden_TD, tape_.leaf(targets));
  if (!dry())
    for (const double lp : reference::load(h.logprob_T.tensor())) outcome_.nll -= weight * lp;
  const int64_t rows = batch_.rows.count;
  cotangents_.push_back(std::make_unique<Array>(static_cast<size_t>(rows),
                                                -weight / static_cast<double>(one_.batch.valid_targets)));
  tape_.seed(h.logprob_T, Tensor::of(cotangents_.back()->data(), {rows}));
}

OneRank::OneRank(const ParityProblem& p)
    : problem(p), decoder(config_of(p)), batch(batch_of(p)), ahead(look_ahead(batch, decoder.config().mtp)) {
  WeightSet weights(decoder.table(), {}, Precision::f64());
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
  const int64_t k = decoder.config().moe.top_k;
  if (p.starve)
    for (int64_t t = 0; t < p.rows * kLength; ++t)
      for (int64_t j = 0; j < k; ++j) forced.push_back(static_cast<int32_t>(j));
  GradientBuffer buffer(decoder.table(), {}, DType::f64);
  const auto run = [&] {
    HeapArena arena;
    Tape tape(arena, parity_tape(p, &buffer));
    outcome = {};
    buffer.begin_step();
    ParityStep step(*this, weights, tape, 0, p.rows, nullptr, outcome);
    {
      DecoderOutput out = decoder.forward(step.context(), step.ids_T());
      step.losses(out);
    }
    Cursor(tape).run();
    buffer.finish_step();
  };
  run();
  for (const auto& [layer, counts] : outcome.counts)
    for (const double n : counts)
      load[layer].push_back(static_cast<float>(n / static_cast<double>(k * p.rows * kLength)));
  run();
  for (int i = 0; i < weights.size(); ++i) {
    gradients.push_back(reference::load(buffer.gradient(i)));
    for (const double g : gradients.back()) outcome.square_sum += g * g;
    largest_gradient = std::max(largest_gradient, largest(gradients.back()));
  }
}

void OneRank::give_weights(WeightSet& weights) const {
  const ParameterTable& table = decoder.table();
  weights.initialize(5);
  for (int i = 0; i < table.size(); ++i) {
    const auto k = static_cast<size_t>(i);
    EXPECT_EQ(reference::load(weights.master(i)), part_of(table[i], weights.placement(), initial[k]))
        << table[i].name;
    reference::store(weights.master(i), part_of(table[i], weights.placement(), start[k]));
  }
}

void OneRank::expect_gradients(const GradientBuffer& buffer, const Placement& placement, int rank) const {
  const ParameterTable& table = decoder.table();
  for (int i = 0; i < table.size(); ++i) {
    if (!table[i].trainable) continue;
    const Array expected = part_of(table[i], placement, gradients[static_cast<size_t>(i)]);
    const Array found = reference::load(buffer.gradient(i));
    ASSERT_EQ(found.size(), expected.size()) << table[i].name;
    double worst = 0;
    for (size_t j = 0; j < found.size(); ++j) worst = std::max(worst, std::abs(found[j] - expected[j]));
    EXPECT_LE(worst / std::max(largest(expected), 1e-6 * largest_gradient), 1e-9)
        << table[i].name << " on rank " << rank;
  }
}

}  // namespace ingot::test
