// See preference_source.h. The file of the reference is in reference_file.cpp.
#include "post/preference/preference_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "data/sequence_rows.h"
#include "post/objectives/preference_loss.h"
#include "post/preference/held_out.h"
#include "post/preference/preference_metrics.h"
#include "post/preference/reference_file.h"

namespace ingot {
namespace {

using DocumentKey = std::pair<int32_t, int64_t>;

DocumentKey key_of(const data::Batch& batch, const data::DocumentPiece& piece) {
  return {batch.origins[static_cast<size_t>(piece.begin / batch.sequence_length)].source, piece.document};
}

double sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += v;
  return sum;
}

[[noreturn]] void fail_without_reference() {
  throw Error(
      "the reference of this phase has no log-probabilities of the next step's pairs: steps were added",
      "undo that; or go back to the end of the phase before it, where the reference begins: ingot run RUN "
      "--from STEP");
}

/// Rows of a forward pass without gradients.
constexpr int64_t kForwardRows = 1;

}  // namespace

PairCount number_pairs(data::Batch& batch) {
  PairCount n;
  batch.columns.sequence.assign(batch.tokens.size(), -1);
  int64_t last_row = -1, last_pair = -1;
  for (const data::DocumentPiece& piece : batch.pieces) {
    if (piece.document < 0) continue;
    const int64_t row = piece.begin / batch.sequence_length, pair = piece.document / 2;
    if (row != last_row || pair != last_pair) ++n.pairs;
    last_row = row, last_pair = pair;
    ++n.sequences;
    std::fill(batch.columns.sequence.begin() + piece.begin, batch.columns.sequence.begin() + piece.end,
              static_cast<int32_t>(2 * (n.pairs - 1) + piece.document % 2));
  }
  return n;
}

namespace {

/// A sequence of a numbered batch.
struct AnsweredPrompt {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;  ///< of the same positions
  size_t prompt = 0;                 ///< its first tokens
  int32_t pair = 0, side = 0;
};

std::vector<AnsweredPrompt> answered_prompts(const data::Batch& batch) {
  std::vector<AnsweredPrompt> all;
  for (const data::DocumentPiece& piece : batch.pieces) {
    if (piece.document < 0) continue;
    const auto begin = static_cast<size_t>(piece.begin), size = static_cast<size_t>(piece.end - piece.begin);
    AnsweredPrompt p{std::span(batch.tokens).subspan(begin, size),
                     std::span(batch.targets).subspan(begin, size)};
    while (p.prompt + 1 < size && batch.targets[begin + p.prompt] < 0) ++p.prompt;
    ++p.prompt;  // the first target stands behind the position that predicts it
    p.pair = batch.columns.sequence[begin] / 2;
    p.side = batch.columns.sequence[begin] % 2;
    all.push_back(p);
  }
  return all;
}

/// The next sequence of another pair, of the same side where there is one; -1: there is no other pair.
int64_t mismatch_of(const std::vector<AnsweredPrompt>& all, size_t i) {
  for (const bool same_side : {true, false})
    for (size_t k = 1; k < all.size(); ++k) {
      const size_t j = (i + k) % all.size();
      if (all[j].pair != all[i].pair && (!same_side || all[j].side == all[i].side))
        return static_cast<int64_t>(j);
    }
  return -1;
}

}  // namespace

data::Batch mismatched_batch(const data::Batch& batch, int64_t rows_multiple, int64_t& sequences) {
  const std::vector<AnsweredPrompt> all = answered_prompts(batch);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> in_loss;
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t j = mismatch_of(all, i);
    if (j < 0) continue;
    const AnsweredPrompt& other = all[static_cast<size_t>(j)];
    const std::span<const int32_t> prompt = all[i].tokens.first(all[i].prompt),
                                   answer = other.tokens.subspan(other.prompt);
    if (static_cast<int64_t>(prompt.size() + answer.size()) > batch.sequence_length) continue;
    tokens.emplace_back(prompt.begin(), prompt.end());
    in_loss.emplace_back(prompt.size(), uint8_t{0});
    tokens.back().insert(tokens.back().end(), answer.begin(), answer.end());
    for (size_t k = other.prompt; k < other.tokens.size(); ++k)
      in_loss.back().push_back(other.targets[k - 1] >= 0);
  }
  std::vector<data::TokenSequence> list;
  for (size_t i = 0; i < tokens.size(); ++i) list.push_back({.tokens = tokens[i], .in_loss = in_loss[i]});
  sequences = static_cast<int64_t>(list.size());
  return data::pack_sequences(list, {batch.sequence_length, rows_multiple, 1});
}

void add_documents(const data::Batch& batch, const std::vector<float>& logprobs,
                   ReferenceLogprobs& reference) {
  for (const data::DocumentPiece& piece : batch.pieces)
    if (piece.document >= 0)
      reference.documents[key_of(batch, piece)].assign(logprobs.begin() + piece.begin,
                                                       logprobs.begin() + piece.end);
}

