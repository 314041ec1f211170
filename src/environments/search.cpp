// Environments of search: countdown, sorting, subset sums.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "environments/answer.h"
#include "environments/family.h"
#include "environments/trace.h"

namespace ingot::environments {
namespace {

using Numbers = std::vector<int64_t>;

int64_t applied(int64_t a, char op, int64_t b) {
  return op == '+' ? a + b : op == '-' ? a - b : a * b;
}

/// Evaluates sums, differences, products and parentheses over whole numbers; what it read stands in `used`.
class Expression {
 public:
  explicit Expression(std::string_view text) : rest_(text) {}
  std::optional<int64_t> value() {
    const int64_t v = sum(0);
    return failed_ || !rest_.empty() ? std::nullopt : std::optional(v);
  }
  Numbers used;

 private:
  static constexpr int kDeepest = 32;
  static constexpr int64_t kLargest = 1'000'000;  // of any partial result
  int64_t checked(int64_t v) {
    failed_ = failed_ || v > kLargest || v < -kLargest;
    return failed_ ? 0 : v;
  }
  bool next_is(char c) {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  int64_t sum(int depth) {
    int64_t v = product(depth);
    for (;;)
      if (next_is('+'))
        v = checked(v + product(depth));
      else if (next_is('-'))
        v = checked(v - product(depth));
      else
        return v;
  }
  int64_t product(int depth) {
    int64_t v = factor(depth);
    while (next_is('*')) v = checked(v * factor(depth));
    return v;
  }
  int64_t factor(int depth) {
    if (failed_ || depth > kDeepest) return failed_ = true, 0;
    if (next_is('(')) {
      const int64_t v = sum(depth + 1);
      failed_ = failed_ || !next_is(')');
      return v;
    }
    int64_t v = 0, digits = 0;
    while (digits <= 6 && !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      v = v * 10 + (rest_.front() - '0');
      rest_.remove_prefix(1), ++digits;
    }
    if (digits == 0 || digits > 6) failed_ = true;
    used.push_back(v);
    return v;
  }
  std::string_view rest_;
  bool failed_ = false;
};

Numbers sorted(Numbers list) {
  std::sort(list.begin(), list.end());
  return list;
}

/// A way from the numbers to the target, one number after another from the left.
struct Way {
  Numbers numbers;
  std::string ops;
  std::string text() const {
    std::string text = std::to_string(numbers[0]);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i] == '*' && i > 0 && ops[i - 1] != '*') text = "(" + text + ")";
      text += ops[i] + std::to_string(numbers[i + 1]);
    }
    return text;
  }
};

Draft make_countdown(Dice& dice, int64_t difficulty) {
  const int64_t count = 3 + (difficulty - 1) / 4, most = 5 + (difficulty - 1) % 4 * 3;
  const int64_t limit = count < 5 ? 99 : 999;
  Way way{{dice.between(1, most)}, ""};
  int64_t value = way.numbers[0];
  while (static_cast<int64_t>(way.numbers.size()) < count) {
    const int64_t number = dice.between(1, most);
    const char op = "+-*"[dice.below(3)];
    const int64_t next = applied(value, op, number);
    if (next < 0 || next > limit) continue;
    value = next;
    way.numbers.push_back(number), way.ops += op;
  }
  Numbers shown = way.numbers;
  dice.shuffle(shown);
  return {fmt::format("countdown {} make {}", joined(shown, " "), value),
          {{"numbers", shown},
           {"target", value},
           {"way", way.numbers},
           {"ops", way.ops},
           {"answer", way.text()}}};
}

bool right_countdown(const Json& data, const std::string& answer) {
  Expression expression(answer);
  return expression.value() == data.at("target").get<int64_t>() &&
         sorted(expression.used) == sorted(data.at("numbers").get<Numbers>());
}

/// What two numbers make, each beside what is wanted; the first that hits.
std::optional<Way> try_pair(int64_t a, int64_t b, int64_t wanted, bool checked, std::string& line) {
  for (const char op : {'+', '-', '*'}) {
    const int64_t x = op == '-' ? std::max(a, b) : a, y = op == '-' ? std::min(a, b) : b,
                  v = applied(x, op, y);
    line += fmt::format(" {}{}{}={}", x, op, y, v);
    if (checked) line += fmt::format(" {} {}", wanted, v == wanted ? "yes" : "no");
    if (v == wanted) return Way{{x, y}, std::string(1, op)};
  }
  return {};
}

