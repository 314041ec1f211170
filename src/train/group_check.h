// Checks before the first step that all ranks of a run have the same program, recipe, run folder and data.
// All ranks of the group call each check; where it fails, all throw the same Error, which says what differs.
#pragma once
#include "comm/communicator.h"
#include "train/prepare.h"

namespace ingot {

/// The program (its commit and the content of its file), its kernels, and the recipe.
void require_same_program(Communicator& group, const Recipe& recipe);
/// Every rank sees the folder of rank 0, not another one with its name.
void require_one_folder(Communicator& group, FileSystem& fs, const std::string& folder);
/// The tokenizer and the tokens of every source.
void require_same_data(Communicator& group, const PreparedData& data);

}  // namespace ingot
