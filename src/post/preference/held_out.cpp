// See held_out.h.
#include "post/preference/held_out.h"

#include <algorithm>

#include "post/objectives/preference_objective.h"

namespace ingot {
namespace {

constexpr int32_t kHeldOut = 1 << 20;  // sources of training splits have smaller numbers

bool is_read(const SourceConfig& source, const PhaseConfig& phase) {
  if (!source.preferences) return false;
  if (phase.weights.empty()) return source.weight > 0;
  return std::any_of(phase.weights.begin(), phase.weights.end(),
                     [&](const SourceWeight& w) { return w.source == source.name && w.weight > 0; });
}

}  // namespace

HeldOutPairs::HeldOutPairs(const SourceContext& context) : context_(context) {
  const Recipe& r = context.recipe();
  const PhaseConfig& phase = context.config();
  data::SamplerOptions o = sampler_options(r, context.data, context.sampler.phase());
  o.drop_too_long = true;
  for (size_t i = 0; i < r.data.sources.size(); ++i) {
    const data::Dataset& set = context.data.sources[i];
    if (is_read(r.data.sources[i], phase) && set.has_split("validation"))
      sources_.push_back(
          {set.name(), kHeldOut + static_cast<int32_t>(i), data::Sampler({{set.validation(), 1.0}}, o)});
  }
}

data::Batch HeldOutPairs::batch(const Source& source, int64_t first) const {
  data::Batch rows = source.rows.batch(first, context_.recipe().data_ranks());
  for (data::RowOrigin& origin : rows.origins) origin.source = source.key;
  return rows;
}

void HeldOutPairs::add_reference(ReferenceLogprobs& reference) const {
  for (const Source& source : sources_)
    for (int64_t row = 0; row < source.rows.epoch_samples(0); row += context_.recipe().data_ranks()) {
      const data::Batch rows = batch(source, row);
      add_documents(rows, context_.engine.logprobs(rows, 1), reference);
    }
}

bool HeldOutPairs::measure(const ReferenceLogprobs* reference, bool complete, MetricRow& row,
                           const std::function<bool()>& stops) const {
  MetricRow filled = row;
  const auto objective = preference_objective(*context_.config().preference);
  const int64_t ranks = context_.recipe().data_ranks(), length = context_.config().sequence,
                most = context_.recipe().evaluation.max_tokens;
  for (const Source& source : sources_) {
    int64_t rows = source.rows.epoch_samples(0);
    if (!complete && most > 0) rows = std::min(rows, std::max<int64_t>(1, most / length));
    std::vector<double> sums(objective->sums.size(), 0.0);
    double loss = 0;
    for (int64_t first = 0; first < rows; first += ranks) {
      if (stops()) return false;
      data::Batch b = batch(source, first);
      const std::vector<float> logprob = context_.engine.logprobs(b, 1);
      number_pairs(b);
      if (reference != nullptr) fill_reference(*reference, b);
      const auto n =
          static_cast<size_t>(std::min(ranks, rows - first) * length);  // rows that begin anew left out
      const auto part = [n](const auto& column) {
        return column.empty() ? std::span(column) : std::span(column).first(n);
      };
      ObjectiveInputs in{part(logprob), part(logprob), part(b.targets)};
      in.columns.reference = part(b.columns.reference);
      in.columns.sequence = part(b.columns.sequence);
      const ObjectiveResult r = objective->evaluate(in);
      loss += r.loss;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += r.sums[i];
    }
    const auto sum = [&](PreferenceSum what) { return sums[static_cast<size_t>(what)]; };
    const double pairs = sum(PreferenceSum::pairs);
    if (pairs == 0) continue;
    filled.set(fmt::format("val/{}/preference_loss", source.name), loss / pairs);
    filled.set(fmt::format("val/{}/accuracy", source.name), sum(PreferenceSum::correct) / pairs);
    filled.set(fmt::format("val/{}/margin", source.name), sum(PreferenceSum::margin) / pairs);
  }
  row = std::move(filled);
  return true;
}

}  // namespace ingot
