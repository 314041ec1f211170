// See schedule.h.
#include "infer/schedule.h"

#include <algorithm>

namespace ingot {

CallPlan plan_call(std::span<const ScheduleItem> items, int64_t token_budget, int64_t free_pages) {
  CallPlan plan;
  const auto consider = [&](size_t i) {
    const ScheduleItem& item = items[i];
    if (plan.missing > 0 && !item.begun) return;
    if (item.need <= free_pages) {
      const int64_t rows = std::min(item.pending, token_budget);
      free_pages -= item.need, token_budget -= rows;
      plan.rows.push_back({i, rows});
    } else if (plan.missing == 0) {
      plan.missing = item.need - free_pages;
      for (size_t younger = items.size(); item.begun && !plan.victim && --younger > i;)
        if (items[younger].held > 0) plan.victim = younger;
    }
  };
  for (const bool decodes : {true, false})
    for (size_t i = 0; i < items.size() && token_budget > 0; ++i)
      if (items[i].pending > 0 && items[i].decodes() == decodes) consider(i);
  return plan;
}

}  // namespace ingot
