// See run_failure.h.
#include "train/run_failure.h"

#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/range.h"

namespace ingot {
namespace {

bool says(const std::string& message, const char* words) {
  return message.find(words) != std::string::npos;
}

/// Errors of the folders below name ranks, operations and files in fixed words.
FailureKind fault_of(const std::string& message, bool trains) {
  if (says(message, "not complete after") || says(message, "and waits for rank")) return FailureKind::late;
  if (says(message, "ended with an error") || says(message, "has ended") || says(message, "is gone"))
    return FailureKind::lost;
  if (says(message, "No space left") || says(message, "Input/output error") || says(message, "Stale file"))
    return FailureKind::storage;
  return trains ? FailureKind::unknown : FailureKind::config;
}

FailureReport told(bool trains) {
  try {
    throw;
  } catch (const RunError& e) {
    return {.kind = e.fault(),
            .message = e.what(),
            .hint = e.hint(),
            .trouble_step = e.trouble_step(),
            .suspects = e.suspects(),
            .copies = e.copies()};
  } catch (const Error& e) {
    return {.kind = fault_of(e.what(), trains), .message = e.what(), .hint = e.hint()};
  } catch (const std::bad_alloc&) {
    return {.kind = FailureKind::memory, .message = "out of memory"};
  } catch (const std::exception& e) {
    return {.kind = FailureKind::bug, .message = e.what()};
  }
}

/// Whether the file tells of this start's own fault already: ranks that only lost another one do not replace
/// it.
bool first_stays(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) return false;
  const auto j = nlohmann::json::parse(fs.read(path), nullptr, false);
  return j.is_object() && j.value("start", nlohmann::json()) == guard_start() &&
         j.value("time", 0.0) > wall_seconds() - 30;
}

}  // namespace

int64_t guard_start() {
  const char* text = std::getenv("INGOT_GUARD_START");
  return text == nullptr ? 0 : parse_integer(text, up_to(bounds::kSteps), "INGOT_GUARD_START");
}

void record_failure(FileSystem& fs, const std::string& folder, int rank, int64_t step, bool trains) noexcept {
  try {
    FailureReport report = told(trains);
    const std::string path = folder + "/failure.json";
    if (!fs.exists(folder)) return;
    const bool tells_of_another = report.kind == FailureKind::lost || report.kind == FailureKind::late;
    if (tells_of_another && first_stays(fs, path)) return;
    const Suspect who = report.suspects.empty() ? Suspect{host_name(), rank} : report.suspects.front();
    report.node = who.node;
    report.rank = who.rank;
    report.step = step;
    write_file_atomically(fs, path, report.json(guard_start()), fmt::format(".rank-{}", rank));
  } catch (const std::exception& e) {
    log::warn("failure.json was not written: {}", e.what());
  }
}

}  // namespace ingot
