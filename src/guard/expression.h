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
  /// Error that says what is wrong at which character. Texts of at most 2,000 bytes.
  static Expression parse(std::string_view text);
  bool holds(const Facts& facts, const RuleCount& counts) const;
  /// Why no facts can make it hold; empty where some may. It knows ranges and values of facts, and tries
  /// every way (at most kWays) in which and, or and not can hold; not what holds between different facts.
  std::string contradiction() const;
  std::set<Fact> facts() const;
  /// Rules that count() names.
  std::vector<std::string> counted() const;

 private:
  friend class ExpressionParser;
  enum class Kind : uint8_t { either, both, negation, compare, number, fact, log, count };
  enum class Compare : uint8_t { equal, unequal, less, at_most, greater, at_least };
  struct Node {
    Kind kind = Kind::number;
    Compare compare = Compare::equal;
    double number = 0;  ///< the constant; of count, its window
    Fact fact{};
    std::string text;  ///< of log and count
    std::vector<size_t> parts;
  };
  double value(size_t node, const Facts& facts, const RuleCount& counts) const;
  /// What must be so of one fact, in one way in which the expression can hold.
  struct Claim {
    bool possible = true;  ///< false: of constants that are not so
    bool known = false;    ///< whether it says anything of `fact`
    Fact fact{};
    Compare compare = Compare::equal;
    double number = 0;
  };
  using Way = std::vector<Claim>;
  static constexpr size_t kWays = 1024;
  /// Every way in which `node` holds, or with `denied` does not; more than kWays: there are too many.
  std::vector<Way> ways(size_t node, bool denied) const;
  Claim claim(size_t node, bool denied) const;
  static std::string contradiction_of(const Way& way);
  std::vector<Node> nodes_;
  size_t root_ = 0;
};

/// "90s", "5min", "24h", "50%", "3": the number in seconds, or the share. Error for anything else.
double parse_quantity(std::string_view text);

}  // namespace ingot::guard
