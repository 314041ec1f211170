// Lines for people, on standard error: info, warn, error. Thread-safe (one write per line). Nothing here
// formats numbers for machines: metrics have their own files.
#pragma once
#include <fmt/core.h>

#include <string>
#include <utility>

namespace ingot::log {

enum class Level { debug, info, warn, error, silent };

/// Lines below `level` are dropped. The default is info; $INGOT_LOG=debug|info|warn|error|silent sets it at
/// start.
void set_level(Level level);
Level level();
/// One of several ranks as processes: rank 0 owns the terminal, the others say only what is wrong, with their number.
void set_rank(int rank);
void write(Level level, const std::string& line);
/// A line that stays at the bottom of the terminal below all others until it is replaced or "" removes it.
/// For terminals only (progress.h decides).
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
