// See expression.h.
#include "guard/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "base/config_node.h"
#include "base/error.h"

namespace ingot::guard {
namespace {

constexpr int kDeepest = 32;

bool letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Of the characters of a number and its unit that `text` begins with; 0: none.
size_t quantity_at(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return 0;
  auto used = static_cast<size_t>(end - text.data());
  std::string_view unit = text.substr(used);
  size_t n = 0;
  while (n < unit.size() && (letter(unit[n]) || unit[n] == '%')) ++n;
  unit = unit.substr(0, n);
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},     {"s", 1},      {"min", 60},
                                                            {"h", 3600}, {"d", 86'400}, {"%", 0.01}};
  for (const auto& [name, factor] : kUnits)
    if (unit == name) {
      value *= factor;
      return used + n;
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
  using Kind = Expression::Kind;
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Expression parse() {
    if (text_.size() > 2000) fail("it has {} characters, at most 2000", text_.size());
    e_.root_ = either(0);
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
  size_t add(Expression::Node node) {
    e_.nodes_.push_back(std::move(node));
    return e_.nodes_.size() - 1;
  }
  size_t join(Kind kind, const char* word, int depth, size_t (ExpressionParser::*part)(int)) {
    if (depth > kDeepest) wrong("nested too deep");
    std::vector<size_t> parts{(this->*part)(depth)};
    while (take(word)) parts.push_back((this->*part)(depth));
    return parts.size() == 1 ? parts[0] : add({.kind = kind, .parts = std::move(parts)});
  }
  size_t either(int depth) { return join(Kind::either, "or", depth, &ExpressionParser::both); }
  size_t both(int depth) { return join(Kind::both, "and", depth, &ExpressionParser::single); }
  size_t single(int depth) {
    if (depth > kDeepest) wrong("nested too deep");
    if (take("not")) return add({.kind = Kind::negation, .parts = {single(depth + 1)}});
    if (take("(")) {
      const size_t inner = either(depth + 1);
      if (!take(")")) wrong("expected ')'");
      return inner;
    }
    return comparison();
  }
  size_t comparison() {
    const size_t left = operand();
    using enum Expression::Compare;
    constexpr std::pair<const char*, Expression::Compare> kSigns[] = {
        {"==", equal}, {"!=", unequal}, {"<=", at_most}, {">=", at_least}, {"<", less}, {">", greater}};
    const bool is_text = e_.nodes_[left].kind == Kind::fact && !info_of(e_.nodes_[left].fact).values.empty();
    for (const auto& [sign, compare] : kSigns) {
      if (!take(sign)) continue;
      if (is_text && compare != equal && compare != unequal) wrong("a text is compared with == or != only");
      const size_t right = is_text ? value_of(e_.nodes_[left].fact) : operand();
      if (e_.nodes_[right].kind == Kind::fact && !info_of(e_.nodes_[right].fact).values.empty())
        wrong("write the text fact on the left side");
      return add({.kind = Kind::compare, .compare = compare, .parts = {left, right}});
    }
    if (is_text) wrong("expected == or != and a text");
    return left;
  }
  size_t value_of(Fact fact) {
    const size_t begin = at_;
    const std::string text = quoted();
    const auto values = info_of(fact).values;
    for (size_t i = 0; i < values.size(); ++i)
      if (text == values[i]) return add({.number = static_cast<double>(i)});
    at_ = begin;
    std::string names;
    for (const char* v : values) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", v);
    wrong(fmt::format("'{}' is never \"{}\"; it is one of {}", info_of(fact).name, text, names));
  }
  std::string quoted() {
    if (!take("\"")) wrong("expected a text in quotes");
    const size_t end = text_.find('"', at_);
    if (end == text_.npos) wrong("expected a closing quote");
    const std::string inner(text_.substr(at_, end - at_));
    at_ = end + 1;
    return inner;
  }
  size_t operand() {
    space();
    double number = 0;
    if (const size_t used = quantity_at(text_.substr(at_), number); used > 0) {
      at_ += used;
      return add({.number = number});
    }
    const size_t begin = at_;
    while (at_ < text_.size() && letter(text_[at_])) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    if (name.empty())
      wrong("expected a fact, a number with a unit (s, min, h, d, %), log(...) or count(...)");
    if (name == "log" || name == "count") return call(name);
    Fact fact{};
    if (find_fact(name, fact)) return add({.kind = Kind::fact, .fact = fact});
    at_ = begin;
    const std::string near = nearest_name(name, fact_names());
    wrong(fmt::format("no fact is called '{}'{}", name,
                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  size_t call(const std::string& name) {
    if (!take("(")) wrong("expected '('");
    Expression::Node node{.kind = name == "log" ? Kind::log : Kind::count, .text = quoted()};
    if (node.text.find_first_not_of("| ") == std::string::npos) wrong("the text is empty");
    if (name == "count") {
      if (!take(",")) wrong("expected ',' and a window of time");
      space();
      const size_t used = quantity_at(text_.substr(at_), node.number);
      if (used == 0 || node.number <= 0) wrong("expected a window of time such as 1h");
      at_ += used;
    }
    if (!take(")")) wrong("expected ')'");
    return add(std::move(node));
  }

  std::string_view text_;
  size_t at_ = 0;
  Expression e_;
};

Expression Expression::parse(std::string_view text) {
  return ExpressionParser(text).parse();
}

double Expression::value(size_t index, const Facts& facts, const RuleCount& counts) const {
  const Node& n = nodes_[index];
  const auto part = [&](size_t i) { return value(n.parts[i], facts, counts); };
  const auto holds_part = [&](size_t p) { return value(p, facts, counts) != 0; };
  switch (n.kind) {
    case Kind::either:
      return std::any_of(n.parts.begin(), n.parts.end(), holds_part) ? 1 : 0;
    case Kind::both:
      return std::all_of(n.parts.begin(), n.parts.end(), holds_part) ? 1 : 0;
    case Kind::negation:
      return part(0) == 0 ? 1 : 0;
    case Kind::number:
      return n.number;
    case Kind::fact:
      return facts[n.fact];
    case Kind::log:
      return static_cast<double>(facts.log_lines(n.text));
    case Kind::count:
      return static_cast<double>(counts(n.text, n.number));
    case Kind::compare:
      break;
  }
  const double a = part(0), b = part(1);
  switch (n.compare) {
    case Compare::equal:
      return a == b ? 1 : 0;
    case Compare::unequal:
      return a != b ? 1 : 0;
    case Compare::less:
      return a < b ? 1 : 0;
    case Compare::at_most:
      return a <= b ? 1 : 0;
    case Compare::greater:
      return a > b ? 1 : 0;
    case Compare::at_least:
      return a >= b ? 1 : 0;
  }
  return 0;
}

bool Expression::holds(const Facts& facts, const RuleCount& counts) const {
  return value(root_, facts, counts) != 0;
}

Expression::Claim Expression::claim(size_t node, bool denied) const {
  const Node& n = nodes_[node];
  const auto opposite = [](Compare c) {
    using enum Compare;
    constexpr Compare kOpposite[] = {unequal, equal, at_least, greater, at_most, less};
    return kOpposite[static_cast<size_t>(c)];
  };
  const auto turned = [](Compare c) {  // a < b says b > a
    using enum Compare;
    constexpr Compare kTurned[] = {equal, unequal, greater, at_least, less, at_most};
    return kTurned[static_cast<size_t>(c)];
  };
  if (n.kind == Kind::number) return {.possible = (n.number != 0) != denied};
  if (n.kind == Kind::fact)
    return {.known = true, .fact = n.fact, .compare = denied ? Compare::equal : Compare::unequal};
  if (n.kind != Kind::compare) return {};
  const Node &a = nodes_[n.parts[0]], &b = nodes_[n.parts[1]];
  if (a.kind == Kind::number && b.kind == Kind::number)
    return {.possible = (value(node, Facts(), {}) != 0) != denied};
  const bool fact_first = a.kind == Kind::fact && b.kind == Kind::number;
  if (!fact_first && !(a.kind == Kind::number && b.kind == Kind::fact)) return {};
  const Compare c = fact_first ? n.compare : turned(n.compare);
  return {.known = true,
          .fact = fact_first ? a.fact : b.fact,
          .compare = denied ? opposite(c) : c,
          .number = fact_first ? b.number : a.number};
}

std::vector<Expression::Way> Expression::ways(size_t node, bool denied) const {
  const Node& n = nodes_[node];
  if (n.kind == Kind::negation) return ways(n.parts[0], !denied);
  if (n.kind != Kind::either && n.kind != Kind::both) return {{claim(node, denied)}};
  std::vector<Way> all;
  if ((n.kind == Kind::either) != denied) {  // any part
    for (const size_t p : n.parts)
      for (Way& way : ways(p, denied)) all.push_back(std::move(way));
    return all;
  }
  all = {{}};  // every part
  for (const size_t p : n.parts) {
    std::vector<Way> longer;
    const std::vector<Way> more = ways(p, denied);
    for (const Way& way : all)
      for (const Way& next : more) {
        longer.push_back(way);
        longer.back().insert(longer.back().end(), next.begin(), next.end());
        if (longer.size() > kWays) return longer;
      }
    all = std::move(longer);
  }
  return all;
}

std::string Expression::contradiction_of(const Way& way) {
  struct Span {
    double least, most;
    bool above = false, below = false;  // the ends themselves are excluded
    std::vector<double> excluded;
  };
  std::map<Fact, Span> spans;
  for (const Claim& c : way) {
    if (!c.possible) return "of what it says of constants";
    if (!c.known) continue;
    const double x = c.number;
    const FactInfo& info = info_of(c.fact);
    const double most = info.values.empty() ? info.most : static_cast<double>(info.values.size()) - 1;
    Span& s = spans.try_emplace(c.fact, Span{info.least, most, false, false, {}}).first->second;
    const bool raises = c.compare == Compare::greater || c.compare == Compare::at_least;
    const bool lowers = c.compare == Compare::less || c.compare == Compare::at_most;
    if (c.compare == Compare::unequal) s.excluded.push_back(x);
    if ((raises || c.compare == Compare::equal) && x >= s.least)
      s.above = (x == s.least && s.above) || c.compare == Compare::greater, s.least = x;
    if ((lowers || c.compare == Compare::equal) && x <= s.most)
      s.below = (x == s.most && s.below) || c.compare == Compare::less, s.most = x;
    if (c.compare == Compare::equal && (x > s.most || x < s.least)) s.least = 1, s.most = 0;
    const bool one = s.least == s.most && std::count(s.excluded.begin(), s.excluded.end(), s.least) > 0;
    if (s.least > s.most || (s.least == s.most && (s.above || s.below)) || one)
      return fmt::format("'{}' can have no such value", info.name);
  }
  return "";
}

std::string Expression::contradiction() const {
  const std::vector<Way> all = ways(root_, false);
  if (all.size() > kWays) return "";
  std::string last;
  for (const Way& way : all)
    if (last = contradiction_of(way); last.empty()) return "";
  return last;
}

std::set<Fact> Expression::facts() const {
  std::set<Fact> facts;
  for (const Node& n : nodes_)
    if (n.kind == Kind::fact) facts.insert(n.fact);
  return facts;
}

std::vector<std::string> Expression::counted() const {
  std::vector<std::string> names;
  for (const Node& n : nodes_)
    if (n.kind == Kind::count) names.push_back(n.text);
  return names;
}

}  // namespace ingot::guard
