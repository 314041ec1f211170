// See checked_files.h.
#include "data/checked_files.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace ingot::data {
namespace {

constexpr const char* kFile = "checked.json";
constexpr int kVersion = 1;

/// Whether a file could be changed once more without getting another time. Clocks of files tick every few
/// milliseconds, on some file systems every second.
bool too_recent(const FileStamp& stamp) {
  const double age = wall_seconds() - static_cast<double>(stamp.modified_ns) * 1e-9;
  return age < (stamp.modified_ns % 1'000'000'000 == 0 ? 2.0 : 0.05);
}

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace

CheckedFiles::CheckedFiles(FileSystem& fs, std::string folder, double since)
    : fs_(fs), folder_(std::move(folder)), since_(since) {
  try {
    load();
  } catch (const std::exception& e) {
    log::debug("'{}/{}' says nothing: {}", folder_, kFile, e.what());
    known_.clear();
  }
}

void CheckedFiles::load() {
  const std::string path = folder_ + "/" + kFile;
  if (!fs_.exists(path)) return;
  const auto json = nlohmann::json::parse(fs_.read(path));
  if (json.at("version") != kVersion) return;
  for (const auto& [name, file] : json.at("files").items())
    known_[name] = {
        {file.at("bytes"), file.at("modified_ns"), file.at("inode")}, file.at("hash"), file.at("time")};
}

std::string CheckedFiles::name_of(const std::string& path) const {
  const std::string inside = absolute_path(folder_) + "/", whole = absolute_path(path);
  return whole.starts_with(inside) ? whole.substr(inside.size()) : whole;
}

bool CheckedFiles::knows(const std::string& path, const std::string& hash) const {
  const auto it = known_.find(name_of(path));
  if (it == known_.end() || it->second.hash != hash || it->second.time < since_) return false;
  const auto stamp = fs_.stamp(path);
  return stamp && *stamp == it->second.stamp;
}

std::string CheckedFiles::hash(const std::string& path) {
  if (const auto it = known_.find(name_of(path)); it != known_.end() && knows(path, it->second.hash))
    return it->second.hash;
  const auto before = fs_.stamp(path);
  const auto map = fs_.map(path);
  const std::string found = hash128_hex(map->bytes().data(), map->bytes().size());
  bytes_read_ += static_cast<int64_t>(map->bytes().size());
  remember(path, found, before);
  return found;
}

void CheckedFiles::remember(const std::string& path, const std::string& hash,
                            const std::optional<FileStamp>& before) {
  if (!before || too_recent(*before) || fs_.stamp(path) != before) return;
  known_[name_of(path)] = {*before, hash, wall_seconds()};
  changed_ = true;
}

void CheckedFiles::save() {
  if (!std::exchange(changed_, false)) return;
  nlohmann::json files = nlohmann::json::object();
  for (const auto& [name, known] : known_)
    files[name] = {{"bytes", known.stamp.bytes},
                   {"modified_ns", known.stamp.modified_ns},
                   {"inode", known.stamp.inode},
                   {"hash", known.hash},
                   {"time", known.time}};
  const std::string text = nlohmann::json{{"version", kVersion}, {"files", files}}.dump(
      1, ' ', false, nlohmann::json::error_handler_t::replace);
  // Runs that share the folder may write at the same time, so each has a temporary file of its own.
  const std::string path = folder_ + "/" + kFile, temporary = fmt::format("{}.{}", path, ::getpid());
  try {
    const auto file = fs_.create(temporary);
    file->append(text.data(), text.size());
    file->close();
    fs_.rename(temporary, path);
  } catch (const Error& e) {
    log::debug("files are read again next time: {}", e.what());
  }
}

}  // namespace ingot::data
