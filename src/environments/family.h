// A built-in environment as three functions: what is asked, what is right, how a teacher solves it. The
// adaptor to Environment adds the split into training and held-out problems.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "environments/dice.h"
#include "environments/environment.h"

namespace ingot::environments {

using Json = nlohmann::ordered_json;

struct Draft {
  std::string prompt;
  Json data;
};
struct Trace {
  std::string reasoning, answer;
};

/// Functions are pure; `right` and `solve` get the data of a problem that `make` made.
struct Family {
  const char* name;
  const char* about;
  DifficultyRange difficulty;
  Draft (*make)(Dice& dice, int64_t difficulty);
  /// `answer` is final_answer()'s.
  bool (*right)(const Json& data, const std::string& answer);
  /// Style `answer` needs the answer alone: its reasoning is dropped.
  Trace (*solve)(const Json& data, Dice& dice, TraceStyle style);
};

std::span<const Family> number_families();
std::span<const Family> search_families();
std::span<const Family> puzzle_families();
std::span<const Family> string_families();
std::span<const Family> structure_families();
std::span<const Family> stack_families();

/// Every built-in one.
std::vector<Family> built_in_families();
EnvironmentPointer make_environment(const Family& family);

/// For `right` of families with one right answer, kept as data["answer"]: equal as a list of words (white
/// space and commas divide), or as a whole number.
bool same_words(const Json& data, const std::string& answer);
bool same_integer(const Json& data, const std::string& answer);

}  // namespace ingot::environments
