// What the next call of the engine computes: rows of which sequences. Pure, without a model.
//
// First the next token of every sequence that decodes, oldest first, then pieces of the other sequences'
// known tokens, oldest first, until the call has `token_budget` rows. A sequence takes part if the pages for
// all tokens that it knows are free, less those promised to sequences before it. Of those that lack pages,
// one that has begun makes the youngest holder behind it give its pages back; one that has not begun waits,
// and those behind it do not begin before it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ingot {

struct ScheduleItem {
  int64_t cached = 0;   ///< tokens in pages
  int64_t pending = 0;  ///< known tokens that are not: 1 while it decodes; 0: it takes no part
  int64_t need = 0;     ///< free pages that hold the pending ones
  int64_t held = 0;     ///< pages that it has
  bool begun = false;   ///< it has computed a row of its own

  bool decodes() const { return pending == 1 && begun; }
};

struct CallPlan {
  struct Rows {
    size_t item = 0;
    int64_t count = 0;
  };
  std::vector<Rows> rows;
  int64_t missing = 0;           ///< pages that the first sequence without enough of them lacks
  std::optional<size_t> victim;  ///< where that one has begun: the youngest behind it that holds pages
};

/// `items`: oldest first.
CallPlan plan_call(std::span<const ScheduleItem> items, int64_t token_budget, int64_t free_pages);

}  // namespace ingot
