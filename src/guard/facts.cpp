// See facts.h.
#include "guard/facts.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "guard/observation.h"

namespace ingot::guard {
namespace {

/// The names of an enum as texts of a fact.
template <class Enum>
constexpr auto texts_of() {
  std::array<const char*, enum_count<Enum>> texts{};
  for (size_t i = 0; const auto& e : enum_names(Enum{})) texts[i++] = e.name;
  return texts;
}
constexpr auto kJobs = texts_of<JobState>();
constexpr auto kFailures = texts_of<FailureKind>();

const FactInfo kTable[kFacts] = {
    {"job", "what the job does", 0, kJobs.size() - 1, 0, kJobs},
    {"failure", "why it ended", 0, kFailures.size() - 1, 0, kFailures},
    {"exit_code", "of an ended job; -1: killed or unknown", -1, 255, -1},
    {"silence", "seconds since the last step or sign of progress"},
    {"silent_steps", "silence over the usual time of a step; 0 while that is unknown"},
    {"slow_steps", "windows of the run in a row that were slower than the usual band"},
    {"throughput", "recent speed over the usual one", 1},
    {"slowest", "busy time of the slowest rank over the median", 1},
    {"slow_windows", "windows of the run in a row with the same rank above 1.15 of the median"},
    {"dips", "windows in the last hour whose speed fell below half and recovered"},
    {"data_wait", "share of a step that waits for data", 0, 1},
    {"spike_steps", "windows of the run in a row with a loss far above its mean"},
    {"checkpoint_age", "steps since the newest complete one, over those between two"},
    {"damaged_checkpoints", "newer than the newest complete one"},
    {"disk_free", "share of the disk of the run", 1, 1},
    {"mismatches", "ranks whose digests differ from those of most copies"},
    {"copies", "copies of the same state that were compared"},
    {"throttled", "nodes with a reduced clock"},
    {"memory_errors", "uncorrected, of all nodes"},
    {"link_errors", "in the last 5 minutes, of all nodes"},
    {"lost_nodes", "nodes that have not answered for 20 s"},
    {"empty_nodes", "nodes without verified data"},
    {"nodes", "suspects: nodes that the signs point to"},
    {"idle_restarts", "restarts in a row that did not go beyond the highest step"},
    {"clock_jump", "seconds that the wall clock jumped in the last half hour"},
};

bool contains_any_case(std::string_view line, std::string_view word) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return !word.empty() && std::search(line.begin(), line.end(), word.begin(), word.end(), same) != line.end();
}

bool matches(std::string_view line, std::string_view pattern) {
  while (true) {
    const size_t bar = pattern.find('|');
    if (contains_any_case(line, pattern.substr(0, bar))) return true;
    if (bar == pattern.npos) return false;
    pattern.remove_prefix(bar + 1);
  }
}

}  // namespace

const FactInfo& info_of(Fact fact) {
  return kTable[static_cast<size_t>(fact)];
}

std::vector<std::string> fact_names() {
  std::vector<std::string> names;
  for (const FactInfo& info : kTable) names.emplace_back(info.name);
  return names;
}

std::optional<Fact> find_fact(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const FactInfo& f) { return name == f.name; });
  if (found == std::end(kTable)) return std::nullopt;
  return static_cast<Fact>(found - std::begin(kTable));
}

Facts::Facts() {
  for (size_t i = 0; i < kFacts; ++i) numbers_[i] = kTable[i].quiet;
}

void Facts::set(Fact fact, double value) {
  const FactInfo& info = info_of(fact);
  INGOT_CHECK(info.values.empty(), "{} is a text", info.name);
  // What a foreign file says may be anything: it stays in the range that rules were checked against.
  numbers_[static_cast<size_t>(fact)] =
      std::isnan(value) ? info.quiet : std::clamp(value, info.least, info.most);
}

void Facts::set(Fact fact, std::string_view value) {
  INGOT_CHECK(set_text(fact, value), "'{}' is no value of {}", value, info_of(fact).name);
}

bool Facts::set_text(Fact fact, std::string_view value) {
  const auto values = info_of(fact).values;
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end()) return false;
  numbers_[static_cast<size_t>(fact)] = static_cast<double>(found - values.begin());
  return true;
}

std::string Facts::text(Fact fact) const {
  const FactInfo& info = info_of(fact);
  const double value = (*this)[fact];
  return info.values.empty() ? fmt::format("{:.6g}", value)
                             : fmt::format("\"{}\"", info.values[static_cast<size_t>(value)]);
}

std::string Facts::json() const {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  for (size_t i = 0; i < kFacts; ++i) {
    const FactInfo& info = kTable[i];
    if (numbers_[i] == info.quiet) continue;
    if (info.values.empty())
      j[info.name] = numbers_[i];
    else
      j[info.name] = info.values[static_cast<size_t>(numbers_[i])];
  }
  if (!log_.empty()) j["log"] = log_;
  return j.dump();
}

Facts Facts::parse(const std::string& text) {
  Facts facts;
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) fail("the facts of a journal entry are damaged: {}", text.substr(0, 200));
  for (const auto& [key, value] : j.items()) {
    if (key == "log" && value.is_array()) {
      for (const auto& line : value)
        if (line.is_string()) facts.add_log(line.get<std::string>());
      continue;
    }
    const std::optional<Fact> fact = find_fact(key);
    if (!fact) fail("the facts of a journal entry name '{}', which is no fact", key);
    if (info_of(*fact).values.empty() && value.is_number())
      facts.set(*fact, value.get<double>());
    else if (!value.is_string() || !facts.set_text(*fact, value.get<std::string>()))
      fail("the fact '{}' of a journal entry has a value that it cannot have", key);
  }
  return facts;
}

int64_t Facts::log_lines(std::string_view pattern) const {
  return std::count_if(log_.begin(), log_.end(),
                       [&](const std::string& line) { return matches(line, pattern); });
}

void Facts::add_log(std::string line) {
  if (line.size() > 400) line.resize(400);
  log_.push_back(utf8::repair(line));
  if (log_.size() > kLogLines) log_.erase(log_.begin());
}

}  // namespace ingot::guard
