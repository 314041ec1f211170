// See range.h.
#include "base/range.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

/// A bound as people write it: 4096, 0.5, 1e+12.
std::string bound_text(double bound) {
  return bound == std::floor(bound) && std::abs(bound) < 1e10 ? fmt::format("{:.0f}", bound)
                                                              : fmt::format("{:g}", bound);
}

/// " 4096 tokens"; the units are plurals.
std::string with_unit(double bound, const char* unit) {
  return " " + bound_text(bound) + (*unit == '\0' || bound <= 1 ? "" : std::string(" ") + unit);
}

template <class Number>
std::string problem_of(const Range& r, Number value) {
  if (r.contains(value)) return "";
  const auto number = static_cast<double>(value);
  if (!r.stated() || (std::isnan(number) && r.least == 0))
    return fmt::format("must be a number ({}), found {}", r.str(), value);
  if (r.above ? number > r.least : number >= r.least)
    return fmt::format("must be {}{}, found {}", r.below ? "below" : "at most", with_unit(r.most, r.unit),
                       value);
  if (r.least == 0)
    return fmt::format("must {}, found {}", r.above ? "be positive" : "not be negative", value);
  return fmt::format("must be {}{}{}, found {}", r.or_zero ? "0 or " : "", r.above ? "above" : "at least",
                     with_unit(r.least, r.unit), value);
}

template <class Number>
Number parse(const std::string& text, const Range& range, const std::string& name, const char* kind) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range) fail("{} must lie in {}, found {}", name, range.str(), text);
  if (code != std::errc{} || end != text.data() + text.size())
    fail("{} must be {} ({}), found '{}'", name, kind, range.str(), text.substr(0, 60));
  if (const std::string problem = range.problem(value); !problem.empty()) fail("{} {}", name, problem);
  return value;
}

}  // namespace

std::string Range::str() const {
  const std::string zero = or_zero ? "0, or " : "", least_text = bound_text(least),
                    most_text = bound_text(most);
  if (!stated()) return "any number";
  if (least == -0x1p63 && most == 0x1p63) return "any integer";
  if (std::isinf(most)) return fmt::format("{}{} {}", zero, above ? "above" : "at least", least_text);
  if (above && below) return fmt::format("{}above {}, below {}", zero, least_text, most_text);
  if (above) return fmt::format("{}above {}, at most {}", zero, least_text, most_text);
  if (below) return fmt::format("{}{} or more, below {}", zero, least_text, most_text);
  return fmt::format("{}{} to {}", zero, least_text, most_text);
}

std::string Range::problem(double value) const {
  return problem_of(*this, value);
}
std::string Range::problem(int64_t value) const {
  return problem_of(*this, value);
}

int64_t parse_integer(const std::string& text, const Range& range, const std::string& name) {
  return parse<int64_t>(text, range, name, "an integer");
}
double parse_number(const std::string& text, const Range& range, const std::string& name) {
  return parse<double>(text, range, name, "a number");
}

bool multiply(std::initializer_list<int64_t> factors, int64_t& product) {
  int64_t result = 1;
  bool zero = false, fits = true;
  for (const int64_t factor : factors) {
    zero |= factor == 0;
    fits = fits && !__builtin_mul_overflow(result, factor, &result);
  }
  if (zero) result = 0;
  if (zero || fits) product = result;
  return zero || fits;
}

int64_t checked_product(std::initializer_list<int64_t> factors, const std::string& what) {
  int64_t product = 0;
  if (multiply(factors, product)) return product;
  std::string text;
  for (const int64_t factor : factors) text += fmt::format("{}{}", text.empty() ? "" : " x ", factor);
  fail("{}: {} is more than can be counted (2^63)", what, text);
}

}  // namespace ingot
