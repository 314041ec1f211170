// Ranges of the program's flags: the same statement and words as of a recipe's keys (base/range.h).
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "base/range.h"

namespace ingot {

/// For add_option(...)->check(): refuses numbers outside the range; `--help` shows it. What is no number is
/// refused where CLI11 converts it.
inline CLI::Validator in(const Range& range) {
  return CLI::Validator(
      [range](std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) ? range.problem(value) : std::string();
      },
      range.str());
}

}  // namespace ingot
