// A run as a folder: the recipe of the run that lies in one, and what a folder keeps so that its model can be
// used, and the run resumed, wherever the folder is.
#pragma once
#include <string>
#include <vector>

#include "train/prepare.h"

namespace ingot {

/// The recipe of `ingot run PATH`. `path` is a recipe, a run folder, or a recipe that lies in a run folder.
/// Of a run it is the recipe of its last start (config.toml; where that is missing, that of the newest
/// checkpoint), with run.folder where the folder lies now and all other paths as report/run_paths.h finds
/// them. `overrides` come last, so --run.folder starts another run. `moved_from`: set to where the run was
/// recorded as lying, if that was elsewhere. Throws Error where a folder holds no run; NewerRun.
Recipe load_run(FileSystem& fs, const std::string& path, const std::vector<std::string>& overrides,
                std::string* moved_from = nullptr);

/// Copies what the model needs besides its weights into the run folder, unless it is there: the tokenizer
/// (`tokenizer/`, with the chat template and other small files that lie beside it), and the validation
/// split of each source (`validation/<source>/`) unless it has more than 64 MiB, which a line of the log
/// then says.
void keep_with_run(FileSystem& fs, const Recipe& recipe, const PreparedData& data);

/// What a run can be evaluated on: its tokenizer, and the sources' validation splits, from the run folder
/// where it keeps them, else from the data folder. The sources have no training split.
PreparedData open_validation_data(FileSystem& fs, const Recipe& recipe);

}  // namespace ingot
