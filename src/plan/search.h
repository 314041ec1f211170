// The layouts of a recipe on a number of devices, ranked by tokens per second among those that fit: every
// division of the ranks over tensor, pipeline and expert ranks, chunks, sharding, micro-batch,
// recomputation. A layout is planned and simulated as any other (run_plan.h, run_time.h), one rank for each
// stage; what cannot beat the best found is not simulated. A pure function of recipe and cluster: the same
// answer each time.
#pragma once
#include <string>
#include <vector>

#include "plan/run_time.h"

namespace ingot {

struct SearchResult {
  struct Layout {
    std::vector<std::string> fields;  ///< what it changes of the recipe: "--parallel.tensor=2"
    std::string text;                 ///< "data 192 x tensor 2, micro-batch 3"
    std::string family;  ///< kinds of parallelism beside data: "tensor", "pipeline + tensor", "none"
    int kinds = 0;       ///< of parallelism, sharding and recomputation
    int64_t bytes = 0;   ///< of the fullest rank, without the checkpoint's copy
    double step_seconds = 0, tokens_per_second = 0, utilisation = 0;
  };
  std::vector<Layout> best;  ///< by tokens per second, at most ten
  struct Rejected {
    std::string family, reason;
  };
  std::vector<Rejected>
      rejected;  ///< families of which none is among the best, with the reason of the nearest
  int tried = 0, refused = 0, too_large = 0, too_slow = 0, simulated = 0;
};

/// Layouts with less than 1 % between them count as equally fast: the one with fewer kinds is first. Throws
/// Error where none fits, with the one that is nearest.
SearchResult search_layouts(const Recipe& recipe, int ranks, const Cluster& cluster,
                            const TimeFor& what = {});

std::string to_text(const SearchResult& result);

}  // namespace ingot
