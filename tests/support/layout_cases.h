// Layouts of ranks for tests of parallel/layout_check.h: every axis and form alone, and mixes.
#pragma once
#include <ostream>
#include <string>
#include <vector>

#include "parallel/layout_check.h"

namespace ingot::test {

struct CheckedLayout {
  std::string name;
  GridShape grid;
  RankOptions options = {};
  int chunks = 1;  ///< virtual stages of a pipeline rank
  bool loss_alone =
      false;  ///< the last stage has the loss only; its layers and MTP modules are in the one before
};
inline void PrintTo(const CheckedLayout& l, std::ostream* out) {
  *out << l.name;
}

std::vector<CheckedLayout> layout_cases();
/// Whether a rank lacks rows of its sequences outside of attention.
bool divides_documents(const CheckedLayout& layout);
/// Whether heads, experts, widths and layers can be sharded so.
bool fits(const ModelConfig& config, const CheckedLayout& layout);
/// The layout of a model.
DryRunLayout dry_run_layout(const CheckedLayout& layout, const ModelConfig& config);

}  // namespace ingot::test
