// Advice: what limits a step on a cluster, and which fields of the recipe would change that. The remedies are
// those of [Megatron MoE] tables 12 to 16, as fields; each is priced by planning and simulating the step that
// the recipe has with it. A pure function.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plan/run_time.h"

namespace ingot {

/// One change of a recipe.
struct Remedy {
  std::string limit;                ///< what it is against: "memory", "products", "tensor ranks", ...
  std::vector<std::string> fields;  ///< "--parallel.tensor=2"
  std::string cost;                 ///< how it works, or what else it changes, in words
  int64_t bytes = 0;                ///< of the fullest rank, without a checkpoint's copy
  double step_seconds = 0, tokens_per_second = 0;
  std::string refused;  ///< the recipe's own reason; empty: it was priced
};

struct Advice {
  int64_t bytes = 0, capacity = 0;  ///< of the fullest rank as the recipe is, and of a device
  double step_seconds = 0, tokens_per_second = 0;
  struct Limit {
    std::string name;
    double share = 0;  ///< of the step; of "memory": of a device's
  };
  std::vector<Limit> limits;    ///< what the step's time goes to, and memory; largest first
  std::vector<Remedy> faster;   ///< fit and are faster; of a recipe that does not fit: fit
  std::vector<Remedy> smaller;  ///< the others that need less memory, most saving first
  std::vector<Remedy> others;   ///< neither, or do not fit, or are refused
};

/// The changes that are possible for a recipe's phase on so many ranks, not priced.
std::vector<Remedy> possible_remedies(const Recipe& recipe, const std::string& phase, int ranks,
                                      const Cluster& cluster);

/// `recipe_with`: the recipe with these fields set. `phase`: the one that is planned; empty: the one that
/// takes the most memory. Throws Error as plan_stages() does for the recipe as it is.
Advice advise(const std::function<Recipe(const std::vector<std::string>& fields)>& recipe_with,
              const std::string& phase, int ranks, const Cluster& cluster, const TimeFor& what = {});

std::string to_text(const Advice& advice);
std::string to_json(const Advice& advice);

}  // namespace ingot
