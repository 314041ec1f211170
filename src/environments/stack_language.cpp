// See stack_language.h.
#include "environments/stack_language.h"

#include <algorithm>
#include <string_view>

namespace ingot::environments {
namespace {

constexpr int64_t kLargestValue = 9'999;
constexpr size_t kDeepestStack = 16;

constexpr std::string_view kWords[] = {"add", "sub", "mul", "min", "max", "dup", "drop", "swap", "over"};
enum Code : uint8_t { add, sub, mul, min, max, dup, drop, swap, over, first_digit, none = 255 };

uint8_t code_of(std::string_view word) {
  if (word.size() == 1 && word[0] >= '0' && word[0] <= '9')
    return static_cast<uint8_t>(first_digit + (word[0] - '0'));
  for (uint8_t i = 0; i < std::size(kWords); ++i)
    if (word == kWords[i]) return i;
  return none;
}

struct Stack {
  int64_t values[kDeepestStack];
  size_t size = 0;
};

int64_t binary(uint8_t code, int64_t a, int64_t b) {
  switch (code) {
    case add:
      return a + b;
    case sub:
      return a - b;
    case mul:
      return a * b;
    case min:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

bool run_code(uint8_t code, Stack& s) {
  const size_t needed = code >= first_digit ? 0 : code == dup || code == drop ? 1 : 2;
  const bool grows = code >= first_digit || code == dup || code == over;
  if (code == none || s.size < needed || (grows && s.size == kDeepestStack)) return false;
  int64_t* const end = s.values + s.size;
  if (code == drop) {
    --s.size;
  } else if (code == swap) {
    std::swap(end[-2], end[-1]);
  } else if (grows) {
    *end = code >= first_digit ? code - first_digit : code == dup ? end[-1] : end[-2];
    ++s.size;
  } else {
    end[-2] = binary(code, end[-2], end[-1]);
    --s.size;
    return end[-2] <= kLargestValue && end[-2] >= -kLargestValue;
  }
  return true;
}

std::optional<Stack> stack_of(const StackValues& values) {
  if (values.size() > kDeepestStack) return {};
  Stack s;
  std::copy(values.begin(), values.end(), s.values);
  s.size = values.size();
  return s;
}

}  // namespace

bool is_binary_word(const std::string& word) {
  return code_of(word) <= max;
}

std::optional<StackValues> run_word(const std::string& word, StackValues stack) {
  return run_program({word}, std::move(stack));
}

std::optional<StackValues> run_program(const StackProgram& program, StackValues input) {
  std::optional<Stack> s = stack_of(input);
  for (const std::string& word : program)
    if (!s || !run_code(code_of(word), *s)) return {};
  if (!s) return {};
  return StackValues(s->values, s->values + s->size);
}

std::vector<int64_t> digit_table(const StackProgram& program) {
  std::vector<uint8_t> codes;
  for (const std::string& word : program) codes.push_back(code_of(word));
  std::vector<int64_t> table;
  table.reserve(100);
  // From the largest digits down: what fails, fails there first.
  for (int64_t pair = 99; pair >= 0; --pair) {
    Stack s;
    s.values[0] = pair / 10, s.values[1] = pair % 10, s.size = 2;
    for (const uint8_t code : codes)
      if (!run_code(code, s)) return {};
    if (s.size != 1) return {};
    table.push_back(s.values[0]);
  }
  std::reverse(table.begin(), table.end());
  return table;
}

}  // namespace ingot::environments
