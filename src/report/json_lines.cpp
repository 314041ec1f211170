// See json_lines.h.
#include "report/json_lines.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

std::vector<std::string_view> complete_lines(std::string_view content) {
  std::vector<std::string_view> lines;
  for (size_t end; (end = content.find('\n')) != content.npos; content.remove_prefix(end + 1))
    lines.push_back(content.substr(0, end));
  return lines;
}

std::string place(const std::string& path, size_t index) {
  return fmt::format("{}:{}", path, index + 1);
}

void append(FileSystem& fs, const std::string& path, const std::string& lines) {
  const auto file = fs.open_append(path);
  file->append(lines.data(), lines.size());
  file->sync();
  file->close();
}

}  // namespace

nlohmann::ordered_json parse_object_line(std::string_view line, const char* what, int deepest,
                                         const std::string& where) {
  using Json = nlohmann::ordered_json;
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > deepest) fail("{}: not a {}: nested values", where, what);
    return true;
  };
  try {
    Json object = Json::parse(line, shallow);
    if (!object.is_object()) fail("{}: not a {}: expected an object", where, what);
    return object;
  } catch (const Json::exception& e) {
    fail("{}: not a {}: {}", where, what, e.what());
  }
}

void read_lines(FileSystem& fs, const std::string& path, const LineReader& read) {
  const std::string content = fs.read(path);
  const std::vector<std::string_view> lines = complete_lines(content);
  for (size_t i = 0; i < lines.size(); ++i) {
    try {
      read(lines[i], place(path, i));
    } catch (const Error& error) {
      log::warn("leaving out a damaged line: {}", error.what());
    }
  }
}

void append_line(FileSystem& fs, const std::string& path, const std::string& line) {
  const bool torn = fs.exists(path) && fs.size(path) > 0 && fs.map(path)->bytes().back() != std::byte{'\n'};
  append(fs, path, (torn ? "\n" : "") + line + "\n");
}

void keep_lines_until(FileSystem& fs, const std::string& path, int64_t step, bool ascending,
                      const std::function<int64_t(std::string_view, const std::string&)>& step_of) {
  if (!fs.exists(path)) return;
  const std::string content = fs.read(path);
  const std::vector<std::string_view> lines = complete_lines(content);
  std::vector<bool> kept(lines.size());
  size_t end = 0;  // after the last line that stays
  int64_t last = 0;
  std::vector<std::string> faults(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    try {
      const int64_t found = step_of(lines[i], place(path, i));
      kept[i] = found <= step && (ascending ? found > last : found >= last);
      if (!kept[i]) faults[i] = fmt::format("{}: step {} after step {}", place(path, i), found, last);
      if (kept[i]) last = found, end = i + 1;
    } catch (const Error& error) {
      faults[i] = error.what();
    }
  }
  std::string kept_text, damaged, first;
  int64_t count = 0;
  for (size_t i = 0; i < end; ++i) {
    (kept[i] ? kept_text : damaged).append(lines[i]).push_back('\n');
    if (!kept[i] && count++ == 0) first = faults[i];
  }
  if (count > 0) {
    append(fs, path + ".damaged", damaged);
    log::warn("{} damaged line{} moved to '{}.damaged'; {}", count, count == 1 ? " is" : "s are", path,
              first);
  }
  if (kept_text.size() != content.size()) write_file_atomically(fs, path, kept_text);
}

}  // namespace ingot
