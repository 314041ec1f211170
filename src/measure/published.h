// The papers' own formulas, with their conventions, beside the numbers that they print: oracles for tests
// and for `ingot plan --published`. Plans never use them: they price identical layers, a fixed number of
// live micro-batches and attention that keeps its scores, which no run of ours does.
#pragma once
#include <string>
#include <vector>

namespace ingot::published {

struct Row {
  std::string what, unit;
  double formula = 0, printed = 0;
  double bar = 0.0015;    ///< allowed share of difference
  bool inferred = false;  ///< the source does not say what it counted; so it comes out
  double residual() const { return formula / printed - 1; }
};

/// Memory of Llama-405B and DeepSeek-V3, ZAYA1's checkpoints, a cache, sparsity and granularity of fifteen
/// MoE models, what SmolLM3 took.
std::vector<Row> all();
std::string to_text(const std::vector<Row>& rows);

}  // namespace ingot::published
