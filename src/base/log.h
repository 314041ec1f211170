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
/// From now on every line of info and above goes to this file too, with its time: also what ranks other than 0 do not show.
/// Appends. Empty: no longer. Returns false where the file cannot be opened.
bool keep_in(const std::string& path);
/// Last words that say themselves who speaks: every rank shows them as they are.
void announce(const std::string& text);
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
