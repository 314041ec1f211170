// See expression.h. `not` is resolved while parsing, so that an expression is a list of ways to hold, and
// each way a list of comparisons.
#include "guard/expression.h"

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

class ExpressionParser {
 public:
  using Term = Expression::Term;
  using Kind = Term::Kind;
  using Ways = std::vector<Expression::Way>;
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Expression parse() {
    if (text_.size() > kLongest) fail("it has {} characters, at most {}", text_.size(), kLongest);
    e_.ways_ = either(0, false);
    space();
    if (at_ < text_.size()) wrong("expected 'and', 'or' or the end");
    return std::move(e_);
  }

 private:
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

  // Each returns the ways in which its part holds, or with `denied` does not.
  Ways either(int depth, bool denied) {
    Ways ways = both(depth, denied);
    while (take("or")) ways = joined(ways, both(depth, denied), !denied);
    return ways;
  }
  Ways both(int depth, bool denied) {
    Ways ways = single(depth, denied);
    while (take("and")) ways = joined(ways, single(depth, denied), denied);
    return ways;
  }
  Ways joined(const Ways& a, const Ways& b, bool one_is_enough) const {
    if ((one_is_enough ? a.size() + b.size() : a.size() * b.size()) > kWays)
      wrong(fmt::format("it can hold in more than {} ways: make several rules of it", kWays));
    Ways all = one_is_enough ? a : Ways();
    if (one_is_enough) all.insert(all.end(), b.begin(), b.end());
    for (size_t i = 0; !one_is_enough && i < a.size(); ++i)
      for (const Expression::Way& second : b) {
        all.push_back(a[i]);
        all.back().insert(all.back().end(), second.begin(), second.end());
      }
    return all;
  }
  Ways single(int depth, bool denied) {
    if (depth > kDeepest) wrong("nested too deep");
    if (take("not")) return single(depth + 1, !denied);
    if (!take("(")) return {{comparison(denied)}};
    const Ways inner = either(depth + 1, denied);
    expect(")", "')'");
    return inner;
  }

