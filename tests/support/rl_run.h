// A run that learns by reinforcement within seconds: a model of one layer that was tuned to reply any of
// three letters to each of them learns to reply the first.
#pragma once
#include <string>

#include "support/support.h"

namespace ingot::test {

/// Registers the environments "say_test" (the right answer is a), "throws_test" (its verifier fails),
/// "once_test" (it fails for the first reply of the process, then is "say_test"), "nan_test" (its rewards
/// are) and "never_test" (nothing is right). Further calls do nothing.
void register_rl_environments();

/// Rows of conversations for the first phase, in `folder`/rows.jsonl; with reasoning of some letters.
void write_rl_rows(const std::string& folder, bool reasoning = false);

/// TOML: a phase of kind chat on those rows, then `steps` steps of kind rl. `more` is added to [phases.rl].
std::string rl_recipe(const std::string& folder, const std::string& run, int steps,
                      const std::string& more = "");

}  // namespace ingot::test