void fill_reference(const ReferenceLogprobs& reference, data::Batch& batch) {
  batch.columns.reference.assign(batch.tokens.size(), 0.0F);
  for (const data::DocumentPiece& piece : batch.pieces) {
    if (piece.document < 0) continue;
    const auto found = reference.documents.find(key_of(batch, piece));
    if (found == reference.documents.end() ||
        static_cast<int32_t>(found->second.size()) != piece.end - piece.begin)
      fail_without_reference();
    std::copy(found->second.begin(), found->second.end(), batch.columns.reference.begin() + piece.begin);
  }
}

PreferenceSource::~PreferenceSource() = default;

PreferenceSource::PreferenceSource(const SourceContext& context)
    : context_(context), held_out_(std::make_unique<const HeldOutPairs>(context)) {
  const PreferenceLoss loss = context.config().preference->loss;
  needs_reference_ = needs_reference(loss);
  needs_baseline_ = loss == PreferenceLoss::kto;
}

data::Batch PreferenceSource::next(int64_t step) {
  if (needs_reference_ && reference_ == nullptr) obtain_reference(step);
  data::Batch batch = context_.sampler.batch(step);
  const PairCount n = number_pairs(batch);
  batch.divisor = static_cast<double>(needs_baseline_ ? n.sequences : n.pairs);
  if (!needs_reference_) return batch;
  fill_reference(*reference_, batch);
  if (needs_baseline_) batch.baseline = baseline_ = baseline(batch, step);
  return batch;
}

double PreferenceSource::baseline(const data::Batch& batch, int64_t step) {
  int64_t n = 0;
  const data::Batch other = mismatched_batch(batch, context_.recipe().data_ranks() * kForwardRows, n);
  if (n == 0) return 0;
  const auto index = static_cast<size_t>(step - context_.sampler.first_step());
  if (index >= reference_->mismatched.size()) fail_without_reference();
  const double policy = sum_of(context_.engine.logprobs(other, kForwardRows));
  return std::max(0.0, (policy - reference_->mismatched[index]) / static_cast<double>(n));
}

void PreferenceSource::obtain_reference(int64_t step) {
  if (!restored_hash_.empty()) return read_reference();
  compute_reference(step);
  keep_reference();
}

void PreferenceSource::compute_reference(int64_t step) {
  const PhaseSampler& sampler = context_.sampler;
  const int64_t first = sampler.first_step(), end = sampler.end_step();
  auto all = std::make_unique<ReferenceLogprobs>();
  if (needs_baseline_) all->mismatched.assign(static_cast<size_t>(end - first), 0.0);
  Progress progress("log-probabilities of the reference", end - step);
  for (int64_t s = step; s < end; ++s) {
    data::Batch batch = sampler.batch(s);
    const bool seen = std::all_of(batch.pieces.begin(), batch.pieces.end(), [&](const auto& piece) {
      return piece.document < 0 || all->documents.contains(key_of(batch, piece));
    });
    if (!seen) add_documents(batch, context_.engine.logprobs(batch, kForwardRows), *all);
    if (needs_baseline_) {
      number_pairs(batch);
      int64_t n = 0;
      const data::Batch other = mismatched_batch(batch, context_.recipe().data_ranks() * kForwardRows, n);
      if (n > 0)
        all->mismatched[static_cast<size_t>(s - first)] =
            sum_of(context_.engine.logprobs(other, kForwardRows));
    }
    progress.update(s - step + 1);
  }
  progress.finish();
  held_out_->add_reference(*all);
  reference_ = std::move(all);
}

std::string PreferenceSource::path() const {
  return fmt::format("{}/reference/phase-{}.safetensors", context_.recipe().run.folder,
                     context_.sampler.phase() + 1);
}

void PreferenceSource::keep_reference() {
  hash_ = reference_hash(*reference_);
  if (context_.engine.ranks().leads()) write_reference(context_.fs, path(), *reference_);
}

void PreferenceSource::read_reference() {
  reference_ = std::make_unique<const ReferenceLogprobs>(ingot::read_reference(context_.fs, path()));
  hash_ = reference_hash(*reference_);
  if (hash_ != restored_hash_)
    throw Error(fmt::format("'{}' is not what the run had when it wrote '{}'", path(), restored_where_),
                "go back to the end of the phase before it: ingot run RUN --from STEP");
}

std::string PreferenceSource::state() const {
  if (!needs_reference_) return {};
  return nlohmann::json{{"reference", hash_.empty() ? restored_hash_ : hash_}}.dump();
}

void PreferenceSource::restore(const std::string& state, const std::string& where) {
  const auto j = nlohmann::json::parse(state, nullptr, false);
  if (!j.is_object() || !j.contains("reference") || !j["reference"].is_string())
    fail("'{}': the state 'source' is damaged", where);
  restored_hash_ = j["reference"].get<std::string>();
  restored_where_ = where;
}

bool PreferenceSource::validate(MetricRow& row, bool complete, const std::function<bool()>& stops) {
  if (needs_reference_ && reference_ == nullptr) read_reference();  // the phase's first batch has made it
  return held_out_->measure(reference_.get(), complete, row, stops);
}

void PreferenceSource::observe(const StepOutcome& outcome, MetricRow& row) {
  add_preference_metrics(outcome, needs_reference_, row);
  if (needs_baseline_) row.set("preference/kl", baseline_);
}

}  // namespace ingot
