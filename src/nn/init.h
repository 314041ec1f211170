// Initial values by name pattern, and muP: which distribution each parameter of a model starts from.
#pragma once
#include <optional>
#include <string>

#include "base/config.h"
#include "nn/parameter.h"

namespace ingot {

struct ModelConfig;

enum class InitChoice { normal, truncated, uniform, fan_in, zero };
constexpr auto enum_names(InitChoice) {
  return names_in_order<InitChoice>("normal", "truncated", "uniform", "fan_in", "zero");
}

/// [[model.init]]: how matching matrices start. Vectors (norms, biases, scales) keep their constants.
struct InitRule {
  std::string pattern;
  InitChoice kind = InitChoice::normal;
  std::optional<double> std;
  std::optional<double> gain;
  bool residual_scaled = false;
  template <class Visitor>
  void visit(Visitor& v) {
    v("pattern", pattern, "matrices whose names match (* and ?)");
    v("kind", kind,
      "normal; truncated at 3 std; uniform within sqrt(3) gain / sqrt(in); fan_in: normal, gain / sqrt(in); "
      "zero");
    v("std", std, "normal, truncated: standard deviation; none: init_std", up_to(100));
    v("gain", gain, "uniform (none: 0.5), fan_in (none: 1)", up_to(1e6));
    v("residual_scaled", residual_scaled,
      "divided by sqrt(2 layers), for matrices that write to the residual stream");
  }
};

/// Problems of `init` and `mup_base_width` that need no parameters.
void validate_init(const ModelConfig& model, ConfigErrors& errors);

/// Applies the rules, later over earlier, then muP, to a complete table. muP (Yang & Hu 2021, table 3): with
/// m = width / mup_base_width, hidden matrices start with std / sqrt(m), the head and a router that reads the
/// stream with std / m, and their width_multiple becomes m, from which the optimizer makes learning rates.
/// Throws Error for a pattern that matches no matrix.
void apply_init(const ModelConfig& model, ParameterTable& table);

}  // namespace ingot
