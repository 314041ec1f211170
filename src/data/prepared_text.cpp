// See prepared_text.h.
#include "data/prepared_text.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/glob.h"

namespace ingot::data {
namespace {

constexpr size_t kNamedFiles = 8;

/// Whether a path of a recipe, which may be a pattern or a folder, can have meant this file. A run may have
/// been moved since, so only names count.
bool may_mean(const std::string& path, const std::string& file) {
  std::filesystem::path named(path);
  if (!named.has_filename()) named = named.parent_path();
  const std::filesystem::path parts(file);
  return std::any_of(parts.begin(), parts.end(), [&](const std::filesystem::path& part) {
    return glob_match(named.filename().string(), part.string());
  });
}

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// The files behind the paths; nothing where all that was read then is gone.
std::optional<std::vector<SourceFile>> present_files(FileSystem& fs, const std::vector<InputInfo>& then,
                                                     const std::vector<std::string>& paths) {
  try {
    return find_source_files(fs, paths);
  } catch (const Error&) {
    for (const InputInfo& input : then) {
      const bool meant = std::any_of(paths.begin(), paths.end(),
                                     [&](const std::string& path) { return may_mean(path, input.path); });
      if (!meant || fs.exists(input.path)) throw;
    }
    return std::nullopt;
  }
}

}  // namespace

std::vector<InputInfo> describe_inputs(const std::vector<SourceFile>& files, CheckedFiles& checked) {
  std::vector<InputInfo> inputs;
  for (const SourceFile& file : files)
    inputs.push_back({file.path, static_cast<int64_t>(file.bytes), checked.hash(file.path)});
  return inputs;
}

std::vector<std::string> changed_text(FileSystem& fs, const std::vector<InputInfo>& then,
                                      const std::vector<std::string>& paths, CheckedFiles& checked) {
  const auto files = present_files(fs, then, paths);
  if (!files) return {};
  std::vector<std::string> lines;
  std::set<std::string> names_then, names_now;
  for (const InputInfo& input : then) names_then.insert(file_name(input.path));
  for (const SourceFile& file : *files) names_now.insert(file_name(file.path));
  for (const SourceFile& file : *files)
    if (!names_then.contains(file_name(file.path))) lines.push_back(fmt::format("'{}' is new", file.path));
  for (const InputInfo& input : then)
    if (!names_now.contains(file_name(input.path))) lines.push_back(fmt::format("'{}' is gone", input.path));
  if (lines.empty() && files->size() != then.size())
    lines.push_back(fmt::format("{} files instead of {}", files->size(), then.size()));
  if (files->size() == then.size()) {
    // The same bytes under other names are the same text.
    std::vector<std::string> changed;
    for (size_t i = 0; i < then.size(); ++i) {
      const SourceFile& file = (*files)[i];
      if (then[i].bytes != static_cast<int64_t>(file.bytes) || checked.hash(file.path) != then[i].hash)
        changed.push_back(fmt::format("'{}' has changed", file.path));
    }
    if (changed.empty() || lines.empty()) lines = std::move(changed);
  }
  if (lines.size() > kNamedFiles) {
    const size_t more = lines.size() - kNamedFiles;
    lines.resize(kNamedFiles);
    lines.push_back(fmt::format("and {} more files", more));
  }
  return lines;
}

}  // namespace ingot::data
