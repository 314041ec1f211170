// Which optimizer, learning rate and weight decay each parameter gets, by name patterns; resolved once.
//
// The defaults are those of the sources: Muon for every matrix and stack of matrices except embeddings and
// the head; AdamW (or AdEMAMix) for those and for everything else (norms, biases, scales, temperatures,
// convolutions). Weight decay for all but norms, biases, scales, temperatures and embeddings. `rules` change
// single fields; later ones win.
//
// Patterns are globs (base/glob.h) on the whole name. A pattern that is not among the defaults and matches no
// parameter is an Error that names the nearest parameters.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "optim/param.h"
#include "optim/update_rule.h"

namespace ingot {

/// [[optimizer.rules]]: changes of single parameters. Fields that are absent keep what they were.
struct GroupRule {
  std::string pattern;
  std::optional<std::string> optimizer;  ///< a registered name; muon needs a matrix
  std::optional<double> lr_multiplier;
  std::optional<double> decay_multiplier;  ///< of weight_decay; also where no_decay said 0
  template <class Visitor>
  void visit(Visitor& v) {
    v.fixed("pattern", pattern, "parameters whose names match (* and ?)");
    v.fixed("optimizer", optimizer, "none: as it would be");
    v("lr_multiplier", lr_multiplier, "factor on the learning rate", up_to(1e6));
    v("decay_multiplier", decay_multiplier, "factor on weight_decay; 0: no decay", up_to(1e6));
  }
};

struct GroupConfig {
  std::string matrices = "muon";  ///< another: no Muon at all unless a rule asks for it
  std::string others = "adamw";   ///< of all else; not muon
  std::vector<std::string> not_muon = default_not_muon();  ///< matrices that count as all else
  std::vector<std::string> no_decay = default_no_decay();
  std::vector<GroupRule> rules;

  static std::vector<std::string> default_not_muon();
  static std::vector<std::string> default_no_decay();
};

/// What one parameter got.
struct ParamGroup {
  std::string optimizer = "adamw";
  double lr_multiplier = 1.0;
  double decay_multiplier = 1.0;  ///< 0: no weight decay
};

/// Throws Error, which lists the names, where no optimizer of that name is registered.
const RegisteredOptimizer& require_optimizer(const std::string& name);

/// One entry per parameter.
std::vector<ParamGroup> resolve_groups(std::span<const ParamView> params, const GroupConfig& config);

/// The resolved table as text: name, shape (with blocks where Muon splits), optimizer, rate multiplier,
/// decay multiplier; then the number of parameters per optimizer.
std::string describe_groups(std::span<const ParamView> params, std::span<const ParamGroup> groups);

}  // namespace ingot
