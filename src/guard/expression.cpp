// See expression.h. `not` is resolved while parsing, so that an expression is a list of ways to hold, and
// each way a list of comparisons.
#include "guard/expression.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "base/config_node.h"
#include "base/error.h"

namespace ingot::guard {
namespace {

constexpr int kDeepest = 32;
constexpr size_t kWays = 1024, kLongest = 2000;

bool letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Of the characters of a number and its unit that `text` begins with; 0: none.
size_t quantity_at(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return 0;
  const auto digits = static_cast<size_t>(end - text.data());
  size_t used = digits;
  while (used < text.size() && (letter(text[used]) || text[used] == '%')) ++used;
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},     {"s", 1},      {"min", 60},
                                                            {"h", 3600}, {"d", 86'400}, {"%", 0.01}};
  for (const auto& [unit, factor] : kUnits)
    if (unit == text.substr(digits, used - digits)) {
      value *= factor;
      return used;
    }
  return 0;
}

}  // namespace

double parse_quantity(std::string_view text) {
  double value = 0;
  if (text.empty() || quantity_at(text, value) != text.size())
    fail("expected a number, or one with a unit (s, min, h, d, %), found '{}'", text);
  return value;
}

class Expression::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expression parse() {
    if (text_.size() > kLongest) fail("it has {} characters, at most {}", text_.size(), kLongest);
    e_.ways_ = joined("or", 0, false);
    space();
    if (at_ < text_.size()) wrong("expected 'and', 'or' or the end");
    return std::move(e_);
  }

 private:
  using Ways = std::vector<Way>;

