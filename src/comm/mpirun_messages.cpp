// See mpirun_messages.h.
#include "comm/mpirun_messages.h"

#include <algorithm>
#include <optional>

namespace ingot {
namespace {

/// A notice of mpirun that contains `part`, and what to say instead; "": nothing, since ranks say it
/// themselves.
struct Notice {
  const char *part, *instead;
};
constexpr Notice kNotices[] = {
    {"attempt to run as root",
     "error: mpirun does not start ranks for root\n"
     "hint: set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user\n"},
    {"not enough slots available",
     "error: mpirun has fewer slots (cores) than ranks are asked for\n"
     "hint: take fewer ranks with -n, or write --oversubscribe before -- so that ranks share cores\n"},
    {"Primary job", ""},
    {"processes exited with non-zero status", ""},
    {"MPI_ABORT was invoked", ""},
};

std::optional<std::string> explained(std::string notice) {
  std::replace(notice.begin(), notice.end(), '\n', ' ');
  for (const Notice& n : kNotices)
    if (notice.find(n.part) != std::string::npos) return n.instead;
  return std::nullopt;
}

/// `line` without the number of the rank that says it.
std::string without_rank(std::string line) {
  const size_t rank = line.find("rank ");
  if (rank == std::string::npos) return line;
  return line.erase(rank, line.find_first_not_of("0123456789", rank + 5) - rank);
}

/// The line that opens and closes a notice.
bool is_frame(const std::string& line) {
  return line.size() > 40 && line.find_first_not_of("-\n") == std::string::npos;
}

}  // namespace

void MpirunMessages::take(std::string_view text) {
  for (const char c : text) {
    line_ += c;
    if (c != '\n') continue;
    take_line(line_);
    line_.clear();
  }
}

void MpirunMessages::take_line(const std::string& line) {
  if (is_frame(line)) {
    if (framed_) write_(explained(frame_).value_or(frame_ + line));
    frame_ = framed_ ? "" : line;
    framed_ = !framed_;
  } else if (framed_) {
    frame_ += line;
  } else if (line.find("orte_base_help_aggregate") == std::string::npos &&
             line.find("sent help message help-") == std::string::npos) {
    const bool of_an_error = !said_.empty() || line.starts_with("error");
    if (!of_an_error || said_.insert(without_rank(line)).second) write_(line);
  }
}

void MpirunMessages::finish() {
  write_(frame_ + line_);
  frame_.clear(), line_.clear();
}

}  // namespace ingot
