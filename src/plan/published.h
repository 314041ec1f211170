// The papers' own formulas, with their conventions, beside the numbers that they print: oracles for tests
// and for `ingot plan --published`. Plans never use them: they price identical layers, a fixed number of
// live micro-batches and attention that keeps its scores, which no run of ours does.
#pragma once
#include <string>
#include <vector>

namespace ingot::published {

/// How well a formula explains what was printed.
enum class Class {
  exact,    ///< the formula is the source's
  inferred  ///< the source does not say what it counted; so it comes out
};

struct Row {
  std::string what, unit;
  double formula = 0, printed = 0;
  Class kind = Class::exact;
  double bar = 0.0015;  ///< allowed share of difference
  double residual() const { return formula / printed - 1; }
};

/// Llama-405B with Adam at 8K ([Megatron-MoE], introduction): GB, activations in GiB added to them.
std::vector<Row> llama_405b();
/// DeepSeek-V3 on 256 devices (Table 3), what its techniques save (Tables 4 and 5, §3.3): GiB printed as GB.
std::vector<Row> deepseek_v3();
/// ZAYA1's checkpoints, equations 10 to 12.
std::vector<Row> zaya1();
/// Cache of Llama-3-8B with as many key-value heads as query heads; sparsity and granularity of fifteen MoE
/// models.
std::vector<Row> playbook();
std::vector<Row> all();

/// TFLOP/s at another length, from the rate `linear` of everything but attention and that of attention:
/// (lin + core) / (lin / linear + core / attention), FLOPs a token.
double two_rates(double lin, double core, double linear, double attention);
/// Rate of attention over forward and backward, whose FLOPs count 1 and 2.5, of which 3 count.
double attention_rate(double forward, double backward);

std::string to_text(const std::vector<Row>& rows);

}  // namespace ingot::published
