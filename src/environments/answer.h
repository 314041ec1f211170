// What a reply's content says as its answer, and whether two answers are the same. Strict on purpose: what a
// careless verifier accepts, RL finds. Pure functions; thread-safe.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot::environments {

struct FinalAnswer {
  std::string text;  ///< white space collapsed; "" where there is none
  std::string note;  ///< why there is none
};

/// In this order: \boxed{...}; what follows "####"; <answer>...</answer>; what follows "answer:" (any case);
/// else the content itself, where it has one line. Two of a kind that differ, one that is empty or not
/// closed, several lines without any, more than 10,000 bytes: no answer. A full stop at the end is dropped.
FinalAnswer final_answer(std::string_view content);

/// Words between white space and commas.
std::vector<std::string> words_of(std::string_view text);
/// Decimal digits of ASCII with an optional minus, of any length, as the shortest text: "007" is "7", "-0"
/// is "0". Nothing for anything else.
std::optional<std::string> integer_of(std::string_view text);

/// An exact number: whole, decimal, a/b, \frac{a}{b}, mixed "1 1/2", 1,234 with its commas in place, percent,
/// dollars; behind it a unit, letters only ("18 dollars", "3 km/h"). As the shortest fraction "p/q", q > 0.
/// Nothing for anything else: nan, infinity, digits that are not ASCII, an equation, a division by zero, more
/// than 200 digits.
std::optional<std::string> number_of(std::string_view text);

}  // namespace ingot::environments
