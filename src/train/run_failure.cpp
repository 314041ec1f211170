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

struct Told {
  RunFault fault = RunFault::unknown;
  std::string message, hint;
  int64_t trouble_step = 0;
  std::vector<Suspect> suspects = {};
  int copies = 0;
};

bool says(const std::string& message, const char* words) {
  return message.find(words) != std::string::npos;
}

/// Errors of the folders below name ranks, operations and files in fixed words.
RunFault fault_of(const std::string& message, bool trains) {
  if (says(message, "not complete after") || says(message, "and waits for rank")) return RunFault::late;
  if (says(message, "ended with an error") || says(message, "has ended") || says(message, "is gone"))
    return RunFault::lost;
  if (says(message, "No space left") || says(message, "Input/output error") || says(message, "Stale file"))
    return RunFault::storage;
  return trains ? RunFault::unknown : RunFault::config;
}

Told told(bool trains) {
  try {
    throw;
  } catch (const RunError& e) {
    return {e.fault(), e.what(), e.hint(), e.trouble_step(), e.suspects(), e.copies()};
  } catch (const Error& e) {
    return {fault_of(e.what(), trains), e.what(), e.hint()};
  } catch (const std::bad_alloc&) {
    return {RunFault::memory, "out of memory", ""};
  } catch (const std::exception& e) {
    return {RunFault::bug, e.what(), ""};
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
    const Told t = told(trains);
    const std::string path = folder + "/failure.json";
    if (!fs.exists(folder)) return;
    if ((t.fault == RunFault::lost || t.fault == RunFault::late) && first_stays(fs, path)) return;
    const Suspect who = t.suspects.empty() ? Suspect{rank, host_name()} : t.suspects.front();
    nlohmann::ordered_json j{{"format", 1},
                             {"start", guard_start()},
                             {"kind", name_of(t.fault)},
                             {"rank", who.rank},
                             {"host", who.host},
                             {"step", step},
                             {"trouble_step", t.trouble_step},
                             {"message", t.message},
                             {"hint", t.hint},
                             {"time", wall_seconds()}};
    for (const Suspect& s : t.suspects) j["suspects"].push_back({{"rank", s.rank}, {"host", s.host}});
    if (!t.suspects.empty()) j["copies"] = t.copies;
    write_file_atomically(fs, path,
                          j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } catch (const std::exception& e) {
    log::warn("failure.json was not written: {}", e.what());
  }
}

}  // namespace ingot
