// What `mpirun` says on standard error, as people need it: its own notices become one line with what to do,
// an error that every rank reports is shown once, all else passes unchanged.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace ingot {

/// Not thread-safe. Source of the notices: Open MPI 4.1's help texts, framed by lines of dashes.
class MpirunMessages {
 public:
  explicit MpirunMessages(std::function<void(std::string_view)> write) : write_(std::move(write)) {}
  /// More text as it arrives; whole lines are passed on at once.
  void take(std::string_view text);
  /// The end: what is still held back is written.
  void finish();

 private:
  void take_line(const std::string& line);
  std::function<void(std::string_view)> write_;
  std::string line_;   // without its end yet
  std::string frame_;  // a notice whose closing line has not come
  bool framed_ = false;
  std::set<std::string> said_;  // lines since the first error
};

}  // namespace ingot
