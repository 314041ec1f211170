// A folder that looks like a fresh clone with a finished build, in which tests type commands as a person
// does.
#pragma once
#include <string>
#include <vector>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test {

class Clone {
 public:
  Clone();
  const std::string& path() const { return folder_.path(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  /// The line of README that puts `ingot` on the path.
  std::string path_line() const;
  /// Runs lines in bash as a person's shell would: a plain PATH, nothing of the tests' environment, and what
  /// MPI needs to start ranks for root on few cores. Stops at the first line that fails.
  ProcessResult type(const std::string& lines) const;

 private:
  TempDir folder_;
};

/// A fenced block of a page: "```sh needs=mpi" has the language "sh" and the note "needs=mpi".
struct Fence {
  int line = 0;
  std::string language, note, text;
};
std::vector<Fence> fences_of(const std::string& page);

/// Commands of the program with their own ("tokenizer encode"); "" is the program.
std::vector<std::string> all_commands();

}  // namespace ingot::test
