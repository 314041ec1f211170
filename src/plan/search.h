// The layouts of a recipe on a number of devices, ranked by tokens per second among those that fit: every
// division of the ranks over tensor, pipeline and expert ranks, chunks, sharding, micro-batch,
// recomputation. A layout is simulated and planned as any other (run_time.h, rank_plan.h), one rank for each
// kind of stage, the fastest first: by bounds from the work of all products and of all layers, then by its
// simulated time, and only those whose time would be among the best by their memory. A pure function of
// recipe and cluster: the same answer each time. The phase that takes the most memory stands for all.
#pragma once
#include <string>
#include <vector>

#include "plan/run_time.h"

namespace ingot {

struct SearchResult {
  struct Layout {
    std::vector<std::string> fields;  ///< what it changes of the recipe: "--parallel.tensor=2"
    std::string text;                 ///< "data 192 x tensor 2, micro-batch 3"
    std::string family;   ///< kinds of parallelism beside data: "tensor", "pipeline + tensor", "none"
    int model_ranks = 1;  ///< that divide a copy of the model: tensor x pipeline
    int kinds = 0;        ///< of parallelism, sharding and recomputation
    int64_t bytes = 0;    ///< of the fullest rank, without the checkpoint's copy
    double step_seconds = 0, tokens_per_second = 0, utilisation = 0;
  };
  int ranks = 0;
  std::string phase, cluster;   ///< the phase that stands for all, and the name of the cluster
  int64_t capacity = 0;         ///< bytes of a device
  std::vector<Layout> best;     ///< by tokens per second, at most ten
  std::vector<Layout> fitting;  ///< all that were found to fit, by time
  struct Rejected {
    std::string family, reason;
  };
  std::vector<Rejected>
      rejected;  ///< families of which none is among the best, with the reason of the nearest
  /// Layouts: tried = refused + too large + too slow to be among the best + those that fit.
  int tried = 0, refused = 0, too_large = 0, too_slow = 0, fit = 0;
};

/// Layouts with less than 1 % between them count as equally fast: the one that divides the model among the
/// fewest ranks is first, of those the one with the fewest kinds. Throws Error where none fits, with the one
/// that is nearest.
SearchResult search_layouts(const Recipe& recipe, int ranks, const Cluster& cluster,
                            const TimeFor& what = {});

/// The best, a row each.
Table layout_table(const SearchResult& result);
std::string to_text(const SearchResult& result);
/// {"format": 1, "ranks", "phase", "cluster", "device_bytes", "tried", "refused", "too_large", "too_slow",
/// "fit", "best": [{"layout", "family", "fields", "bytes", "step_seconds", "tokens_per_second_per_device",
/// "utilisation"}], "rejected": [{"family", "reason"}]}
std::string to_json(const SearchResult& result);

}  // namespace ingot
