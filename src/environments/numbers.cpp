// Environments of arithmetic: chains of sums, long addition, greatest common divisors, bases, powers modulo a
// number, linear equations, fractions, sequences.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "environments/answer.h"
#include "environments/family.h"
#include "environments/trace.h"

namespace ingot::environments {
namespace {

/// 7+5-3: operands of one digit, from left to right, all results in 0 .. 99.
Draft make_chain(Dice& dice, int64_t difficulty) {
  int64_t value = dice.between(1, 20);
  Json terms = Json::array({value});
  std::string text = fmt::format("chain {}", value);
  for (int64_t i = 0; i < difficulty; ++i) {
    int64_t term = dice.between(1, 9);
    if (value + term > 99 || (value >= term && dice.once_in(2))) term = -term;
    value += term;
    terms.push_back(term);
    text += fmt::format("{:+}", term);
  }
  return {text, {{"terms", terms}, {"answer", std::to_string(value)}}};
}

Trace solve_chain(const Json& data, Dice& dice, TraceStyle style) {
  const auto terms = data.at("terms").get<std::vector<int64_t>>();
  Steps steps(dice, style);
  int64_t value = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) {
    const int64_t before = value;
    value += terms[i];
    steps.step(
        value, [&](int64_t v) { return fmt::format("{}{:+}={}", before, terms[i], v); },
        [&](int64_t v) { return fmt::format("{}{:+}={} {}", v, -terms[i], v - terms[i], before); });
  }
  return {steps.text(), std::to_string(value)};
}

std::string digits_of(Dice& dice, int64_t count) {
  std::string text = std::to_string(dice.between(1, 9));
  while (static_cast<int64_t>(text.size()) < count) text += static_cast<char>('0' + dice.below(10));
  return text;
}

/// Column by column from the right: the columns' sums, and what of the result is written.
struct Addition {
  std::vector<int64_t> up, down, carry, sum;
  std::string result;
  explicit Addition(const Json& data) {
    const auto a = data.at("a").get<std::string>(), b = data.at("b").get<std::string>();
    int64_t carried = 0;
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
      up.push_back(i < a.size() ? a[a.size() - 1 - i] - '0' : 0);
      down.push_back(i < b.size() ? b[b.size() - 1 - i] - '0' : 0);
      carry.push_back(carried);
      sum.push_back(up.back() + down.back() + carried);
      carried = sum.back() / 10;
      result.insert(result.begin(), static_cast<char>('0' + sum.back() % 10));
    }
    if (carried > 0) result.insert(result.begin(), '1');
  }
};

Draft make_addition(Dice& dice, int64_t difficulty) {
  const std::string a = digits_of(dice, difficulty),
                    b = digits_of(dice, dice.between((difficulty + 1) / 2, difficulty));
  Json data = {{"a", a}, {"b", b}};
  data["answer"] = Addition(data).result;
  return {fmt::format("add {} {}", a, b), data};
}

Trace solve_addition(const Json& data, Dice& dice, TraceStyle style) {
  const Addition sum(data);
  Steps steps(dice, style);
  for (size_t i = 0; i < sum.sum.size(); ++i) {
    const int64_t a = sum.up[i], b = sum.down[i], c = sum.carry[i];
    steps.step(
        sum.sum[i], [&](int64_t v) { return fmt::format("{}+{}+{}={}", a, b, c, v); },
        [&](int64_t v) { return fmt::format("{}-{}-{}={} {}", v, b, c, v - b - c, a); });
    steps.line(fmt::format("carry {} so {}", sum.sum[i] / 10, sum.result.substr(sum.result.size() - 1 - i)));
  }
  return {steps.text(), sum.result};
}

Draft make_gcd(Dice& dice, int64_t difficulty) {
  const int64_t most = 4 + 8 * difficulty, common = dice.between(1, 2 + most / 8);
  const int64_t a = common * dice.between(1, most / common), b = common * dice.between(1, most / common);
  return {fmt::format("gcd {} {}", std::max(a, b), std::min(a, b)),
          {{"a", std::max(a, b)}, {"b", std::min(a, b)}, {"answer", std::to_string(std::gcd(a, b))}}};
}

Trace solve_gcd(const Json& data, Dice& dice, TraceStyle style) {
  auto a = data.at("a").get<int64_t>(), b = data.at("b").get<int64_t>();
  Steps steps(dice, style);
  while (b > 0) {
    const int64_t times = a / b, rest = a % b;
    steps.step(
        rest, [&](int64_t v) { return fmt::format("{}-{}*{}={}", a, times, b, v); },
        [&](int64_t v) { return fmt::format("{}*{}+{}={} {}", times, b, v, times * b + v, a); });
    a = b, b = rest;
  }
  return {steps.text(), std::to_string(a)};
}

