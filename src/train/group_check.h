// What the ranks of a run must have alike, checked before the first step: the program, the recipe, the run folder, the data.
// Every check is called by all ranks of the group; where it fails all throw the same Error, which says what differs.
#pragma once
#include "comm/communicator.h"
#include "train/prepare.h"

namespace ingot {

/// The program (its commit and the content of its file), its kernels, and the recipe.
void require_same_program(Communicator& group, const Recipe& recipe);
/// Every rank sees the folder of rank 0, not another one of that name.
void require_one_folder(Communicator& group, FileSystem& fs, const std::string& folder);
/// Tokenizer and tokens.
void require_same_data(Communicator& group, const PreparedData& data);

}  // namespace ingot