  [[noreturn]] void wrong(const std::string& what) const {
    fail("at character {}: {}, found {}", at_ + 1, what,
         at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 12)) : "the end");
  }
  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view token) {
    space();
    if (!text_.substr(at_).starts_with(token)) return false;
    const size_t end = at_ + token.size();
    if (letter(token[0]) && end < text_.size() && letter(text_[end])) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token, const char* what) {
    if (!take(token)) wrong(fmt::format("expected {}", what));
  }

  /// The ways in which parts that `word` joins hold, or with `denied` do not. "and" binds closer than "or".
  Ways joined(std::string_view word, int depth, bool denied) {
    const bool is_or = word == "or", one_is_enough = is_or != denied;
    const auto part = [&] { return is_or ? joined("and", depth, denied) : single(depth, denied); };
    Ways ways = part();
    while (take(word)) {
      const Ways more = part();
      if ((one_is_enough ? ways.size() + more.size() : ways.size() * more.size()) > kWays)
        wrong(fmt::format("it can hold in more than {} ways: make several rules of it", kWays));
      if (!one_is_enough) ways = pairs(ways, more);
      if (one_is_enough) ways.insert(ways.end(), more.begin(), more.end());
    }
    return ways;
  }
  /// Each way of `a` with each of `b`.
  static Ways pairs(const Ways& a, const Ways& b) {
    Ways all;
    for (const Way& first : a)
      for (const Way& second : b) {
        all.push_back(first);
        all.back().insert(all.back().end(), second.begin(), second.end());
      }
    return all;
  }
  Ways single(int depth, bool denied) {
    if (depth > kDeepest) wrong("nested too deep");
    if (take("not")) return single(depth + 1, !denied);
    if (take("(")) {
      const Ways inner = joined("or", depth + 1, denied);
      expect(")", "')'");
      return inner;
    }
    Comparison c = comparison();
    if (denied) c.accepted ^= kLess | kEqual | kGreater;
    return {{c}};
  }

  Comparison comparison() {
    Term left = operand();
    const bool of_text = left.fact && !info_of(*left.fact).values.empty();
    const unsigned accepted = relation();
    if (accepted == 0 && of_text) wrong("expected == or != and a text");
    if (accepted == 0) return {std::move(left), constant(0), kLess | kGreater};
    if (of_text && accepted != kEqual && accepted != (kLess | kGreater))
      wrong("a text is compared with == or != only");
    Term right = of_text ? constant(position_in(info_of(*left.fact))) : operand();
    if (right.fact && !info_of(*right.fact).values.empty()) wrong("write the text fact on the left side");
    if (!left.constant || right.constant) return {std::move(left), std::move(right), accepted};
    const unsigned mirrored = (accepted & kLess ? kGreater : 0) | (accepted & kGreater ? kLess : 0);
    return {std::move(right), std::move(left), mirrored | (accepted & kEqual)};
  }
  /// What the sign of a comparison accepts; 0: there is none.
  unsigned relation() {
    for (const auto& [sign, accepted] : {std::pair("==", kEqual),
                                         {"!=", kLess | kGreater},
                                         {"<=", kLess | kEqual},
                                         {">=", kGreater | kEqual},
                                         {"<", kLess},
                                         {">", kGreater}})
      if (take(sign)) return accepted;
    return 0;
  }

  static Term constant(double number) {
    return {.constant = number, .value = [number](const Facts&, const RuleCount&) { return number; }};
  }
  /// Of the text that follows, among the values of a fact.
  double position_in(const FactInfo& info) {
    const size_t begin = at_;
    const std::string text = quoted();
    const auto found = std::find(info.values.begin(), info.values.end(), text);
    if (found != info.values.end()) return static_cast<double>(found - info.values.begin());
    at_ = begin;
    wrong(fmt::format("'{}' is never \"{}\"; it is one of \"{}\"", info.name, text,
                      fmt::join(info.values, "\", \"")));
  }
  std::string quoted() {
    expect("\"", "a text in quotes");
    const size_t end = text_.find('"', at_);
    if (end == text_.npos) wrong("expected a closing quote");
    const std::string inner(text_.substr(at_, end - at_));
    at_ = end + 1;
    return inner;
  }
  bool take_quantity(double& number) {
    space();
    const size_t used = quantity_at(text_.substr(at_), number);
    at_ += used;
    return used > 0;
  }
  Term operand() {
    if (double number = 0; take_quantity(number)) return constant(number);
    const size_t begin = at_;
    while (at_ < text_.size() && letter(text_[at_])) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (name.empty())
      wrong("expected a fact, a number with a unit (s, min, h, d, %), log(...) or count(...)");
    if (name == "log" || name == "count") return call(name == "count");
    std::vector<std::string> known;
    for (const auto& [fact, called] : enum_names(Fact{})) {
      known.emplace_back(called);
      if (name != called) continue;
      e_.facts_.insert(fact);
      return {.fact = fact, .value = [f = fact](const Facts& facts, const RuleCount&) { return facts[f]; }};
    }
    at_ = begin;
    const std::string near = nearest_name(name, known);
    wrong(fmt::format("no fact is called '{}'{}", name,
                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  Term call(bool counts) {
    expect("(", "'('");
    const std::string text = quoted();
    double window = 0;
    if (text.find_first_not_of("| ") == std::string::npos) wrong("the text is empty");
    if (counts) {
      expect(",", "',' and a window of time");
      if (!take_quantity(window) || window <= 0) wrong("expected a window of time such as 1h");
      e_.counted_.push_back(text);
    }
    expect(")", "')'");
    return {.value = [=](const Facts& facts, const RuleCount& count) {
      return static_cast<double>(counts ? count(text, window) : facts.log_lines(text));
    }};
  }

  std::string_view text_;
  size_t at_ = 0;
  Expression e_;
};

Expression Expression::parse(std::string_view text) {
  return Parser(text).parse();
}

bool Expression::accepts(unsigned accepted, double left, double right) {
  return (accepted & (left < right ? kLess : left == right ? kEqual : kGreater)) != 0;
}

bool Expression::holds(const Facts& facts, const RuleCount& counts) const {
  const auto is_so = [&](const Comparison& c) {
    return accepts(c.accepted, c.left.value(facts, counts), c.right.value(facts, counts));
  };
  return std::any_of(ways_.begin(), ways_.end(),
                     [&](const Way& way) { return std::all_of(way.begin(), way.end(), is_so); });
}

std::string Expression::contradiction_of(const Way& way) {
  std::map<Fact, std::vector<const Comparison*>> of_fact;  // with constants
  for (const Comparison& c : way) {
    if (c.left.constant && !accepts(c.accepted, *c.left.constant, *c.right.constant))
      return "of what it says of constants";
    if (c.left.fact && c.right.constant) of_fact[*c.left.fact].push_back(&c);
  }
  for (const auto& [fact, comparisons] : of_fact) {
    const FactInfo& info = info_of(fact);
    // Comparisons change only at their numbers: it is enough to try these, the ends, and what lies between.
    std::vector<double> tried{info.least, info.most};
    for (const Comparison* c : comparisons)
      if (*c->right.constant > info.least && *c->right.constant < info.most)
        tried.push_back(*c->right.constant);
    std::sort(tried.begin(), tried.end());
    for (size_t i = tried.size() - 1; i > 0; --i) tried.push_back(std::midpoint(tried[i - 1], tried[i]));
    const auto fits = [&, &all = comparisons](double value) {
      return std::all_of(all.begin(), all.end(), [&](const Comparison* c) {
        return accepts(c->accepted, value, *c->right.constant);
      });
    };
    if (std::none_of(tried.begin(), tried.end(), fits))
      return fmt::format("'{}' can have no such value", info.name);
  }
  return "";
}

std::string Expression::contradiction() const {
  std::string last;
  for (const Way& way : ways_)
    if (last = contradiction_of(way); last.empty()) return "";
  return last;
}

}  // namespace ingot::guard
