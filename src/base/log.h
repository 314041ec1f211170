// Lines for people, on standard error: info, warn, error. Thread-safe (one write per line). Numbers for
// machines go to the metrics files instead.
#pragma once
#include <fmt/core.h>

#include <string>
#include <utility>

namespace ingot::log {

enum class Level { debug, info, warn, error, silent };

/// Drops lines below `level`. The default is info; $INGOT_LOG=debug|info|warn|error|silent sets another.
void set_level(Level level);
Level level();
/// Marks this process as one of several ranks: rank 0 shows all lines, the others only warnings and errors,
/// with their number.
void set_rank(int rank);
void write(Level level, const std::string& line);
/// Appends every later line of info and above to this file too, with its time, including lines that ranks
/// other than 0 do not show. An empty path ends this. Returns false where the file cannot be opened.
bool keep_in(const std::string& path);
/// Shows a line unchanged on every rank; the text itself says which rank speaks.
void announce(const std::string& text);
/// Standard error is a terminal that can rewrite a line; false for TERM=dumb, for ranks other than 0, and
/// where info lines are not shown.
bool has_status_line();
/// Keeps a line at the bottom of the terminal, below all others, until another replaces it or "" removes it.
/// What is wider than the terminal is cut. Does nothing without a status line.
void set_status(const std::string& line);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  if (level() <= Level::debug) write(Level::debug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::info, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::warn, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::error, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace ingot::log
