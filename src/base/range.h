// The values that a number may take, stated once where the number is declared: at a config key, a flag, an
// environment variable or a field of a foreign file. Everything that reads such a number refuses others with
// the same words. Values; nothing here is tied to a thread.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace ingot {

/// From `least` to `most`, both included unless `above` or `below` says otherwise. Never NaN. Bounds are
/// exact as doubles: of integers they lie within 2^53, or are the type's own.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  const char* unit = "";  ///< for messages: "tokens"
  bool above = false;     ///< `least` itself is refused
  bool below = false;     ///< `most` itself is refused
  bool or_zero = false;   ///< 0 is taken too: it stands for something else

  /// False for a range that was not stated: it takes all but NaN.
  constexpr bool stated() const { return least >= std::numeric_limits<double>::lowest(); }
  constexpr bool contains(double value) const {
    return (or_zero && value == 0) ||
           ((above ? value > least : value >= least) && (below ? value < most : value <= most));
  }
  constexpr bool contains(int64_t value) const { return contains(static_cast<double>(value)); }
  /// "1 to 4096", "above 0, at most 1", "0, or 1 to 8": for comments and tables.
  std::string str() const;
  /// What is wrong with a value: "must be at least 1, found 0"; empty if it lies in the range.
  std::string problem(double value) const;
  std::string problem(int64_t value) const;
};

constexpr Range between(double least, double most, const char* unit = "") {
  return {least, most, unit};
}
/// 0 to `most`.
constexpr Range up_to(double most, const char* unit = "") {
  return {0, most, unit};
}
/// Above 0, at most `most`.
constexpr Range positive(double most, const char* unit = "") {
  return {.least = 0, .most = most, .unit = unit, .above = true};
}
/// 0 to 1 without 1: decays, and shares of which something must be left.
constexpr Range below_one() {
  return {.least = 0, .most = 1, .below = true};
}
/// 0, which stands for something else, or a value between the bounds.
constexpr Range zero_or(double least, double most, const char* unit = "") {
  return {.least = least, .most = most, .unit = unit, .or_zero = true};
}
constexpr Range any_integer() {
  return between(-0x1p63, 0x1p63);
}

/// Bounds that several keys share. They are far beyond what any machine trains, and so small that sums and
/// single products of two of them stay exact.
namespace bounds {
inline constexpr double kSteps = 1e12, kTokens = 1e16, kSequence = 0x1p26, kBatch = 0x1p30;
inline constexpr double kLayers = 10000, kWidth = 0x1p20, kHidden = 0x1p24, kHeads = 0x1p16,
                        kExperts = 0x1p16;
inline constexpr double kVocabulary = 0x1p31 - 1, kRanks = 0x1p20, kWeight = 1e9, kTheta = 1e15;
}  // namespace bounds

/// The number that `text` holds, of the option or variable `name`. Error for anything else, naming both.
int64_t parse_integer(const std::string& text, const Range& range, const std::string& name);
double parse_number(const std::string& text, const Range& range, const std::string& name);

/// a * b * ..., which may be any counts. Error where the product does not fit 63 bits: `what` names it and
/// the keys ("tokens of phase 0 (steps x batch x sequence)").
int64_t checked_product(std::initializer_list<int64_t> factors, const std::string& what);
/// The same; false where it does not fit.
bool multiply(std::initializer_list<int64_t> factors, int64_t& product);

}  // namespace ingot