Draft make_base(Dice& dice, int64_t difficulty) {
  const int64_t base = dice.between(2, 4);
  int64_t number = dice.between(1, base - 1);
  std::string text = std::to_string(number);
  for (int64_t i = 0; i < difficulty; ++i) {
    const int64_t digit = dice.below(base);
    number = number * base + digit, text += static_cast<char>('0' + digit);
  }
  return {fmt::format("base {} {}", base, number), {{"base", base}, {"number", number}, {"answer", text}}};
}

Trace solve_base(const Json& data, Dice& dice, TraceStyle style) {
  const auto base = data.at("base").get<int64_t>();
  Steps steps(dice, style);
  std::string text;
  for (auto number = data.at("number").get<int64_t>(); number > 0; number /= base) {
    const int64_t rest = number % base;
    steps.step(
        number / base, [&](int64_t v) { return fmt::format("{}/{}={} rest {}", number, base, v, rest); },
        [&](int64_t v) { return fmt::format("{}*{}+{}={} {}", v, base, rest, v * base + rest, number); });
    text.insert(text.begin(), static_cast<char>('0' + rest));
    steps.line("so " + text);
  }
  return {steps.text(), text};
}

Draft make_power(Dice& dice, int64_t difficulty) {
  const int64_t modulus = dice.between(5, 9 + difficulty / 2), base = dice.between(2, modulus - 1);
  int64_t value = 1;
  for (int64_t i = 0; i < difficulty; ++i) value = value * base % modulus;
  return {
      fmt::format("power {}^{} mod {}", base, difficulty, modulus),
      {{"base", base}, {"exponent", difficulty}, {"modulus", modulus}, {"answer", std::to_string(value)}}};
}

Trace solve_power(const Json& data, Dice& dice, TraceStyle style) {
  const auto base = data.at("base").get<int64_t>(), modulus = data.at("modulus").get<int64_t>();
  Steps steps(dice, style);
  int64_t value = base;
  for (int64_t i = 2; i <= data.at("exponent").get<int64_t>(); ++i) {
    const int64_t product = value * base, times = product / modulus;
    const std::string first = fmt::format("{} {}*{}={}", i, value, base, product);
    value = product % modulus;
    steps.step(
        value, [&](int64_t v) { return fmt::format("{} {}-{}*{}={}", first, product, times, modulus, v); },
        [&](int64_t v) {
          return fmt::format("{}*{}+{}={} {}", times, modulus, v, times * modulus + v, product);
        });
  }
  return {steps.text(), std::to_string(value)};
}

/// a x + b = c x + d with c = 0 below difficulty 6.
Draft make_linear(Dice& dice, int64_t difficulty) {
  const int64_t x = dice.between(1, 3 + 2 * difficulty),
                c = difficulty < 6 ? 0 : dice.between(1, difficulty - 4);
  const int64_t a = c + dice.between(2, 3 + difficulty / 2), b = dice.between(1, 4 + 2 * difficulty);
  const int64_t d = (a - c) * x + b;
  const std::string right = c == 0 ? std::to_string(d) : fmt::format("{}x+{}", c, d);
  return {fmt::format("solve {}x+{}={}", a, b, right),
          {{"a", a}, {"b", b}, {"c", c}, {"d", d}, {"answer", std::to_string(x)}}};
}

Trace solve_linear(const Json& data, Dice& dice, TraceStyle style) {
  const auto a = data.at("a").get<int64_t>(), b = data.at("b").get<int64_t>(),
             c = data.at("c").get<int64_t>(), d = data.at("d").get<int64_t>();
  Steps steps(dice, style);
  if (c != 0) steps.line(fmt::format("{}-{}={} so {}x+{}={}", a, c, a - c, a - c, b, d));
  const int64_t n = a - c, product = d - b, x = product / n;
  steps.line(fmt::format("{}-{}={} so {}x={}", d, b, product, n, product));
  steps.step(
      x, [&](int64_t v) { return fmt::format("{}/{}={}", product, n, v); },
      [&](int64_t v) { return fmt::format("{}*{}+{}={} {}", n, v, b, n * v + b, d); });
  return {steps.text(), std::to_string(x)};
}

Draft make_fraction(Dice& dice, int64_t difficulty) {
  const int64_t most = 2 + difficulty;
  const int64_t b = dice.between(2, most), d = dice.between(2, most), a = dice.between(1, b),
                c = dice.between(1, d);
  const int64_t up = a * d + c * b, down = b * d, common = std::gcd(up, down);
  return {
      fmt::format("fraction {}/{}+{}/{}", a, b, c, d),
      {{"a", a}, {"b", b}, {"c", c}, {"d", d}, {"answer", fmt::format("{}/{}", up / common, down / common)}}};
}

