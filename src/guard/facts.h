// The facts that rules may ask about: a fixed table with units and ranges, and their values at one moment.
// Values; thread-compatible.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::guard {

enum class Fact : uint8_t {
  job,
  failure,
  exit_code,
  silence,
  silent_steps,
  slow_steps,
  throughput,
  slowest,
  slow_windows,
  dips,
  data_wait,
  spike_steps,
  checkpoint_age,
  damaged_checkpoints,
  disk_free,
  mismatches,
  copies,
  throttled,
  memory_errors,
  link_errors,
  lost_nodes,
  empty_nodes,
  nodes,
  idle_restarts,
  clock_jump
};
inline constexpr size_t kFacts = 25;

struct FactInfo {
  const char* name;
  const char* doc;                           ///< with the unit
  double quiet = 0;                          ///< its value where nothing happens
  double most = 1e15, least = 0;             ///< of texts: positions in `values`
  std::span<const char* const> values = {};  ///< of texts, all there are; empty: a number
};

/// Row of a fact; every Fact has one.
const FactInfo& info_of(Fact fact);
/// Every name in the order of Fact.
std::vector<std::string> fact_names();
std::optional<Fact> find_fact(std::string_view name);

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
  const std::vector<std::string>& log() const { return log_; }
  static constexpr size_t kLogLines = 200;

 private:
  bool set_text(Fact fact, std::string_view value);
  std::array<double, kFacts> numbers_{};
  std::vector<std::string> log_;
};

}  // namespace ingot::guard