  /// The index of a comparison.
  size_t comparison(bool denied) {
    constexpr unsigned kLess = Expression::kLess, kEqual = Expression::kEqual,
                       kGreater = Expression::kGreater;
    constexpr std::pair<const char*, unsigned> kSigns[] = {{"==", kEqual},         {"!=", kLess | kGreater},
                                                           {"<=", kLess | kEqual}, {">=", kGreater | kEqual},
                                                           {"<", kLess},           {">", kGreater}};
    Expression::Comparison c{operand(), {}, kLess | kGreater};
    const auto sign = std::find_if(std::begin(kSigns), std::end(kSigns),
                                   [&](const auto& candidate) { return take(candidate.first); });
    if (is_text(c.left)) {
      if (sign == std::end(kSigns)) wrong("expected == or != and a text");
      if (sign->second != kEqual && sign->second != (kLess | kGreater))
        wrong("a text is compared with == or != only");
      c.right = value_of(c.left.fact);
    } else if (sign != std::end(kSigns)) {
      c.right = operand();
      if (is_text(c.right)) wrong("write the text fact on the left side");
    }
    if (sign != std::end(kSigns)) c.accepted = sign->second;
    if (c.left.kind == Kind::number && c.right.kind != Kind::number) {
      std::swap(c.left, c.right);
      const unsigned unequal = c.accepted & ~kEqual;
      if (unequal == kLess || unequal == kGreater) c.accepted ^= kLess | kGreater;
    }
    if (denied) c.accepted ^= kLess | kEqual | kGreater;
    e_.comparisons_.push_back(std::move(c));
    return e_.comparisons_.size() - 1;
  }
  static bool is_text(const Term& term) {
    return term.kind == Kind::fact && !info_of(term.fact).values.empty();
  }
  Term value_of(Fact fact) {
    const size_t begin = at_;
    const std::string text = quoted();
    const auto values = info_of(fact).values;
    for (size_t i = 0; i < values.size(); ++i)
      if (text == values[i]) return {.number = static_cast<double>(i)};
    at_ = begin;
    std::string names;
    for (const char* v : values) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", v);
    wrong(fmt::format("'{}' is never \"{}\"; it is one of {}", info_of(fact).name, text, names));
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
    if (Term number; take_quantity(number.number)) return number;
    const size_t begin = at_;
    while (at_ < text_.size() && letter(text_[at_])) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (name.empty())
      wrong("expected a fact, a number with a unit (s, min, h, d, %), log(...) or count(...)");
    if (name == "log" || name == "count") return call(name == "log" ? Kind::log : Kind::count);
    if (const auto fact = find_fact(name)) return {.kind = Kind::fact, .fact = *fact};
    at_ = begin;
    const std::string near = nearest_name(name, fact_names());
    wrong(fmt::format("no fact is called '{}'{}", name,
                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  Term call(Kind kind) {
    expect("(", "'('");
    Term term{.kind = kind, .text = quoted()};
    if (term.text.find_first_not_of("| ") == std::string::npos) wrong("the text is empty");
    if (kind == Kind::count) {
      expect(",", "',' and a window of time");
      if (!take_quantity(term.number) || term.number <= 0) wrong("expected a window of time such as 1h");
    }
    expect(")", "')'");
    return term;
  }

  std::string_view text_;
  size_t at_ = 0;
  Expression e_;
};

Expression Expression::parse(std::string_view text) {
  return ExpressionParser(text).parse();
}

double Expression::Term::value(const Facts& facts, const RuleCount& counts) const {
  switch (kind) {
    case Kind::number:
      return number;
    case Kind::fact:
      return facts[fact];
    case Kind::log:
      return static_cast<double>(facts.log_lines(text));
    case Kind::count:
      return static_cast<double>(counts(text, number));
  }
  return 0;
}

bool Expression::accepts(unsigned accepted, double left, double right) {
  return (accepted & (left < right ? kLess : left == right ? kEqual : kGreater)) != 0;
}

bool Expression::holds(const Facts& facts, const RuleCount& counts) const {
  const auto is_so = [&](size_t i) {
    const Comparison& c = comparisons_[i];
    return accepts(c.accepted, c.left.value(facts, counts), c.right.value(facts, counts));
  };
  return std::any_of(ways_.begin(), ways_.end(),
                     [&](const Way& way) { return std::all_of(way.begin(), way.end(), is_so); });
}

std::string Expression::contradiction_of(const Way& way) const {
  std::map<Fact, std::vector<std::pair<unsigned, double>>> of_fact;  // comparisons with numbers
  for (const size_t i : way) {
    const auto& [left, right, accepted] = comparisons_[i];
    if (left.kind == Term::Kind::number && !accepts(accepted, left.number, right.number))
      return "of what it says of constants";
    if (left.kind == Term::Kind::fact && right.kind == Term::Kind::number)
      of_fact[left.fact].push_back({accepted, right.number});
  }
  for (const auto& [fact, comparisons] : of_fact) {
    const FactInfo& info = info_of(fact);
    // Comparisons change only at their numbers: it is enough to try these, the ends, and what lies between.
    std::vector<double> tried{info.least, info.most};
    for (const auto& [accepted, number] : comparisons)
      if (number > info.least && number < info.most) tried.push_back(number);
    std::sort(tried.begin(), tried.end());
    for (size_t i = tried.size() - 1; i > 0; --i) tried.push_back(std::midpoint(tried[i - 1], tried[i]));
    const auto fits = [&, &all = comparisons](double value) {
      return std::all_of(all.begin(), all.end(),
                         [&](const auto& c) { return accepts(c.first, value, c.second); });
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

std::set<Fact> Expression::facts() const {
  std::set<Fact> facts;
  for (const Comparison& c : comparisons_)
    for (const Term* t : {&c.left, &c.right})
      if (t->kind == Term::Kind::fact) facts.insert(t->fact);
  return facts;
}

std::vector<std::string> Expression::counted() const {
  std::vector<std::string> names;
  for (const Comparison& c : comparisons_)
    for (const Term* t : {&c.left, &c.right})
      if (t->kind == Term::Kind::count) names.push_back(t->text);
  return names;
}

}  // namespace ingot::guard
