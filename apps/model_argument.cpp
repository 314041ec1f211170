// See model_argument.h.
#include "apps/model_argument.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "apps/command_line.h"
#include "base/invocation.h"

namespace ingot {

std::string ModelArgument::path() const {
  const std::string& named = !model.empty() ? model : !checkpoint.empty() ? checkpoint : run;
  if (named.empty()) throw UsageError("no model is named", fmt::format("give MODEL: a {}", kModelHelp));
  if (!model.empty() && !(run.empty() && checkpoint.empty()))
    throw UsageError(
        fmt::format("the model is named twice: '{}' and '{}'", model, run.empty() ? checkpoint : run),
        "give one of the two");
  return named;
}

std::string next_command(const std::string& model) {
  return as_typed(fmt::format("next:\n  ingot generate {} --prompt \"The \"\n", shell_word(model)));
}

void add_model_argument(CLI::App& command, ModelArgument& model) {
  command.add_option("model", model.model, kModelHelp);
  const std::string hidden;
  command.add_option("--run", model.run, "the same as MODEL")->group(hidden);
  command.add_option("--checkpoint", model.checkpoint, "the same as MODEL")->group(hidden);
}

}  // namespace ingot
