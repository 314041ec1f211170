// Answer-preserving trimming by its four rules, and rows of sequences that a program has in memory.
#include "data/trim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "data/packing.h"
#include "data/sequence_rows.h"

namespace ingot::test::trim_test {
namespace {

constexpr int32_t kOpen = 1, kClose = 2, kSpace = 3, kUser = 4, kAnswer = 5, kThought = 6;

data::ReasoningMarks marks() {
  data::ReasoningMarks m{kOpen, kClose, std::vector<bool>(8, false)};
  m.space[kSpace] = true;
  return m;
}

/// A turn of the user, then one of the assistant with n tokens of reasoning (0: no think block).
void add_turn(std::vector<int32_t>& tokens, std::vector<bool>& in_loss, int64_t thoughts, int64_t answer) {
  tokens.insert(tokens.end(), 3, kUser);
  in_loss.resize(tokens.size(), false);
  if (thoughts > 0) {
    tokens.push_back(kOpen), tokens.push_back(kSpace);
    tokens.insert(tokens.end(), static_cast<size_t>(thoughts), kThought);
    tokens.push_back(kSpace), tokens.push_back(kClose), tokens.push_back(kSpace);
  }
  tokens.insert(tokens.end(), static_cast<size_t>(answer), kAnswer);
  in_loss.resize(tokens.size(), true);
}

std::vector<int32_t> kept(const std::vector<int32_t>& tokens, const data::Trimmed& t) {
  std::vector<int32_t> out;
  for (const auto& r : t.kept) out.insert(out.end(), tokens.begin() + r.begin, tokens.begin() + r.end);
  return out;
}

}  // namespace

TEST(Trim, ShortensTheLastReasoningThenRemovesEarlierOnes) {
  std::vector<int32_t> tokens;
  std::vector<bool> in_loss;
  add_turn(tokens, in_loss, 10, 4);
  add_turn(tokens, in_loss, 20, 5);
  const auto size = static_cast<int64_t>(tokens.size());
  EXPECT_EQ(size, 2 * 3 + 15 + 25 + 9);
  const auto at = [&](int64_t capacity) { return data::trim(tokens, in_loss, marks(), capacity); };
  const auto count = [&](const data::Trimmed& t, int32_t id) {
    const auto all = kept(tokens, t);
    return std::count(all.begin(), all.end(), id);
  };
  EXPECT_EQ(at(size).rule, data::TrimRule::whole);
  for (int64_t capacity = 1; capacity < size; ++capacity) {
    const data::Trimmed t = at(capacity);
    SCOPED_TRACE(capacity);
    if (t.rule == data::TrimRule::dropped) {
      EXPECT_LT(capacity, 2 * 3 + 9 + 5) << "the answers and an empty think block fit";
      EXPECT_EQ(t.tokens, 0);
      continue;
    }
    EXPECT_EQ(t.tokens, static_cast<int64_t>(kept(tokens, t).size()));
    EXPECT_LE(t.tokens, capacity);
    EXPECT_EQ(count(t, kAnswer), 9);
    EXPECT_EQ(count(t, kUser), 6);
    if (capacity >= size - 20) {
      EXPECT_EQ(t.rule, data::TrimRule::shortened);
      EXPECT_EQ(t.tokens, capacity) << "as much as fits is kept";
      EXPECT_EQ(count(t, kThought), 30 - (size - capacity));
      EXPECT_EQ(count(t, kOpen), 2);
    } else {
      EXPECT_EQ(t.rule, data::TrimRule::earlier_removed);
      EXPECT_EQ(count(t, kOpen), 1);
      EXPECT_EQ(count(t, kSpace), 3) << "white space goes with its block";
    }
    EXPECT_EQ(t.left, count(t, kThought));
    EXPECT_EQ(t.reasoning, 30);
  }
}

TEST(Trim, IsIdempotent) {
  std::vector<int32_t> tokens;
  std::vector<bool> in_loss;
  add_turn(tokens, in_loss, 8, 4);
  add_turn(tokens, in_loss, 30, 5);
  const auto size = static_cast<int64_t>(tokens.size());
  for (int64_t first = 1; first <= size; ++first)
    for (int64_t second = 1; second <= first; ++second) {
      const data::Trimmed once = data::trim(tokens, in_loss, marks(), first),
                          direct = data::trim(tokens, in_loss, marks(), second);
      // From the rule that removes earlier reasoning on, more is left of the last one than the first cut
      // left.
      if (once.rule != direct.rule && once.rule != data::TrimRule::whole) continue;
      const std::vector<int32_t> part = kept(tokens, once);
      std::vector<bool> part_loss;
      for (const auto& r : once.kept)
        part_loss.insert(part_loss.end(), in_loss.begin() + r.begin, in_loss.begin() + r.end);
      const data::Trimmed twice = data::trim(part, part_loss, marks(), second);
      EXPECT_EQ(kept(part, twice), kept(tokens, direct)) << first << " then " << second;
    }
}

TEST(Trim, LeavesReasoningOfPromptsAlone) {
  std::vector<int32_t> tokens;
  std::vector<bool> in_loss;
  add_turn(tokens, in_loss, 10, 4);
  in_loss.assign(tokens.size(), false);
  EXPECT_EQ(data::trim(tokens, in_loss, marks(), 12).rule, data::TrimRule::dropped);
}

/// Lengths as of supervised data: many short conversations, some traces near a row's length.
TEST(SequenceRows, AreFull) {
  std::vector<int64_t> lengths;
  const Random random(5, RandomPurpose::test);
  int64_t tokens = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const double u = static_cast<double>(random.below(i, 1 << 20)) / (1 << 20);
    lengths.push_back(60 + static_cast<int64_t>(4000 * std::pow(u, 6)));
    tokens += lengths.back();
  }
  const data::PackedRows rows = data::pack_best_fit(lengths, 4096, false);
  EXPECT_GE(static_cast<double>(tokens) / static_cast<double>(rows.rows() * 4096), 0.98);
}

