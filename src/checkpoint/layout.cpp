// See layout.h.
#include "checkpoint/layout.h"

#include <algorithm>

#include "base/log.h"

namespace ingot::checkpoint_layout {
namespace {

constexpr std::string_view kPrefix = "step-";

/// The number of decimal digits that `text` begins with.
size_t digits(std::string_view text) {
  return std::min(text.find_first_not_of("0123456789"), text.size());
}

}  // namespace

std::string folder_name(int64_t step, int attempt) {
  return attempt < 2 ? fmt::format("{}{:08}", kPrefix, step)
                     : fmt::format("{}{:08}-{}", kPrefix, step, attempt);
}

bool is_checkpoint_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  const size_t step_digits = digits(name);
  if (step_digits < 8) return false;
  name.remove_prefix(step_digits);
  return name.empty() || (name[0] == '-' && name.size() > 1 && digits(name.substr(1)) == name.size() - 1);
}

bool is_leftover_name(std::string_view name) {
  for (const std::string_view suffix : {kTemporary, kTrash})
    if (name.ends_with(suffix)) return is_checkpoint_name(name.substr(0, name.size() - suffix.size()));
  return false;
}

Manifest inspect(FileSystem& fs, const std::string& folder) {
  const std::string path = folder + "/" + kManifestFile;
  if (!fs.exists(folder)) fail("there is no checkpoint '{}'", folder);
  if (!fs.exists(path))
    fail("'{}' has no {}: it is not a checkpoint, or was not finished", folder, kManifestFile);
  Manifest manifest = parse_manifest(fs.read(path), path);
  for (const auto& [name, file] : manifest.files) {
    const std::string file_path = folder + "/" + name;
    if (!fs.exists(file_path)) fail("'{}' is missing, its checkpoint's manifest lists it", file_path);
    if (const uint64_t found = fs.size(file_path); found != file.bytes)
      fail("'{}' has {} bytes, expected {}", file_path, found, file.bytes);
  }
  return manifest;
}

std::vector<Found> complete_checkpoints(FileSystem& fs, const std::string& folder, bool warns) {
  std::vector<Found> found;
  if (!fs.exists(folder)) return found;
  for (const std::string& name : fs.list(folder)) {
    if (warns && is_leftover_name(name)) log::warn("skipping '{}/{}': it was not finished", folder, name);
    if (!is_checkpoint_name(name)) continue;
    try {
      found.push_back({name, inspect(fs, folder + "/" + name)});
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      if (warns) log::warn("skipping a damaged checkpoint: {}", error.what());
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.manifest.sequence > b.manifest.sequence; });
  return found;
}

int64_t newest_sequence(FileSystem& fs, const std::string& folder) {
  constexpr int64_t kMoreThanAnyRunSaves = int64_t{1} << 32;
  int64_t newest = 0;
  bool unreadable = false;
  for (const std::string& name : fs.list(folder)) {
    if (!is_checkpoint_name(name)) continue;
    const std::string path = fmt::format("{}/{}/{}", folder, name, kManifestFile);
    std::string text;
    try {
      const std::vector<std::string> files = fs.list(folder + "/" + name);
      if (std::find(files.begin(), files.end(), kManifestFile) == files.end()) continue;
      text = fs.read(path);
    } catch (const Error&) {
      unreadable = true;
      continue;
    }
    try {
      newest = std::max(newest, parse_manifest(text, path).sequence);
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error&) {  // damaged: complete_checkpoints() warns of it
    }
  }
  return newest + (unreadable ? kMoreThanAnyRunSaves : 0);
}

void remove_leftovers(FileSystem& fs, const std::string& folder) {
  if (!fs.exists(folder)) return;
  for (const std::string& name : fs.list(folder))
    if (is_leftover_name(name)) fs.remove_all(folder + "/" + name);
}

void remove_checkpoint(FileSystem& fs, const std::string& folder, const std::string& name) {
  const std::string trash = fmt::format("{}/{}{}", folder, name, kTrash);
  fs.remove_all(trash);
  fs.rename(folder + "/" + name, trash);
  fs.sync_folder(folder);
  fs.remove_all(trash);
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == path.npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

void create_folders_durably(FileSystem& fs, const std::string& path) {
  std::vector<std::string> created;
  for (std::string p = path; !fs.exists(p); p = parent_of(p)) created.push_back(p);
  fs.create_folders(path);
  for (const std::string& p : created) fs.sync_folder(parent_of(p));
}

}  // namespace ingot::checkpoint_layout
