// See sequence_rows.h.
#include "data/sequence_rows.h"

#include <algorithm>

#include "base/error.h"
#include "base/round.h"
#include "data/packing.h"

namespace ingot::data {
namespace {

struct ColumnPair {
  std::span<const float> TokenSequence::*from;
  std::vector<float> TokenColumns::*to;
};
constexpr ColumnPair kFloatColumns[] = {{&TokenSequence::weight, &TokenColumns::weight},
                                        {&TokenSequence::advantage, &TokenColumns::advantage},
                                        {&TokenSequence::recorded, &TokenColumns::recorded},
                                        {&TokenSequence::reference, &TokenColumns::reference},
                                        {&TokenSequence::cotangent, &TokenColumns::cotangent}};

/// Tokens of each group. Error where one does not fit.
std::vector<int64_t> lengths_of_groups(std::span<const TokenSequence> sequences,
                                       const SequenceRowsOptions& o) {
  INGOT_CHECK(o.budget > 0 && o.rows_multiple > 0 && o.group > 0);
  INGOT_CHECK(sequences.size() % static_cast<size_t>(o.group) == 0, "{} sequences in groups of {}",
              sequences.size(), o.group);
  std::vector<int64_t> lengths(sequences.size() / static_cast<size_t>(o.group), 0);
  for (size_t i = 0; i < sequences.size(); ++i)
    lengths[i / static_cast<size_t>(o.group)] += static_cast<int64_t>(sequences[i].tokens.size());
  for (size_t g = 0; g < lengths.size(); ++g)
    if (lengths[g] > o.budget)
      throw Error(
          fmt::format("sequence {}{} has {} tokens, more than a row of {}", g * static_cast<size_t>(o.group),
                      o.group > 1 ? " with those that belong to it" : "", lengths[g], o.budget),
          "use a larger `sequence` of the phase, which is the budget of a row, or shorter sequences");
  return lengths;
}

/// An empty column of the batch for every array that the sequences have.
void open_columns(std::span<const TokenSequence> sequences, Batch& batch) {
  const size_t size = batch.tokens.size();
  batch.columns.sequence.assign(size, -1);
  if (sequences.empty()) return;
  for (const ColumnPair& c : kFloatColumns)
    if (!(sequences[0].*c.from).empty()) (batch.columns.*c.to).assign(size, 0.0F);
  if (!sequences[0].version.empty()) batch.columns.version.assign(size, -1);
}

/// One sequence from position `at` on.
void place(const TokenSequence& s, int32_t index, size_t at, Batch& batch) {
  const size_t n = s.tokens.size();
  TokenColumns& columns = batch.columns;
  std::copy(s.tokens.begin(), s.tokens.end(), batch.tokens.begin() + static_cast<std::ptrdiff_t>(at));
  for (size_t i = 0; i < n; ++i) {
    batch.positions[at + i] = static_cast<int32_t>(i);
    columns.sequence[at + i] = index;
    if (i == 0 || (!s.in_loss.empty() && s.in_loss[i] == 0)) continue;
    batch.targets[at + i - 1] = s.tokens[i];
    ++batch.valid_targets;
    for (const ColumnPair& c : kFloatColumns)
      if (!(s.*c.from).empty()) (columns.*c.to)[at + i - 1] = (s.*c.from)[i];
    if (!s.version.empty()) columns.version[at + i - 1] = s.version[i];
  }
  const auto begin = static_cast<int32_t>(at), end = static_cast<int32_t>(at + n);
  batch.spans.push_back({begin, end});
  batch.pieces.push_back({begin, end, index});
}

void require_columns(const TokenSequence& s, const TokenSequence& first) {
  const auto same = [&](const auto& mine, const auto& others) {
    return mine.empty() == others.empty() && (mine.empty() || mine.size() == s.tokens.size());
  };
  bool all = (s.in_loss.empty() || s.in_loss.size() == s.tokens.size()) && same(s.version, first.version);
  for (const ColumnPair& c : kFloatColumns) all = all && same(s.*c.from, first.*c.from);
  INGOT_CHECK(all, "a sequence of {} tokens lacks a column, or has values for other than its tokens",
              s.tokens.size());
}

}  // namespace

Batch pack_sequences(std::span<const TokenSequence> sequences, const SequenceRowsOptions& o) {
  const PackedRows packed = pack_best_fit(lengths_of_groups(sequences, o), o.budget, false);
  Batch batch;
  batch.rows = round_up(std::max<int64_t>(1, packed.rows()), o.rows_multiple);
  batch.sequence_length = o.budget;
  const auto size = static_cast<size_t>(batch.rows * o.budget);
  batch.tokens.assign(size, 0);
  batch.targets.assign(size, kMasked);
  batch.positions.assign(size, 0);
  open_columns(sequences, batch);
  for (int64_t row = 0; row < batch.rows; ++row) {
    int64_t at = row * o.budget;
    const int64_t end = at + o.budget;
    if (row < packed.rows())
      for (const int64_t group : packed.row(row))
        for (int64_t i = group * o.group; i < (group + 1) * o.group; ++i) {
          const TokenSequence& s = sequences[static_cast<size_t>(i)];
          require_columns(s, sequences[0]);
          if (s.tokens.empty()) continue;
          place(s, static_cast<int32_t>(i), static_cast<size_t>(at), batch);
          at += static_cast<int64_t>(s.tokens.size());
        }
    if (at == end) continue;
    for (int64_t i = at; i < end; ++i) batch.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i - at);
    batch.spans.push_back({static_cast<int32_t>(at), static_cast<int32_t>(end)});
    batch.pieces.push_back({static_cast<int32_t>(at), static_cast<int32_t>(end), -1});
  }
  return batch;
}

}  // namespace ingot::data
