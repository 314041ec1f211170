// See facts.h.
#include "guard/facts.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "guard/observation.h"

namespace ingot::guard {
namespace {

constexpr double kMany = 1e15;
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
    {"job", "what the job does", 0, 0, kJobs},
    {"failure", "why it ended", 0, 0, kFailures},
    {"exit_code", "of an ended job; -1: killed or unknown", -1, 255, {}},
    {"silence", "seconds since the last step or sign of progress", 0, kMany, {}},
    {"silent_steps", "silence over the usual time of a step; 0 while that is unknown", 0, kMany, {}},
    {"slow_steps", "windows of the run in a row that were slower than the usual band", 0, kMany, {}},
    {"throughput", "recent speed over the usual one", 0, kMany, {}},
    {"slowest", "busy time of the slowest rank over the median", 0, kMany, {}},
    {"slow_windows", "windows of the run in a row with the same rank above 1.15 of the median", 0, kMany, {}},
    {"dips", "windows in the last hour whose speed fell below half and recovered", 0, kMany, {}},
    {"data_wait", "share of a step that waits for data", 0, 1, {}},
    {"spike_steps", "windows of the run in a row with a loss far above its mean", 0, kMany, {}},
    {"checkpoint_age", "steps since the newest complete one, over those between two", 0, kMany, {}},
    {"damaged_checkpoints", "newer than the newest complete one", 0, kMany, {}},
    {"disk_free", "share of the disk of the run", 0, 1, {}},
    {"mismatches", "ranks whose digests differ from those of most copies", 0, kMany, {}},
    {"copies", "copies of the same state that were compared", 0, kMany, {}},
    {"throttled", "nodes with a reduced clock", 0, kMany, {}},
    {"memory_errors", "uncorrected, of all nodes", 0, kMany, {}},
    {"link_errors", "in the last 5 minutes, of all nodes", 0, kMany, {}},
    {"lost_nodes", "nodes that have not answered for 20 s", 0, kMany, {}},
    {"empty_nodes", "nodes without verified data", 0, kMany, {}},
    {"nodes", "suspects: nodes that the signs point to", 0, kMany, {}},
    {"idle_restarts", "restarts in a row that did not go beyond the highest step", 0, kMany, {}},
    {"clock_jump", "seconds that the wall clock jumped in the last half hour", 0, kMany, {}},
};

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool contains_any_case(std::string_view line, std::string_view word) {
  if (word.empty()) return false;
  return std::search(line.begin(), line.end(), word.begin(), word.end(),
                     [](char a, char b) { return lower(a) == lower(b); }) != line.end();
}

bool matches(std::string_view line, std::string_view pattern) {
  while (true) {
    const size_t bar = pattern.find('|');
    if (contains_any_case(line, pattern.substr(0, bar))) return true;
    if (bar == pattern.npos) return false;
    pattern.remove_prefix(bar + 1);
  }
}

double quiet_value(Fact fact) {
  switch (fact) {
    case Fact::disk_free:
    case Fact::throughput:
    case Fact::slowest:
      return 1;
    case Fact::exit_code:
      return -1;
    default:
      return 0;
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

bool find_fact(std::string_view name, Fact& fact) {
  for (size_t i = 0; i < kFacts; ++i)
    if (name == kTable[i].name) {
      fact = static_cast<Fact>(i);
      return true;
    }
  return false;
}

Facts::Facts() {
  for (size_t i = 0; i < kFacts; ++i) numbers_[i] = quiet_value(static_cast<Fact>(i));
}

void Facts::set(Fact fact, double value) {
  const FactInfo& info = info_of(fact);
  INGOT_CHECK(info.values.empty(), "{} is a text", info.name);
  // What a foreign file says may be anything: it stays in the range that rules were checked against.
  numbers_[static_cast<size_t>(fact)] =
      std::isnan(value) ? quiet_value(fact) : std::clamp(value, info.least, info.most);
}

void Facts::set(Fact fact, std::string_view value) {
  const FactInfo& info = info_of(fact);
  const auto found =
      std::find_if(info.values.begin(), info.values.end(), [&](const char* v) { return value == v; });
  INGOT_CHECK(found != info.values.end(), "'{}' is no value of {}", value, info.name);
  numbers_[static_cast<size_t>(fact)] = static_cast<double>(found - info.values.begin());
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
    if (numbers_[i] == quiet_value(static_cast<Fact>(i))) continue;
    if (kTable[i].values.empty())
      j[kTable[i].name] = numbers_[i];
    else
      j[kTable[i].name] = kTable[i].values[static_cast<size_t>(numbers_[i])];
  }
  if (!log_.empty()) j["log"] = log_;
  return j.dump();
}

Facts Facts::parse(const std::string& text) {
  Facts facts;
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) fail("the facts of a journal entry are damaged: {}", text.substr(0, 200));
  for (const auto& [key, value] : j.items()) {
    Fact fact{};
    if (key == "log" && value.is_array()) {
      for (const auto& line : value)
        if (line.is_string()) facts.add_log(line.get<std::string>());
    } else if (!find_fact(key, fact)) {
      fail("the facts of a journal entry name '{}', which is no fact", key);
    } else if (info_of(fact).values.empty() && value.is_number()) {
      facts.set(fact, value.get<double>());
    } else if (value.is_string() &&
               std::any_of(info_of(fact).values.begin(), info_of(fact).values.end(),
                           [&](const char* v) { return value.get_ref<const std::string&>() == v; })) {
      facts.set(fact, std::string_view(value.get_ref<const std::string&>()));
    } else {
      fail("the fact '{}' of a journal entry has a value that it cannot have", key);
    }
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