/// Backwards: the last step is undone, and what is left must make the number before it. Of three numbers all
/// last steps are tried in an order of the dice; of more, the first steps back are those of the known way.
Trace solve_countdown(const Json& data, Dice& dice, TraceStyle style) {
  auto rest = data.at("way").get<Numbers>();
  const auto known = data.at("ops").get<std::string>();
  auto wanted = data.at("target").get<int64_t>();
  Steps steps(dice, style);
  Way after;  // the steps behind the first three numbers
  while (rest.size() > 3) {
    const int64_t number = rest.back();
    const char op = known[rest.size() - 2];
    const int64_t before = op == '+'     ? wanted - number
                           : op == '-'   ? wanted + number
                           : number == 0 ? 0
                                         : wanted / number;
    rest.pop_back();
    steps.line(fmt::format("last {}{} want {} from {}", op, number, before, joined(sorted(rest), " ")));
    after.numbers.insert(after.numbers.begin(), number), after.ops.insert(after.ops.begin(), op);
    wanted = before;
  }
  std::vector<std::pair<size_t, char>> tries;
  for (size_t i = 0; i < 3; ++i)
    for (const char op : {'+', '-', '*'}) tries.emplace_back(i, op);
  dice.shuffle(tries);
  for (const auto& [i, op] : tries) {
    const int64_t number = rest[i], a = rest[(i + 1) % 3], b = rest[(i + 2) % 3];
    const int64_t before = op == '+' ? wanted - number : op == '-' ? wanted + number : wanted / number;
    if (before < 0 || (op == '*' && wanted % number != 0)) continue;
    std::string line = fmt::format("last {}{} want {}", op, number, before);
    const auto pair = try_pair(a, b, before, steps.checked(), line);
    if (!pair) {
      steps.line(line + (steps.checked() ? "" : " no"));
      continue;
    }
    steps.line(line + (steps.checked() ? "" : " yes"));
    Way way = *pair;
    way.numbers.push_back(number), way.ops += op;
    way.numbers.insert(way.numbers.end(), after.numbers.begin(), after.numbers.end()), way.ops += after.ops;
    return {steps.text(), way.text()};
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

Draft make_sort(Dice& dice, int64_t difficulty) {
  Numbers list;
  for (int64_t i = 0; i < difficulty; ++i) list.push_back(dice.below(10));
  return {"sort " + joined(list, " "), {{"numbers", list}, {"answer", joined(sorted(list), " ")}}};
}

Trace solve_sort(const Json& data, Dice& dice, TraceStyle style) {
  auto left = data.at("numbers").get<Numbers>();
  const Numbers order = sorted(left);
  Steps steps(dice, style);
  const auto without = [](Numbers list, int64_t value) {
    list.erase(std::find(list.begin(), list.end(), value));
    return list;
  };
  const auto take = [&](int64_t value, bool check) {
    const Numbers rest = without(left, value);
    std::string line = fmt::format("{}: {}", value, joined(rest, " "));
    if (check && !rest.empty()) {
      const int64_t least = *std::min_element(rest.begin(), rest.end());
      line += fmt::format(" ? {} {} {}", value, least, value <= least ? "yes" : "no");
    }
    steps.line(line);
  };
  for (const int64_t value : order) {
    if (steps.slips() && left.size() > 1)
      if (const int64_t wrong = dice.pick(left); wrong != value) take(wrong, true);
    take(value, steps.checked());
    left = without(left, value);
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

/// Takes numbers from the largest down, and steps back where nothing fits. Lines and the numbers taken.
struct SubsetSearch {
  std::vector<std::string> lines;
  Numbers taken;
  SubsetSearch(Numbers numbers, int64_t target) {
    std::sort(numbers.rbegin(), numbers.rend());
    found_ = descend(numbers, 0, target);
  }
  bool found() const { return found_; }

 private:
  static constexpr size_t kMostLines = 24;
  bool descend(const Numbers& numbers, size_t from, int64_t left) {
    if (left == 0) return lines.emplace_back("left 0 yes"), true;
    for (size_t i = from; i < numbers.size() && lines.size() < kMostLines; ++i) {
      if (numbers[i] > left || (i > from && numbers[i] == numbers[i - 1])) continue;
      lines.push_back(fmt::format("{}-{}={}", left, numbers[i], left - numbers[i]));
      taken.push_back(numbers[i]);
      if (descend(numbers, i + 1, left - numbers[i])) return true;
      taken.pop_back();
    }
    lines.push_back(fmt::format("left {} no", left));
    return false;
  }
  bool found_;
};

Draft make_subset(Dice& dice, int64_t difficulty) {
  const int64_t count = difficulty + 2;
  for (;;) {
    Numbers numbers;
    int64_t target = 0;
    const int64_t chosen = dice.between(2, std::max<int64_t>(2, count / 2 + 1));
    for (int64_t i = 0; i < count; ++i) {
      numbers.push_back(dice.between(1, 9 + 2 * difficulty));
      if (i < chosen) target += numbers.back();
    }
    const SubsetSearch search(numbers, target);
    if (!search.found()) continue;
    dice.shuffle(numbers);
    return {fmt::format("subset {} sum {}", joined(numbers, " "), target),
            {{"numbers", words_of(joined(numbers, " "))},
             {"target", target},
             {"answer", joined(search.taken, " ")}}};
  }
}

bool right_subset(const Json& data, const std::string& answer) {
  auto left = data.at("numbers").get<std::vector<std::string>>();
  int64_t sum = 0;
  for (const std::string& word : words_of(answer)) {
    const auto found = std::find(left.begin(), left.end(), word);
    if (found == left.end()) return false;
    sum += std::stoll(word);
    left.erase(found);
  }
  return sum == data.at("target").get<int64_t>();
}

Trace solve_subset(const Json& data, Dice& dice, TraceStyle style) {
  std::vector<int64_t> numbers;
  for (const auto& text : data.at("numbers")) numbers.push_back(std::stoll(text.get<std::string>()));
  const SubsetSearch search(numbers, data.at("target").get<int64_t>());
  Steps steps(dice, style);
  for (const std::string& line : search.lines) steps.line(line);
  if (steps.checked()) {
    int64_t sum = 0;
    std::string line = "?";
    for (const int64_t one : search.taken) line += fmt::format(" {}+{}={}", sum, one, sum + one), sum += one;
    steps.line(line + fmt::format(" {} yes", data.at("target").get<int64_t>()));
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

constexpr Family kSearchFamilies[] = {
    {"countdown",
     "makes a target of all the numbers, each used once; answer: an expression with + - * ( )",
     {1, 16},
     make_countdown,
     right_countdown,
     solve_countdown},
    {"sort",
     "sorts as many digits as the difficulty; answer: the digits",
     {2, 24},
     make_sort,
     same_words,
     solve_sort},
    {"subset",
     "some of the numbers that have a given sum; answer: these numbers",
     {1, 16},
     make_subset,
     right_subset,
     solve_subset},
};

}  // namespace

std::span<const Family> search_families() {
  return kSearchFamilies;
}

}  // namespace ingot::environments
