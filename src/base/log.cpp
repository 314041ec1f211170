// See log.h.
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace ingot::log {
namespace {

Level level_from_environment() {
  const char* text = std::getenv("INGOT_LOG");
  const std::string_view name = text ? text : "";
  if (name == "debug") return Level::debug;
  if (name == "warn") return Level::warn;
  if (name == "error") return Level::error;
  if (name == "silent") return Level::silent;
  return Level::info;
}

std::atomic<Level>& current() {
  static std::atomic<Level> value{level_from_environment()};
  return value;
}

std::atomic<int>& current_rank() {
  static std::atomic<int> value{0};
  return value;
}

struct Status {
  std::mutex mutex;
  std::string line;
};
Status& status() {
  static Status value;
  return value;
}

constexpr const char* kClearLine = "\r\x1b[K";

// One write per line keeps lines of several threads whole; a closed terminal is not an error of the job.
void write_text(const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void set_level(Level level) {
  current() = level;
}
Level level() {
  return current();
}
void set_rank(int rank) {
  current_rank() = rank;
}

void write(Level line_level, const std::string& line) {
  const int rank = current_rank();
  if (line_level < level() || line_level == Level::silent || (rank > 0 && line_level < Level::warn)) return;
  std::string text = rank > 0 ? fmt::format("rank {}: ", rank) : "";
  if (line_level == Level::warn) text += "warning: ";
  if (line_level == Level::error) text += "error: ";
  text += line;
  text += '\n';
  const std::lock_guard lock(status().mutex);
  if (!status().line.empty()) text = kClearLine + text + status().line;
  write_text(text);
}

void set_status(const std::string& line) {
  if (level() > Level::info || current_rank() > 0) return;
  const std::lock_guard lock(status().mutex);
  if (line.empty() && status().line.empty()) return;
  status().line = line;
  write_text(kClearLine + line);
}

}  // namespace ingot::log
