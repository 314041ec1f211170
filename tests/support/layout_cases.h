// Layouts of ranks for tests of parallel/layout_check.h: every axis and form alone, and mixes.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "parallel/layout_check.h"

namespace ingot::test {

struct LayoutCase {
  std::string name;
  GridShape grid;
  RankOptions options = {};
  int chunks = 1;  ///< virtual stages of a pipeline rank
  bool loss_alone =
      false;  ///< the last stage has the loss only; its layers and MTP modules are in the one before
};
inline void PrintTo(const LayoutCase& l, std::ostream* out) {
  *out << l.name;
}

std::vector<LayoutCase> layout_cases();
/// Whether a rank lacks rows of its sequences outside of attention.
bool divides_documents(const LayoutCase& layout);
/// Whether heads, experts, widths and layers can be sharded so.
bool fits(const ModelConfig& config, const LayoutCase& layout);
/// The layout of a model.
DryRunLayout dry_run_layout(const LayoutCase& layout, const ModelConfig& config);

}  // namespace ingot::test