TEST(SequenceRows, HoldWholeSequencesWithTheirColumns) {
  const std::vector<int32_t> a = {10, 11, 12, 13, 14}, b = {20, 21, 22}, c = {30, 31, 32, 33};
  const std::vector<uint8_t> counted_a = {0, 0, 1, 1, 1}, counted_b = {0, 1, 1}, counted_c = {0, 0, 0, 1};
  const auto numbers = [](float first, size_t n) {
    std::vector<float> v;
    for (size_t i = 0; i < n; ++i) v.push_back(first + static_cast<float>(i));
    return v;
  };
  const std::vector<float> ra = numbers(100, 5), rb = numbers(200, 3), rc = numbers(300, 4);
  const std::vector<int32_t> va(5, 7), vb(3, 8), vc(4, 9);
  const data::TokenSequence list[] = {{.tokens = a, .in_loss = counted_a, .recorded = ra, .version = va},
                                      {.tokens = b, .in_loss = counted_b, .recorded = rb, .version = vb},
                                      {.tokens = c, .in_loss = counted_c, .recorded = rc, .version = vc}};
  const data::Batch batch = data::pack_sequences(list, {.budget = 8, .rows_multiple = 4});
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.valid_targets, 3 + 2 + 1);
  EXPECT_TRUE(batch.columns.weight.empty());
  std::vector<bool> seen(3, false);
  int64_t end = 0;
  for (const data::Span& s : batch.spans) {
    EXPECT_EQ(s.begin, end) << "spans tile the rows";
    EXPECT_EQ(s.begin / 8, (s.end - 1) / 8);
    end = s.end;
    const int32_t index = batch.columns.sequence[static_cast<size_t>(s.begin)];
    if (index < 0) continue;
    seen[static_cast<size_t>(index)] = true;
    const data::TokenSequence& from = list[index];
    ASSERT_EQ(static_cast<size_t>(s.end - s.begin), from.tokens.size());
    for (size_t i = 0; i < from.tokens.size(); ++i) {
      const size_t t = static_cast<size_t>(s.begin) + i;
      EXPECT_EQ(batch.tokens[t], from.tokens[i]);
      EXPECT_EQ(batch.positions[t], static_cast<int32_t>(i));
      const bool predicts = i + 1 < from.tokens.size() && from.in_loss[i + 1] != 0;
      EXPECT_EQ(batch.targets[t], predicts ? from.tokens[i + 1] : data::kMasked);
      EXPECT_EQ(batch.columns.recorded[t], predicts ? from.recorded[i + 1] : 0.0F);
      EXPECT_EQ(batch.columns.version[t], predicts ? from.version[i + 1] : -1);
    }
  }
  EXPECT_EQ(end, 32);
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
  const data::TokenSequence pair[] = {{.tokens = a}, {.tokens = c}};
  EXPECT_THROW(data::pack_sequences(pair, {.budget = 8, .rows_multiple = 1, .group = 2}), Error);
}

}  // namespace ingot::test::trim_test
