// The names inside a folder of checkpoints, and what each of them means. Private to checkpoint/.
//   step-00001234         a checkpoint: complete if its manifest is valid and its files are there
//   step-00001234-2       a later save of the same step, after a rewind: finished folders are not rewritten
//   step-00001234.tmp     is being written, or was left by a crash
//   step-00001234.trash   is being deleted
//   latest                text file with the name of the checkpoint finished last, for people and scripts
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
/// Whether it is the name of a checkpoint with .tmp or .trash, which may be deleted.
bool is_leftover_name(std::string_view name);

/// Reads and checks a manifest, and that every file is there with its size (tensor data is not read).
Manifest inspect(FileSystem& fs, const std::string& folder);

struct Found {
  std::string name;
  Manifest manifest;
};
/// The complete checkpoints of a folder, newest first; none if the folder does not exist. Incomplete ones are
/// skipped, where `warns` with a warning that says why. A checkpoint of a newer format throws NewerFormat.
std::vector<Found> complete_checkpoints(FileSystem& fs, const std::string& folder, bool warns = true);

/// A number that no manifest's sequence number exceeds, including those of checkpoints that lost files; 0 if
/// there is none. It is the highest, unless a manifest cannot be read from disk, whose number must be feared
/// to be higher: it may be readable another time.
int64_t newest_sequence(FileSystem& fs, const std::string& folder);

/// Deletes leftovers of crashes.
void remove_leftovers(FileSystem& fs, const std::string& folder);
/// Deletes one checkpoint. A crash leaves it complete, or renamed to .trash, never damaged under its own
/// name.
void remove_checkpoint(FileSystem& fs, const std::string& folder, const std::string& name);

/// Creates a folder and its missing parents, and syncs the parent of every folder that it made.
void create_folders_durably(FileSystem& fs, const std::string& path);
std::string parent_of(const std::string& path);

}  // namespace ingot::checkpoint_layout
