// See sampler.h. The state's JSON is in sampler_state.cpp.
#include "data/sampler.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "data/permutation.h"
#include "data/rows.h"

namespace ingot::data {
namespace {

constexpr uint64_t kEpochStep = 0xD1342543DE82EF95u;  // odd: the streams of a source's epochs never meet

/// The documents that do not fit, trimmed.
std::map<int64_t, Trimmed> trim_documents(const TokenSplit& split, const ReasoningMarks& marks,
                                          int64_t capacity) {
  std::map<int64_t, Trimmed> all;
  std::vector<int32_t> tokens;
  std::vector<bool> in_loss;
  for (int64_t d = 0; d < split.documents(); ++d) {
    const int64_t begin = split.document_begin(d), n = split.document_begin(d + 1) - begin;
    if (n <= capacity) continue;
    tokens.resize(static_cast<size_t>(n));
    in_loss.assign(static_cast<size_t>(n), true);
    split.read(begin, tokens);
    for (int64_t i = 0; split.prompts() && i < n; ++i)
      in_loss[static_cast<size_t>(i)] = split.in_loss(begin + i);
    all.emplace(d, trim(tokens, in_loss, marks, capacity));
  }
  return all;
}

/// Tokens of each group of documents that follow each other; 0: nothing of it is left.
std::vector<int64_t> group_lengths(const TokenSplit& split, int64_t group,
                                   const std::map<int64_t, Trimmed>& trimmed) {
  INGOT_CHECK(group >= 1 && split.documents() % group == 0, "{} documents in groups of {}", split.documents(),
              group);
  std::vector<int64_t> lengths(static_cast<size_t>(split.documents() / group));
  int64_t begin = 0;
  for (int64_t d = 0; d < split.documents(); ++d) {
    const int64_t end = split.document_begin(d + 1);
    const auto found = trimmed.find(d);
    lengths[static_cast<size_t>(d / group)] += found == trimmed.end() ? end - begin : found->second.tokens;
    begin = end;
  }
  return lengths;
}

template <class T>
void expect_same(const char* what, const T& saved, const T& now) {
  if (saved != now)
    throw Error(fmt::format("the saved data order has {} {}, but this run has {}", what, saved, now),
                "continue with the setting that was saved, or begin a new phase or run");
}

}  // namespace

Sampler::Sampler(std::vector<SamplerSource> sources, const SamplerOptions& options, const SamplerState* from)
    : options_(options) {
  if (options.sequence_length < 1)
    fail("sequence length is {}, expected at least 1", options.sequence_length);
  for (const SamplerSource& s : sources) INGOT_CHECK(s.split != nullptr);
  std::sort(sources.begin(), sources.end(),
            [](const auto& a, const auto& b) { return a.split->source() < b.split->source(); });
  std::vector<double> weights;
  for (SamplerSource& s : sources) {
    weights.push_back(s.weight);
    sources_.push_back({.split = std::move(s.split), .weight = s.weight, .windows = s.windows});
    Source& source = sources_.back();
    source.key = hash64(source.split->source());
    if (sources_.size() > 1 && sources_[sources_.size() - 2].split->source() == source.split->source())
      throw Error(fmt::format("two data sources are named '{}'", source.split->source()),
                  "rename one of them");
  }
  mixture_ = std::make_unique<const Mixture>(weights, options.seed);
  for (Source& source : sources_)
    if (source.weight > 0) prepare(source);
  if (from != nullptr) restore(*from);
}

void Sampler::prepare(Source& source) const {
  const int64_t S = options_.sequence_length;
  const TokenSplit& split = *source.split;
  if (packs(source)) {
    if (options_.marks) source.trimmed = trim_documents(split, *options_.marks, S);
    const std::vector<int64_t> lengths = group_lengths(split, options_.group, source.trimmed);
    source.packed = pack_best_fit(lengths, S, options_.drop_too_long);
    source.sequences = source.packed.rows();
    for (const int64_t g : source.packed.examples) source.packed_tokens += lengths[static_cast<size_t>(g)];
  } else {
    source.sequences = (split.tokens() - 1) / S;
  }
  if (split.tokens() < 1 || source.sequences < 1)
    throw Error(fmt::format("source '{}' has {} tokens in its {} split: not one sequence of {}",
                            split.source(), split.tokens(), split.name(), S),
                "shorten the sequence length or give more text");
}

void Sampler::restore(const SamplerState& from) {
  expect_same("seed", from.seed, options_.seed);
  expect_same("mode", std::string(name_of(from.mode)), std::string(name_of(options_.mode)));
  expect_same("sequence length", from.sequence_length, options_.sequence_length);
  phase_begin_ = from.phase_begin;
  std::map<std::string, SourceState> saved;
  for (const SourceState& s : from.sources) saved[s.name] = s;
  const bool inside_phase = from.samples > from.phase_begin;
  for (Source& source : sources_) {
    const std::string& name = source.split->source();
    const auto it = saved.find(name);
    const double saved_weight = it == saved.end() ? 0.0 : it->second.weight;
    if (inside_phase)
      expect_same(("for '" + name + "' in this phase weight").c_str(), saved_weight, source.weight);
    if (it == saved.end()) continue;
    if (it->second.content_hash != source.split->content_hash())
      throw Error(
          fmt::format("source '{}' no longer has the tokens that this training began with: content {} "
                      "then, {} now",
                      name, it->second.content_hash, source.split->content_hash()),
          "give it the same text and tokenizer again; new text goes into a source of its own");
    source.phase_begin = it->second.phase_begin;
    saved.erase(it);
  }
  for (auto& [name, state] : saved) {
    if (inside_phase && state.weight > 0)
      expect_same(("for '" + name + "' in this phase weight").c_str(), state.weight, 0.0);
    absent_.push_back(state);
    absent_.back().weight = 0;
  }
}

Batch Sampler::batch(int64_t first, int64_t rows) const {
  INGOT_CHECK(first >= phase_begin_ && rows >= 0, "samples {} + {}, phase begins at {}", first, rows,
              phase_begin_);
  Batch batch = make_batch(rows, options_.sequence_length);
  std::vector<int64_t> next(sources_.size());
  for (size_t s = 0; s < sources_.size(); ++s)
    next[s] = sources_[s].phase_begin + mixture_->count(s, first - phase_begin_);
  for (int64_t sample = first; sample < first + rows; ++sample) {
    const size_t s = mixture_->source_of(sample - phase_begin_);
    append_row(s, {static_cast<int32_t>(s), sample, next[s]++, -1, -1}, batch);
  }
  return batch;
}

void Sampler::append_row(size_t s, RowOrigin origin, Batch& batch) const {
  const Source& source = sources_[s];
  const int64_t S = options_.sequence_length;
  if (options_.mode == SampleMode::random) {
    const Random random(options_.seed, RandomPurpose::data_order, source.key);
    const auto places = static_cast<uint64_t>(source.split->tokens() - S);  // the last token is a target only
    const uint64_t offset = random.below(static_cast<uint64_t>(origin.source_sample), places);
    return append_window(*source.split, static_cast<int64_t>(offset), options_.rows, origin, batch);
  }
  const auto epoch = static_cast<uint64_t>(origin.source_sample / source.sequences);
  const Permutation order(source.sequences, options_.seed, source.key + epoch * kEpochStep);
  origin.sequence = order(origin.source_sample % source.sequences);
  if (!packs(source)) {
    append_window(*source.split, origin.sequence * S, options_.rows, origin, batch);
  } else {
    std::vector<int64_t> documents;
    for (const int64_t g : source.packed.row(origin.sequence))
      for (int64_t d = 0; d < options_.group; ++d) documents.push_back(g * options_.group + d);
    append_documents(*source.split, documents, options_.rows, origin, batch, source.trimmed);
  }
}

Sampler::PackedSource Sampler::packed(size_t s) const {
  const Source& source = sources_[s];
  PackedSource p{.documents = source.split->documents(), .dropped = source.packed.dropped * options_.group};
  for (const auto& [document, t] : source.trimmed) {
    p.shortened += t.rule == TrimRule::shortened;
    p.earlier_removed += t.rule == TrimRule::earlier_removed;
    p.dropped += t.rule == TrimRule::dropped;
    p.reasoning += t.reasoning;
    p.reasoning_left += t.left;
  }
  if (source.windows) p.fill = 1;
  const int64_t positions = source.packed.rows() * options_.sequence_length;
  if (positions > 0) p.fill = static_cast<double>(source.packed_tokens) / static_cast<double>(positions);
  return p;
}

SamplerState Sampler::state_at(int64_t samples) const {
  INGOT_CHECK(samples >= phase_begin_, "samples = {}, phase begins at {}", samples, phase_begin_);
  SamplerState state{options_.seed, options_.sequence_length, options_.mode, samples, phase_begin_, absent_};
  for (size_t s = 0; s < sources_.size(); ++s) {
    const Source& source = sources_[s];
    state.sources.push_back({source.split->source(), source.split->content_hash(), source.weight,
                             source.phase_begin,
                             source.phase_begin + mixture_->count(s, samples - phase_begin_)});
  }
  std::sort(state.sources.begin(), state.sources.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return state;
}

SamplerState next_phase(const SamplerState& state, int64_t sequence_length) {
  if (sequence_length < 1) fail("sequence length is {}, expected at least 1", sequence_length);
  SamplerState next = state;
  next.sequence_length = sequence_length;
  next.phase_begin = state.samples;
  for (SourceState& source : next.sources) {
    if (sequence_length != state.sequence_length) {
      __extension__ using Wide = __int128;  // a count read from a file may be large
      const Wide tokens = Wide{source.consumed} * state.sequence_length;
      source.consumed = static_cast<int64_t>((tokens + sequence_length - 1) / sequence_length);
    }
    source.phase_begin = source.consumed;
    source.weight = 0;
  }
  return next;
}

SamplerState next_phase(const SamplerState& state, int64_t sequence_length, SampleMode mode) {
  SamplerState next = next_phase(state, sequence_length);
  next.mode = mode;
  return next;
}

}  // namespace ingot::data
