// What is made of a generated answer before it is compared: one named list of steps is one filter, and a task
// may have several, each with its own score. Pure; a Filter belongs to one thread (it holds patterns).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "eval/pattern.h"

namespace ingot {

enum class FilterFunction : uint8_t { strip_reasoning, regex, last_number, strip, lower };
constexpr auto enum_names(FilterFunction) {
  return names_in_order<FilterFunction>("strip_reasoning", "regex", "last_number", "strip", "lower");
}

/// [[filters.steps]]
struct FilterStep {
  FilterFunction function = FilterFunction::regex;
  std::string pattern;
  int64_t select = 0;
  std::string fallback = "[invalid]";
  std::string open = "<think>", close = "</think>";
  template <class Visitor>
  void visit(Visitor& v) {
    v("function", function, "strip_reasoning, regex, last_number, strip (white space) or lower");
    v("pattern", pattern, "regex: what is looked for; its group, where it has one, is what is taken");
    v("select", select, "regex: which of the matches; 0 is the first, -1 the last", between(-1e9, 1e9));
    v("fallback", fallback, "regex, last_number: what an answer without a match becomes");
    v("open", open, "strip_reasoning: what begins the reasoning");
    v("close", close, "strip_reasoning: what ends it; an answer that never ends it is empty");
  }
  void validate(ConfigErrors& errors) const;
};

/// [[filters]]
struct FilterConfig {
  std::string name = "none";
  std::vector<FilterStep> steps;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "which the results show");
    v("steps", steps, "what is done to an answer, in order; none: nothing");
  }
  void validate(ConfigErrors& errors) const;
};

class Filter {
 public:
  explicit Filter(FilterConfig config);
  const std::string& name() const { return config_.name; }
  std::string apply(std::string answer) const;

 private:
  FilterConfig config_;
  std::vector<std::optional<Pattern>> patterns_;  ///< one per step
};

/// The answer behind the reasoning: what follows the last `close`. Reasoning that was opened and not closed
/// leaves nothing; text without either stays.
std::string without_reasoning(const std::string& text, const std::string& open, const std::string& close);

}  // namespace ingot
