// The facts that rules may ask about: a fixed table with units and ranges, and their values at one moment.
// Values; thread-compatible.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "guard/observation.h"

namespace ingot::guard {

/// The names of an enum as the values of a text.
template <class Enum>
constexpr auto texts_of() {
  std::array<const char*, enum_count<Enum>> texts{};
  for (size_t i = 0; const auto& e : enum_names(Enum{})) texts[i++] = e.name;
  return texts;
}
inline constexpr auto kJobTexts = texts_of<JobState>();
inline constexpr auto kFailureTexts = texts_of<FailureKind>();

/// Every fact: fact(name, what it says with its unit, what of FactInfo is not as by default)
// clang-format off
#define INGOT_FACTS(fact)                                                                                    \
  fact(job, "what the job does", .most = kJobTexts.size() - 1, .values = kJobTexts)                          \
  fact(failure, "why it ended", .most = kFailureTexts.size() - 1, .values = kFailureTexts)                   \
  fact(exit_code, "of an ended job; -1: killed or unknown", .quiet = -1, .most = 255, .least = -1)           \
  fact(silence, "seconds since the last step or sign of progress")                                           \
  fact(silent_steps, "silence over the usual time of a step; 0 while that is unknown")                       \
  fact(slow_steps, "windows of the run in a row that were slower than the usual band")                       \
  fact(throughput, "recent speed over the usual one", .quiet = 1)                                            \
  fact(slowest, "busy time of the slowest rank over the median", .quiet = 1)                                 \
  fact(slow_windows, "windows of the run in a row with the same rank above 1.15 of the median")              \
  fact(dips, "windows in the last hour whose speed fell below half and recovered")                           \
  fact(data_wait, "share of a step that waits for data", .most = 1)                                          \
  fact(spike_steps, "windows of the run in a row with a loss far above its mean")                            \
  fact(checkpoint_age, "steps since the newest complete one, over those between two")                        \
  fact(damaged_checkpoints, "newer than the newest complete one")                                            \
  fact(disk_free, "share of the disk of the run", .quiet = 1, .most = 1)                                     \
  fact(mismatches, "ranks whose digests differ from those of most copies")                                   \
  fact(copies, "copies of the same state that were compared")                                                \
  fact(throttled, "nodes with a reduced clock")                                                              \
  fact(memory_errors, "uncorrected, of all nodes")                                                           \
  fact(link_errors, "in the last 5 minutes, of all nodes")                                                   \
  fact(lost_nodes, "nodes that have not answered for 20 s")                                                  \
  fact(empty_nodes, "nodes without verified data")                                                           \
  fact(nodes, "suspects: nodes that the signs point to")                                                     \
  fact(idle_restarts, "restarts in a row that did not go beyond the highest step")                           \
  fact(clock_jump, "seconds that the wall clock jumped in the last half hour")
// clang-format on

#define INGOT_FACT_NAME(name, ...) name,
enum class Fact : uint8_t { INGOT_FACTS(INGOT_FACT_NAME) };

struct FactInfo {
  const char* name;
  const char* doc;                           ///< with the unit
  double quiet = 0;                          ///< its value where nothing happens
  double most = 1e15, least = 0;             ///< of texts: positions in `values`
  std::span<const char* const> values = {};  ///< of texts, all there are; empty: a number
};

#define INGOT_FACT_INFO(fact, ...) {.name = #fact, .doc = __VA_ARGS__},
inline constexpr FactInfo kFactTable[] = {INGOT_FACTS(INGOT_FACT_INFO)};
inline constexpr size_t kFacts = std::size(kFactTable);

constexpr const FactInfo& info_of(Fact fact) {
  return kFactTable[static_cast<size_t>(fact)];
}
constexpr auto enum_names(Fact) {
  std::array<EnumName<Fact>, kFacts> names{};
  for (size_t i = 0; i < kFacts; ++i) names[i] = {static_cast<Fact>(i), kFactTable[i].name};
  return names;
}

/// The value of every fact. Texts are positions in FactInfo::values.
class Facts {
 public:
  Facts();
  double operator[](Fact fact) const { return numbers_[static_cast<size_t>(fact)]; }
  void set(Fact fact, double value);
  void set(Fact fact, std::integral auto value) { set(fact, static_cast<double>(value)); }
  /// Of a text fact; `value` must be one of its values.
  void set(Fact fact, std::string_view value);
  /// The value as rules write it.
  std::string text(Fact fact) const;
  /// {"silence": 12.5, ...}: those that differ from a quiet run's.
  std::string json() const;
  /// Reads json(). Error for anything else.
  static Facts parse(const std::string& json);
  /// Whether a line that matches one of the alternatives of `pattern` ("cqe|completion queue", any case) was
  /// printed by this start.
  int64_t log_lines(std::string_view pattern) const;
  /// Keeps at most the newest kLogLines, each cut to 400 bytes.
  void add_log(std::string line);
  static constexpr size_t kLogLines = 200;

 private:
  bool set_text(Fact fact, std::string_view value);
  std::array<double, kFacts> numbers_{};
  std::vector<std::string> log_;
};

}  // namespace ingot::guard
