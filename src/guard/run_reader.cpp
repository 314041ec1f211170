// See run_reader.h.
#include "guard/run_reader.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/enum.h"
#include "base/error.h"
#include "base/file_system.h"

namespace ingot::guard {
namespace {

using AnyJson = nlohmann::json;

constexpr int64_t kFormat = 1;          ///< of status and failure files
constexpr uint64_t kLogAtOnce = 65536;  ///< bytes of the job's output in one look
constexpr size_t kRanks = 4096;

double real(const AnyJson& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return otherwise;
  const double value = found->get<double>();
  return std::isfinite(value) ? value : otherwise;
}

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

std::string read_small(const std::string& path) {
  try {
    if (!real_file_system().exists(path)) return "";
    return read_at_most(real_file_system(), path, 1 << 20);
  } catch (const Error&) {
    return "";
  }
}

AnyJson read_object(const std::string& path) {
  AnyJson j = AnyJson::parse(read_small(path), nullptr, false);
  return j.is_object() ? j : AnyJson::object();
}

int64_t whole(const AnyJson& object, const char* key, int64_t otherwise) {
  const double value = real(object, key, std::nan(""));
  return std::abs(value) <= 0x1p53 && value == std::floor(value) ? static_cast<int64_t>(value) : otherwise;
}

std::string text_in(const AnyJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>().substr(0, 4000) : "";
}

std::optional<FailureReport> parse_failure(const std::string& content, int64_t start) {
  const AnyJson j = AnyJson::parse(content, nullptr, false);
  if (!j.is_object() || whole(j, "format", 0) != kFormat || whole(j, "start", 0) != start)
    return std::nullopt;
  FailureReport f{.node = text_in(j, "host"), .message = text_in(j, "message")};
  for (const auto& kind : enum_names(FailureKind{}))
    if (text_in(j, "kind") == kind.name) f.kind = kind.value;
  f.rank = whole(j, "rank", -1);
  f.step = whole(j, "step", -1);
  f.trouble_step = std::max<int64_t>(0, whole(j, "trouble_step", 0));
  f.copies = std::max<int64_t>(0, whole(j, "copies", 0));
  const auto suspects = j.find("suspects");
  if (f.kind == FailureKind::mismatch && suspects != j.end() && suspects->is_array())
    for (const AnyJson& s : *suspects)
      if (s.is_object() && f.suspects.size() < kRanks)
        f.suspects.push_back({text_in(s, "host"), whole(s, "rank", 0)});
  return f;
}

void RunReader::read(Observation& seen, int64_t start, const std::string& log_path) {
  seen = {.now = seen.now,
          .wall = seen.wall,
          .job = seen.job,
          .exit_code = seen.exit_code,
          .start = seen.start,
          .failure = parse_failure(read_small(folder_ + "/failure.json"), start)};
  read_status(seen, start);
  read_log(seen, log_path);
  if (seen.failure && !seen.failure->suspects.empty()) {
    seen.minority = seen.failure->suspects;
    seen.copies = seen.failure->copies;
    seen.agreed_step = seen.failure->trouble_step - 1;
  }
  seen.disk_free = free_share(folder_);
  const std::vector<int64_t> steps = checkpoints();
  seen.checkpoint = steps.empty() ? -1 : steps.back();
  const int64_t since = seen.step - std::max(seen.start_step, seen.checkpoint);
  seen.checkpoint_age = save_every_ > 0 && seen.start_step >= 0 && since > 0
                            ? static_cast<double>(since) / static_cast<double>(save_every_)
                            : 0;
}

void RunReader::read_status(Observation& seen, int64_t start) {
  save_every_ = 0;
  ended_ = seen.job == JobState::ended ? std::min(ended_, seen.now) : kNever;
  for (const std::string& name : names_in(folder_ + "/status")) {
    if (!name.starts_with("rank-") || !name.ends_with(".json") || seen.nodes.size() >= kRanks) continue;
    std::string content = read_small(folder_ + "/status/" + name);
    const AnyJson j = AnyJson::parse(content, nullptr, false);
    if (!j.is_object() || whole(j, "format", 0) != kFormat || whole(j, "start", 0) != start) continue;
    Known& known = known_[name];
    if (known.text != content) known = {std::move(content), seen.now};
    const int64_t rank = whole(j, "rank", 0);
    seen.nodes.push_back({.name = text_in(j, "host"),
                          .rank = rank,
                          .age = std::max(0.0, std::min(seen.now, ended_) - known.since),
                          .busy = std::max(0.0, real(j, "busy_seconds", 0))});
    if (rank != 0) continue;
    seen.start_step = std::max<int64_t>(-1, whole(j, "start_step", -1));
    seen.step = std::max<int64_t>(-1, whole(j, "step", -1));
    seen.step_seconds = std::max(0.0, real(j, "step_seconds", 0));
    seen.data_wait = std::clamp(real(j, "data_wait", 0), 0.0, 1.0);
    seen.saved_seconds = std::max(0.0, real(j, "saved_seconds", 0));
    seen.spike = j.value("spike", AnyJson()) == true;
    save_every_ = std::max<int64_t>(0, whole(j, "save_every", 0));
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

std::vector<int64_t> RunReader::checkpoints() const {
  std::vector<int64_t> steps;
  constexpr std::string_view kPrefix = "step-";
  for (const std::string& name : names_in(folder_ + "/checkpoints")) {
    if (!name.starts_with(kPrefix) || name.find('.') != name.npos)
      continue;  // those being written or deleted
    int64_t step = -1;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    const std::string manifest = fmt::format("{}/checkpoints/{}/manifest.json", folder_, name);
    if (step >= 0 && real_file_system().exists(manifest)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace ingot::guard