bool right_fraction(const Json& data, const std::string& answer) {
  const auto number = number_of(answer);
  return number && number == number_of(data.at("answer").get<std::string>()) &&
         answer.find_first_not_of("0123456789/ ") == answer.npos;
}

Trace solve_fraction(const Json& data, Dice& dice, TraceStyle style) {
  const auto a = data.at("a").get<int64_t>(), b = data.at("b").get<int64_t>(),
             c = data.at("c").get<int64_t>(), d = data.at("d").get<int64_t>();
  const int64_t left = a * d, right = c * b, up = left + right, down = b * d, common = std::gcd(up, down);
  Steps steps(dice, style);
  steps.line(fmt::format("{}*{}={} {}*{}={} {}*{}={}", b, d, down, a, d, left, c, b, right));
  steps.step(
      up, [&](int64_t v) { return fmt::format("{}+{}={}", left, right, v); },
      [&](int64_t v) { return fmt::format("{}-{}={} {}", v, right, v - right, left); });
  steps.step(
      up / common, [&](int64_t v) { return fmt::format("gcd {} {}/{}={}", common, up, common, v); },
      [&](int64_t v) { return fmt::format("{}*{}={} {}", v, common, v * common, up); });
  steps.line(fmt::format("{}/{}={}", down, common, down / common));
  return {steps.text(), data.at("answer").get<std::string>()};
}

/// Of degree 1 to 3: each row of differences ends in what the next term adds.
Draft make_sequence(Dice& dice, int64_t difficulty) {
  const int64_t degree = 1 + (difficulty - 1) / 4, size = 2 + (difficulty - 1) % 4 * 2;
  std::vector<int64_t> ends;  // the first term, first difference, ...
  for (int64_t i = 0; i <= degree; ++i) ends.push_back(dice.between(1, size + 2));
  std::vector<int64_t> terms;
  for (int64_t i = 0; i < degree + 4; ++i) {
    terms.push_back(ends[0]);
    for (size_t k = 0; k + 1 < ends.size(); ++k) ends[k] += ends[k + 1];
  }
  const std::string answer = std::to_string(terms.back());
  terms.pop_back();
  return {fmt::format("next {}", joined(terms, " ")),
          {{"terms", terms}, {"degree", degree}, {"answer", answer}}};
}

Trace solve_sequence(const Json& data, Dice& dice, TraceStyle style) {
  std::vector<std::vector<int64_t>> rows = {data.at("terms").get<std::vector<int64_t>>()};
  Steps steps(dice, style);
  for (int64_t k = 0; k < data.at("degree").get<int64_t>(); ++k) {
    const std::vector<int64_t>& above = rows.back();
    std::vector<int64_t> row;
    for (size_t i = 0; i + 1 < above.size(); ++i) row.push_back(above[i + 1] - above[i]);
    steps.line("row " + joined(row, " "));
    rows.push_back(std::move(row));
  }
  int64_t next = rows.back().back();
  for (size_t k = rows.size() - 1; k-- > 0;) {
    const int64_t last = rows[k].back(), added = next;
    next = last + added;
    steps.step(
        next, [&](int64_t v) { return fmt::format("{}+{}={}", last, added, v); },
        [&](int64_t v) { return fmt::format("{}-{}={} {}", v, added, v - added, last); });
  }
  return {steps.text(), std::to_string(next)};
}

constexpr Family kNumberFamilies[] = {
    {"chain",
     "adds and subtracts digits from left to right; answer: the result",
     {1, 40},
     make_chain,
     same_integer,
     solve_chain},
    {"addition",
     "adds two numbers of as many digits as the difficulty; answer: the sum",
     {1, 40},
     make_addition,
     same_integer,
     solve_addition},
    {"gcd", "greatest common divisor; answer: the number", {1, 40}, make_gcd, same_integer, solve_gcd},
    {"base",
     "writes a number in base 2, 3 or 4; answer: its digits",
     {1, 24},
     make_base,
     same_integer,
     solve_base},
    {"power",
     "a power modulo a number; answer: the remainder",
     {2, 40},
     make_power,
     same_integer,
     solve_power},
    {"linear",
     "solves an equation of one unknown; answer: x",
     {1, 40},
     make_linear,
     same_integer,
     solve_linear},
    {"fraction",
     "adds two fractions; answer: p/q, reduced or not",
     {1, 30},
     make_fraction,
     right_fraction,
     solve_fraction},
    {"sequence",
     "the next term of a polynomial sequence; answer: the term",
     {1, 12},
     make_sequence,
     same_integer,
     solve_sequence},
};

}  // namespace

std::span<const Family> number_families() {
  return kNumberFamilies;
}

}  // namespace ingot::environments
