// The language of a rule's `when`: comparisons of facts, and, or, not, parentheses. No loops, no variables.
//
//   log("cqe|completion queue") and nodes == 1
//   job == "running" and silence > 60s and silence <= 200s
//   count("data loader starves", 1h) >= 3 or not throttled == 0
//
// A number may have a unit: s, min, h, d (seconds), % (hundredths). A lone number or fact means "is not 0".
// log(TEXT): lines of this start that hold TEXT or one of its alternatives, in any case.
// count(RULE, WINDOW): how often that rule was noted or acted upon in the window. Immutable after parsing.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "guard/facts.h"

namespace ingot::guard {

/// How often the rule of this name was noted or acted upon in the last so many seconds.
using RuleCount = std::function<int64_t(const std::string& rule, double seconds)>;

class Expression {
 public:
  /// Error that says what is wrong at which character. Texts of at most 2,000 bytes, which can hold in at
  /// most 1,024 ways.
  static Expression parse(std::string_view text);
  bool holds(const Facts& facts, const RuleCount& counts) const;
  /// Why no facts can make it hold; empty where some may. It knows ranges and values of facts; not what holds
  /// between different facts.
  std::string contradiction() const;
  const std::set<Fact>& facts() const { return facts_; }
  /// Rules that count() names.
  const std::vector<std::string>& counted() const { return counted_; }

 private:
  class Parser;
  struct Term {
    std::optional<double> constant = {};
    std::optional<Fact> fact = {};
    std::function<double(const Facts&, const RuleCount&)> value;
  };
  /// A constant stands on the right, unless both are constants.
  struct Comparison {
    Term left, right;
    unsigned accepted = 0;  ///< of the relations of left to right: kLess | kEqual | kGreater
  };
  static constexpr unsigned kLess = 1, kEqual = 2, kGreater = 4;
  static bool accepts(unsigned accepted, double left, double right);
  using Way = std::vector<Comparison>;
  static std::string contradiction_of(const Way& way);
  std::vector<Way> ways_;  ///< it holds where all comparisons of one of them do
  std::set<Fact> facts_;
  std::vector<std::string> counted_;
};

/// "90s", "5min", "24h", "50%", "3": the number in seconds, or the share. Error for anything else.
double parse_quantity(std::string_view text);

}  // namespace ingot::guard
