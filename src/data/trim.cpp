// See trim.h.
#include "data/trim.h"

#include <algorithm>

namespace ingot::data {
namespace {

/// One think block: [open, close] with its tags, [first, last) what a cut may take, end: behind the white
/// space that follows.
struct ThinkBlock {
  int64_t open = 0, first = 0, last = 0, close = 0, end = 0;
  int64_t tokens() const { return last - first; }
};

std::vector<ThinkBlock> think_blocks(std::span<const int32_t> tokens, const std::vector<bool>& in_loss,
                                     const ReasoningMarks& marks) {
  const auto n = static_cast<int64_t>(tokens.size());
  const auto id = [&](int64_t i) { return tokens[static_cast<size_t>(i)]; };
  const auto space = [&](int64_t i) {
    return static_cast<size_t>(id(i)) < marks.space.size() && marks.space[static_cast<size_t>(id(i))];
  };
  std::vector<ThinkBlock> blocks;
  for (int64_t i = 0; i < n; ++i) {
    if (id(i) != marks.open) continue;
    ThinkBlock b{i, i + 1, i + 1, i + 1, n};
    while (b.close < n && id(b.close) != marks.close && id(b.close) != marks.open) ++b.close;
    if (b.close == n || id(b.close) != marks.close || !in_loss[static_cast<size_t>(b.close)]) continue;
    b.last = b.close;
    while (b.first < b.last && space(b.first)) ++b.first;
    while (b.last > b.first && space(b.last - 1)) --b.last;
    b.end = b.close + 1;
    while (b.end < n && space(b.end)) ++b.end;
    blocks.push_back(b);
    i = b.close;
  }
  return blocks;
}

/// Everything but these ranges, which ascend.
std::vector<Trimmed::Range> without(const std::vector<Trimmed::Range>& removed, int64_t tokens) {
  std::vector<Trimmed::Range> kept;
  int64_t at = 0;
  for (const Trimmed::Range& r : removed) {
    if (r.begin > at) kept.push_back({at, r.begin});
    at = std::max(at, r.end);
  }
  if (at < tokens) kept.push_back({at, tokens});
  return kept;
}

}  // namespace

Trimmed trim(std::span<const int32_t> tokens, const std::vector<bool>& in_loss, const ReasoningMarks& marks,
             int64_t capacity) {
  const auto n = static_cast<int64_t>(tokens.size());
  Trimmed t;
  std::vector<ThinkBlock> blocks;
  if (n > capacity) blocks = think_blocks(tokens, in_loss, marks);
  for (const ThinkBlock& b : blocks) t.reasoning += b.tokens();
  t.left = t.reasoning;
  t.tokens = n;
  if (n <= capacity) {
    t.kept = {{0, n}};
    return t;
  }
  std::vector<Trimmed::Range> removed;
  const auto shorten_last = [&](TrimRule rule) {
    if (blocks.empty()) return false;
    const ThinkBlock& last = blocks.back();
    const int64_t over = t.tokens - capacity;
    if (over > last.tokens()) return false;
    if (over > 0) removed.push_back({last.last - over, last.last});
    t.rule = rule;
    t.left -= std::max<int64_t>(0, over);
    t.tokens -= std::max<int64_t>(0, over);
    t.kept = without(removed, n);
    return true;
  };
  if (shorten_last(TrimRule::shortened)) return t;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    removed.push_back({blocks[i].open, blocks[i].end});
    t.tokens -= blocks[i].end - blocks[i].open;
    t.left -= blocks[i].tokens();
  }
  if (shorten_last(TrimRule::earlier_removed)) return t;
  t.rule = TrimRule::dropped;
  t.tokens = t.left = 0;
  return t;
}

}  // namespace ingot::data
