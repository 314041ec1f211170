// A plan as one self-contained HTML page in the style of the report (report/report.h): what the text says,
// drawn. Pure functions.
#pragma once
#include <string>

#include "plan/budget.h"
#include "plan/search.h"

namespace ingot {

/// What a page shows; the parts that are nullptr are left out.
struct PlanPage {
  std::string recipe, cluster;  ///< names
  const RunPlan* plan = nullptr;
  int rank = -1;                  ///< drawn in full; -1: the fullest
  const RunTime* time = nullptr;  ///< with spans: TimeFor::traces
  const RunBudget* budget = nullptr;
  const SearchResult* search = nullptr;
};
std::string render_plan_page(const PlanPage& page);

}  // namespace ingot
