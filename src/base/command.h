// A program that is started and not trusted: it has a time limit, no more than the first MiB of its output is
// read, and it never holds the caller up unless it is waited for. One thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace ingot {

/// A program and its arguments.
using Words = std::vector<std::string>;

/// Whether it is a program: a path that may be executed, or a name that PATH has.
bool can_start(const std::string& program);

struct CommandResult {
  int code = -1;       ///< 128 + the signal that ended it; 127: it could not be started
  bool late = false;   ///< it was killed at its time limit
  std::string output;  ///< what it printed
  std::string errors;  ///< on the standard error
  bool worked() const { return code == 0 && !late; }
  bool says(const std::string& text) const {
    return output.find(text) != output.npos || errors.find(text) != errors.npos;
  }
  /// "exit code 2: <first line>", or what else happened; for people.
  std::string text() const;
};

class Command {
 public:
  /// Starts `words` in a process group of its own, without input, its output in a new file at `output_path`,
  /// its errors in one of that name with .err.
  /// Error where there is no process for it.
  Command(const Words& words, std::string output_path, double seconds);
  /// Kills it where it still runs; what it left behind when it ended lives.
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  /// Nothing while it runs. Kills the group at the limit.
  std::optional<CommandResult> poll();
  CommandResult wait();

 private:
  const std::string output_path_;
  const double until_;
  int pid_ = -1;
  bool late_ = false;
  std::optional<CommandResult> result_;
};

}  // namespace ingot
