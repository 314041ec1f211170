// See run_reader.h.
#include "guard/run_reader.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/error.h"
#include "base/file_system.h"
#include "base/foreign_json.h"
#include "report/rank_status.h"

namespace ingot::guard {
namespace {

constexpr uint64_t kLogAtOnce = 65536;  ///< bytes of the job's output in one look
constexpr size_t kRanks = 4096;

double free_share(const std::string& path) {
  struct statvfs s {};
  if (::statvfs(path.c_str(), &s) != 0 || s.f_blocks == 0) return 1;
  return static_cast<double>(s.f_bavail) / static_cast<double>(s.f_blocks);
}

std::vector<std::string> names_in(const std::string& folder) {
  try {
    return real_file_system().exists(folder) ? real_file_system().list(folder) : std::vector<std::string>();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

void RunReader::read(Observation& seen, int64_t start, const std::string& log_path) {
  seen = {.now = seen.now,
          .wall = seen.wall,
          .job = seen.job,
          .exit_code = seen.exit_code,
          .start = seen.start,
          .failure = FailureReport::parse(read_small(folder_ + "/failure.json"), start)};
  read_status(seen, start);
  read_log(seen, log_path);
  if (seen.failure && !seen.failure->suspects.empty()) {
    seen.minority = seen.failure->suspects;
    seen.copies = seen.failure->copies;
    seen.agreed_step = seen.failure->trouble_step - 1;
  }
  seen.disk_free = free_share(folder_);
  read_checkpoints(seen);
}

void RunReader::read_status(Observation& seen, int64_t start) {
  ended_ = seen.job == JobState::ended ? std::min(ended_, seen.now) : kNever;
  for (const std::string& name : names_in(folder_ + "/status")) {
    if (!name.starts_with("rank-") || !name.ends_with(".json") || seen.nodes.size() >= kRanks) continue;
    std::string content = read_small(folder_ + "/status/" + name);
    const std::optional<RankStatus> status = RankStatus::parse(content, start);
    if (!status) continue;
    Known& known = known_[name];
    if (known.text != content) known = {std::move(content), seen.now};
    seen.nodes.push_back({.name = status->host,
                          .rank = status->rank,
                          .age = std::max(0.0, std::min(seen.now, ended_) - known.since),
                          .busy = status->busy_seconds});
    if (status->rank == 0) seen.first = *status;
  }
}

void RunReader::read_log(Observation& seen, const std::string& path) {
  if (path != log_path_) log_path_ = path, log_read_ = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return;
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(0, file.tellg()));
  if (size > log_read_ + kLogAtOnce) log_read_ = size - kLogAtOnce;  // the newest says most
  if (size <= log_read_) return;
  std::string lines(size - log_read_, '\0');
  file.seekg(static_cast<std::streamoff>(log_read_));
  if (!file.read(lines.data(), static_cast<std::streamsize>(lines.size()))) return;
  const size_t complete = lines.rfind('\n');
  if (complete == lines.npos) return;
  log_read_ += complete + 1;
  for (size_t at = 0; at < complete;) {
    const size_t end = std::min(lines.find('\n', at), complete);
    if (end > at) seen.log.push_back(lines.substr(at, end - at));
    at = end + 1;
  }
}

void RunReader::read_checkpoints(Observation& seen) const {
  seen.checkpoints.clear();
  constexpr std::string_view kPrefix = "step-";
  for (const std::string& name : names_in(folder_ + "/checkpoints")) {
    if (!name.starts_with(kPrefix) || name.find('.') != name.npos)
      continue;  // those being written or deleted
    int64_t step = -1;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    const std::string manifest = fmt::format("{}/checkpoints/{}/manifest.json", folder_, name);
    if (step >= 0 && real_file_system().exists(manifest)) seen.checkpoints.push_back(step);
  }
  std::sort(seen.checkpoints.begin(), seen.checkpoints.end());
  const RankStatus& s = seen.first;
  const int64_t since =
      s.step - std::max(s.start_step, seen.checkpoints.empty() ? -1 : seen.checkpoints.back());
  if (s.save_every > 0 && s.start_step >= 0 && since > 0)
    seen.checkpoint_age = static_cast<double>(since) / static_cast<double>(s.save_every);
}

}  // namespace ingot::guard
