// The argument MODEL: one way to name a model, for every command that opens one.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace ingot {

/// What the opener of models takes (exchange/stored_model.h), for help.
inline constexpr const char* kModelHelp =
    "run folder, import, checkpoint, folder of checkpoints, or Hugging Face folder";

/// MODEL, which earlier versions called --run FOLDER or --checkpoint FOLDER: both are still understood.
struct ModelArgument {
  std::string model, run, checkpoint;
  /// The path that names the model. UsageError where none or several are given; --checkpoint with --run is
  /// one of the run's.
  std::string path() const;
};
/// What to do with a new model, with a newline: "next:" and the command that tries it.
std::string next_command(const std::string& model);
void add_model_argument(CLI::App& command, ModelArgument& model);

}  // namespace ingot
