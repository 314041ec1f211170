// Names inside a folder of checkpoints, and which of them is what. Private to checkpoint/.
//   step-00001234       a complete checkpoint (by name; only its manifest and files can tell)
//   step-00001234-2     a later save of the same step, after a rewind: a finished folder is never written to again
//   step-...tmp         being written, or left by a crash
//   step-...trash       being deleted
//   latest              text: the name of the checkpoint finished last, for people and scripts
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"

namespace ingot::checkpoint_layout {

constexpr std::string_view kTemporary = ".tmp", kTrash = ".trash";

/// "step-00001234", or "step-00001234-2" for attempt 2.
std::string folder_name(int64_t step, int attempt);
bool is_checkpoint_name(std::string_view name);
/// A leftover that may be deleted: one of our names with .tmp or .trash.
bool is_leftover_name(std::string_view name);

/// Reads and checks a manifest, and that every file is there with its size (tensor data is not read).
Manifest inspect(FileSystem& fs, const std::string& folder);

struct Found {
  std::string name;
  Manifest manifest;
};
/// The complete checkpoints of a folder, newest first. Others are skipped with a warning that says why,
/// except one of a newer format, which throws. Empty where the folder does not exist.
std::vector<Found> complete_checkpoints(FileSystem& fs, const std::string& folder);

/// The highest sequence number of any manifest, also of a checkpoint that lost files; 0 where there is none.
/// A manifest that cannot be read at all is an Error: numbering on without it could make an older checkpoint
/// the newest.
int64_t newest_sequence(FileSystem& fs, const std::string& folder);

/// Deletes leftovers of crashes.
void remove_leftovers(FileSystem& fs, const std::string& folder);
/// Deletes one checkpoint so that a crash leaves it whole or leaves a leftover, never a damaged checkpoint.
void remove_checkpoint(FileSystem& fs, const std::string& folder, const std::string& name);

/// create_folders, and every new folder's entry made durable.
void create_folders_durably(FileSystem& fs, const std::string& path);
std::string parent_of(const std::string& path);

}  // namespace ingot::checkpoint_layout
