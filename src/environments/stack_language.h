// A tiny stack language that runs in process: what environments of code predict, invert, write and falsify. A
// program is words: a digit pushes itself; add, sub, mul, min, max take two numbers and push one (sub: the
// second from the top less the top); dup, drop, swap, over move numbers. No loops: a run ends after as many
// steps as there are words. Pure functions; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ingot::environments {

using StackValues = std::vector<int64_t>;
using StackProgram = std::vector<std::string>;

/// True for add, sub, mul, min, max.
bool is_binary_word(const std::string& word);
/// One word on a stack; nothing where numbers are missing, a result is beyond 9,999 or below -9,999, the
/// stack holds more than 16, or the word is none.
std::optional<StackValues> run_word(const std::string& word, StackValues stack);
/// The whole program on the numbers of the input, the last on top.
std::optional<StackValues> run_program(const StackProgram& program, StackValues input);

/// The one number that a program leaves for every pair of digits, at [10 a + b]; empty where it fails for a
/// pair or leaves more or less.
std::vector<int64_t> digit_table(const StackProgram& program);

}  // namespace ingot::environments
