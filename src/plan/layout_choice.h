// What a search for a layout tries: divisions of the ranks, each with a way to shard, a micro-batch and
// recomputation, as a recipe; and which stages of a pipeline are alike. Pure functions.
#pragma once
#include <compare>
#include <string>
#include <vector>

#include "measure/cluster.h"
#include "plan/search.h"

namespace ingot {

/// One way to divide the ranks and their work.
struct LayoutChoice {
  int64_t tensor = 1, pipeline = 1, chunks = 1, expert = 1;
  ShardLevel shard = ShardLevel::none;
  int64_t micro = 1;
  int64_t recompute = 0;  ///< levels of train/memory_policy.h
  auto operator<=>(const LayoutChoice&) const = default;
};

/// Every choice without recomputation, in a fixed order: tensor ranks in an innermost domain, at most 16
/// stages.
std::vector<LayoutChoice> all_choices(const Recipe& recipe, int ranks, const Cluster& cluster);

/// What parts of the model take of a pass there and back, in any unit.
struct PartTimes {
  std::vector<double> layers;
  double embedding = 0, modules = 0, loss = 0;  ///< of all modules
};
/// Ways to lay the layers of a pipeline in stages (pipeline_layout.h), without repetition: so that ranks take
/// about as long, or chunks, of which the last has the loss alone; with the layers' own times, or as if all
/// layers were equal, or modules were layers too. Embedding, modules and loss count. What is left over goes
/// to the last ranks, which hold the fewest micro-batches.
std::vector<std::string> balanced_layouts(const PartTimes& times, int64_t modules, int64_t ranks,
                                          int64_t chunks);

/// A choice as a recipe, which its own checks may refuse, with its fields and words.
struct LayoutCandidate {
  Recipe recipe;
  SearchResult::Layout layout;
};
/// `layout`: where its pipeline has several stages.
LayoutCandidate candidate_of(const Recipe& base, const LayoutChoice& choice, const std::string& layout,
                             int ranks);

/// The stages of a layout that are alike: the first of each kind stands for the others. It has the most
/// micro-batches in flight.
struct StageKinds {
  std::vector<int> first;              ///< by kind
  std::vector<std::string> signature;  ///< by kind: equal for equal layers, of any pipeline
  std::vector<size_t> kind;            ///< by stage
  explicit StageKinds(const Recipe& recipe);
};

}  // namespace ingot
