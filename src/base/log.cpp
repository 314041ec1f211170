// See log.h.
#include "base/log.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string_view>

#include "base/invocation.h"
#include "base/standard_streams.h"
#include "base/terminal_text.h"

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
  int file = -1;  // the file that also gets the lines
};
Status& status() {
  static Status value;
  return value;
}

constexpr const char* kClearLine = "\r\x1b[K";

/// `line` without the characters that the terminal would continue on a second line, which cannot be
/// rewritten.
std::string cut_to_terminal(const std::string& line) {
  winsize size{};
  const int columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  int used = 0;
  for (size_t i = 0; i < line.size(); ++i)
    if ((line[i] & 0xC0) != 0x80 && ++used >= columns) return line.substr(0, i);
  return line;
}

void write_text(const std::string& text, int file = STDERR_FILENO) {
  write_to_reader(file, text);
}

/// With the mutex held.
void keep(const std::string& text) {
  if (status().file < 0) return;
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::strftime(time, sizeof time, "%FT%TZ ", ::gmtime_r(&now, &utc));
  write_text(time + text, status().file);
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
  std::string text = line_level == Level::warn ? "warning: " : line_level == Level::error ? "error: " : "";
  text += terminal_text(as_typed(line));
  text += '\n';
  const std::lock_guard lock(status().mutex);
  if (line_level >= std::min(level(), Level::info)) keep(text);
  if (line_level < level() || line_level == Level::silent || (rank > 0 && line_level < Level::warn)) return;
  if (rank > 0) text = fmt::format("rank {}: {}", rank, text);
  if (!status().line.empty()) text = kClearLine + text + cut_to_terminal(status().line);
  write_text(text);
}

bool keep_in(const std::string& path) {
  const int file = path.empty() ? -1 : ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const std::lock_guard lock(status().mutex);
  if (status().file >= 0) ::close(status().file);
  status().file = file;
  return path.empty() || file >= 0;
}

void announce(const std::string& text) {
  const std::lock_guard lock(status().mutex);
  keep(text + '\n');
  write_text(text + '\n');
}

bool has_status_line() {
  static const bool rewrites = [] {
    const char* term = std::getenv("TERM");
    return ::isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
  }();
  return rewrites && level() <= Level::info && current_rank() == 0;
}

void set_status(const std::string& line) {
  if (!has_status_line()) return;
  const std::lock_guard lock(status().mutex);
  if (line.empty() && status().line.empty()) return;
  status().line = line;
  write_text(kClearLine + cut_to_terminal(line));
}

}  // namespace ingot::log
