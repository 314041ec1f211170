// See run_paths.h.
#include "report/run_paths.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "report/run_record.h"

namespace ingot {
namespace {

namespace stdfs = std::filesystem;

/// Absolute, without "." and "..", without a last slash.
std::string plain_path(const std::string& path, const std::string& from = {}) {
  const stdfs::path p(path);
  stdfs::path whole = (p.is_absolute() || from.empty() ? stdfs::absolute(p) : stdfs::path(from) / p);
  std::string text = whole.lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

/// What follows `folder` in `path`, with its slash; nothing where `path` is not inside.
std::optional<std::string> rest_in(const std::string& folder, const std::string& path) {
  if (path == folder) return std::string();
  if (!path.starts_with(folder + "/")) return std::nullopt;
  return path.substr(folder.size());
}

std::string recorded_folder(const ConfigNode& config) {
  const ConfigNode* run = config.find("run");
  const ConfigNode* folder = run != nullptr ? run->find("folder") : nullptr;
  return folder != nullptr && folder->kind == ConfigNode::Kind::string ? folder->string : "";
}

std::string recorded_working_folder(FileSystem& fs, const std::string& folder) {
  try {
    if (fs.exists(folder + "/" + run_files::kRecord)) return read_run_record(fs, folder).working_folder();
  } catch (const NewerRun&) {
    throw;
  } catch (const Error&) {  // what else is damaged is said where it is needed
  }
  return "";
}

}  // namespace

RunPaths::RunPaths(FileSystem& fs, std::string folder, std::string recorded, std::string working_folder)
    : fs_(fs),
      folder_(std::move(folder)),
      recorded_(std::move(recorded)),
      working_folder_(std::move(working_folder)) {
  if (recorded_.empty() || stdfs::path(recorded_).is_absolute()) return;
  const std::string now = plain_path(folder_), tail = plain_path(recorded_, "/");
  if (tail == "/")
    base_ = now;
  else if (now.ends_with(tail))
    base_ = now.size() == tail.size() ? "/" : now.substr(0, now.size() - tail.size());
}

RunPaths::RunPaths(FileSystem& fs, const std::string& folder, const ConfigNode& config)
    : RunPaths(fs, folder, recorded_folder(config), recorded_working_folder(fs, folder)) {}

bool RunPaths::leads_here() const {
  return !recorded_.empty() && plain_path(folder_) == plain_path(recorded_);
}

bool RunPaths::moved() const {
  return !recorded_.empty() && !leads_here() && plain_path(folder_) != plain_path(recorded_, working_folder_);
}

bool RunPaths::exists(const std::string& path) const {
  const size_t pattern = path.find_first_of("*?[");
  if (pattern == path.npos || fs_.exists(path)) return fs_.exists(path);
  const size_t slash = path.rfind('/', pattern);
  return fs_.exists(slash == path.npos ? "." : path.substr(0, slash + 1));
}

std::string RunPaths::find(const std::string& path) const {
  if (path.empty()) return path;
  const std::string meant = plain_path(path, working_folder_);
  std::vector<std::string> places;
  if (moved()) {
    if (const auto rest = rest_in(plain_path(recorded_, working_folder_), meant))
      places.push_back(folder_ + *rest);
  }
  if (!base_.empty()) {
    if (!stdfs::path(path).is_absolute())
      places.push_back(plain_path(path, base_));
    else if (const auto rest = working_folder_.empty() ? std::nullopt : rest_in(working_folder_, meant))
      places.push_back(base_ + *rest);
  }
  places.push_back(meant);
  const std::string here = plain_path(path);
  for (const std::string& place : places)
    if (exists(place)) return plain_path(place) == here ? path : place;
  return path;
}

}  // namespace ingot
