// Environments of code in the stack language: what a program gives, an input that gives a result, a program
// for examples, an input on which two programs differ.
#include <fmt/core.h>

#include <algorithm>

#include "environments/answer.h"
#include "environments/family.h"
#include "environments/stack_language.h"
#include "environments/trace.h"

namespace ingot::environments {
namespace {

int64_t depth_change(const std::string& word) {
  return is_binary_word(word) || word == "drop" ? -1 : word == "swap" ? 0 : 1;
}

/// A program of `size` words over two numbers that leaves `final` of them.
StackProgram random_program(Dice& dice, int64_t size, int64_t final) {
  const std::vector<std::string> kinds = {"add", "add",  "sub",  "mul",  "mul",   "min",  "max",
                                          "dup", "over", "swap", "drop", "digit", "digit"};
  StackProgram program;
  int64_t depth = 2;
  while (static_cast<int64_t>(program.size()) < size) {
    const int64_t left = size - 1 - static_cast<int64_t>(program.size());
    if (depth == 1 && left == 0 && final == 1)
      program.clear(), depth = 2;  // no word keeps one number as it is
    std::string word = dice.pick(kinds);
    if (word == "digit") word = std::to_string(dice.between(1, 9));
    const int64_t now = depth + depth_change(word);
    const int64_t needed = is_binary_word(word) || word == "swap" || word == "over" ? 2 : 1;
    if (depth < needed || now < 1 || std::abs(now - final) > left) continue;
    program.push_back(std::move(word));
    depth = now;
  }
  return program;
}

/// digit_table() without numbers beyond 999.
std::vector<int64_t> table_of(const StackProgram& program) {
  std::vector<int64_t> table = digit_table(program);
  if (std::any_of(table.begin(), table.end(), [](int64_t v) { return std::abs(v) > 999; })) table.clear();
  return table;
}

/// A program of one result that depends on its input, and its table.
StackProgram random_function(Dice& dice, int64_t size, std::vector<int64_t>& table) {
  for (;;) {
    StackProgram program = random_program(dice, size, 1);
    table = table_of(program);
    if (!table.empty() && std::count(table.begin(), table.end(), table[0]) < 50) return program;
  }
}

std::string stack_text(const StackValues& stack) {
  return joined(stack, " ");
}

/// The stack behind every word, in one line: "add 8 | dup 8 8 | mul 64".
std::string run_line(const StackProgram& program, StackValues stack) {
  std::string line;
  for (const std::string& word : program) {
    stack = run_word(word, stack).value();
    line += fmt::format("{}{} {}", line.empty() ? "" : " | ", word, stack_text(stack));
  }
  return line;
}

Draft make_output(Dice& dice, int64_t difficulty) {
  for (;;) {
    const StackProgram program =
        random_program(dice, difficulty, dice.between(1, std::min<int64_t>(3, 1 + difficulty)));
    const StackValues input = {dice.below(10), dice.below(10)};
    const auto output = run_program(program, input);
    if (!output || std::any_of(output->begin(), output->end(), [](int64_t v) { return std::abs(v) > 999; }))
      continue;
    return {fmt::format("output {} run {}", stack_text(input), joined(program, " ")),
            {{"program", program}, {"input", input}, {"answer", stack_text(*output)}}};
  }
}

Trace solve_output(const Json& data, Dice& dice, TraceStyle style) {
  auto stack = data.at("input").get<StackValues>();
  Steps steps(dice, style);
  for (const auto& word : data.at("program").get<StackProgram>()) {
    const StackValues before = stack;
    stack = run_word(word, std::move(stack)).value();
    if (!is_binary_word(word)) {
      steps.line(fmt::format("{}: {}", word, stack_text(stack)));
      continue;
    }
    const int64_t a = before[before.size() - 2], b = before.back();
    const auto line = [&](int64_t v) {
      StackValues claimed = stack;
      claimed.back() = v;
      return fmt::format("{} {} {}: {}", word, a, b, stack_text(claimed));
    };
    steps.step(stack.back(), line, [&](int64_t v) {
      if (word == "add") return fmt::format("{}-{}={} {}", v, b, v - b, a);
      if (word == "sub") return fmt::format("{}+{}={} {}", v, b, v + b, a);
      return fmt::format("{} {} {}={} {}", word, b, a, stack.back(), v);
    });
  }
  return {steps.text(), stack_text(stack)};
}

/// One of the two numbers is unknown.
Draft make_input(Dice& dice, int64_t difficulty) {
  std::vector<int64_t> table;
  for (;;) {
    const StackProgram program = random_function(dice, difficulty, table);
    const int64_t place = dice.below(2), known = dice.below(10), unknown = dice.below(10);
    const auto result = [&](int64_t x) {
      return table[static_cast<size_t>(place == 0 ? 10 * x + known : 10 * known + x)];
    };
    int64_t solutions = 0;
    for (int64_t x = 0; x < 10; ++x) solutions += result(x) == result(unknown) ? 1 : 0;
    if (solutions > 2) continue;
    return {fmt::format("input {} run {} gives {}",
                        place == 0 ? fmt::format("? {}", known) : fmt::format("{} ?", known),
                        joined(program, " "), result(unknown)),
            {{"program", program},
             {"place", place},
             {"known", known},
             {"result", result(unknown)},
             {"answer", std::to_string(unknown)}}};
  }
}

StackValues filled_input(const Json& data, int64_t x) {
  const auto known = data.at("known").get<int64_t>();
  return data.at("place").get<int64_t>() == 0 ? StackValues{x, known} : StackValues{known, x};
}

bool right_input(const Json& data, const std::string& answer) {
  const auto number = integer_of(answer);
  if (!number || number->size() != 1) return false;
  const auto output =
      run_program(data.at("program").get<StackProgram>(), filled_input(data, (*number)[0] - '0'));
  return output && *output == StackValues{data.at("result").get<int64_t>()};
}

/// Tries digits in an order of the dice until one gives the result.
Trace solve_input(const Json& data, Dice& dice, TraceStyle style) {
  const auto program = data.at("program").get<StackProgram>();
  const auto wanted = data.at("result").get<int64_t>();
  Steps steps(dice, style);
  std::vector<int64_t> digits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  if (dice.once_in(2)) dice.shuffle(digits);
  for (const int64_t x : digits) {
    const StackValues input = filled_input(data, x);
    const bool hit = run_program(program, input).value() == StackValues{wanted};
    steps.line(fmt::format("{}: {}{} {}", stack_text(input), run_line(program, input),
                           steps.checked() ? fmt::format(" ? {}", wanted) : "", hit ? "yes" : "no"));
    if (hit) return {steps.text(), std::to_string(x)};
  }
  return {steps.text(), data.at("answer").get<std::string>()};
}

constexpr int64_t kExamples = 3, kHiddenTests = 12;

Draft make_program(Dice& dice, int64_t difficulty) {
  std::vector<int64_t> table;
  const StackProgram program = random_function(dice, difficulty, table);
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < 100; ++i) pairs.push_back(i);
  dice.shuffle(pairs);
  std::string prompt = "program";
  Json tests = Json::array();
  for (int64_t i = 0; i < kExamples + kHiddenTests; ++i) {
    const int64_t pair = pairs[static_cast<size_t>(i)], result = table[static_cast<size_t>(pair)];
    tests.push_back({pair / 10, pair % 10, result});
    if (i < kExamples)
      prompt += fmt::format("{}{} {} gives {}", i == 0 ? " " : "; ", pair / 10, pair % 10, result);
  }
  return {prompt, {{"tests", tests}, {"answer", joined(program, " ")}}};
}

/// A program of at most 40 words that passes the examples and the hidden tests.
bool right_program(const Json& data, const std::string& answer) {
  const StackProgram program = words_of(answer);
  if (program.size() > 40) return false;
  for (const Json& test : data.at("tests"))
    if (run_program(program, {test[0], test[1]}) != StackValues{test[2].get<int64_t>()}) return false;
  return true;
}

/// Runs the examples; slips: those of other programs first, each as far as it holds.
Trace solve_program(const Json& data, Dice& dice, TraceStyle style) {
  const StackProgram program = words_of(data.at("answer").get<std::string>());
  Steps steps(dice, style);
  const auto attempt = [&](const StackProgram& tried) {
    steps.line("try " + joined(tried, " "));
    for (int64_t i = 0; i < kExamples; ++i) {
      const Json& test = data.at("tests")[static_cast<size_t>(i)];
      const StackValues input = {test[0], test[1]};
      const auto wanted = test[2].get<int64_t>();
      const bool hit = run_program(tried, input) == StackValues{wanted};
      steps.line(fmt::format("{}: {}{} {}", stack_text(input), run_line(tried, input),
                             steps.checked() ? fmt::format(" ? {}", wanted) : "", hit ? "yes" : "no"));
      if (!hit) return;
    }
  };
  if (style == TraceStyle::slips) {
    std::vector<int64_t> table;
    const StackProgram other = random_function(dice, static_cast<int64_t>(program.size()), table);
    if (!right_program(data, joined(other, " "))) attempt(other);
  }
  attempt(program);
  return {steps.text(), joined(program, " ")};
}

/// Two programs of which one has a word exchanged; they agree on a third of all inputs at least.
Draft make_differ(Dice& dice, int64_t difficulty) {
  std::vector<int64_t> table;
  const std::vector<std::string> words = {"add", "sub", "mul", "min", "max"};
  for (;;) {
    const StackProgram first = random_function(dice, difficulty, table);
    StackProgram second = first;
    std::string& word = second[static_cast<size_t>(dice.below(difficulty))];
    if (is_binary_word(word))
      word = dice.pick(words);
    else if (depth_change(word) > 0)
      word = dice.once_in(4) ? "over" : std::to_string(dice.between(1, 9));
    else
      continue;
    const std::vector<int64_t> other = table_of(second);
    if (other.empty()) continue;
    std::vector<size_t> differ;
    for (size_t i = 0; i < 100; ++i)
      if (table[i] != other[i]) differ.push_back(i);
    if (differ.empty() || differ.size() > 66) continue;
    const size_t pair = dice.pick(differ);
    return {fmt::format("differ {} / {}", joined(first, " "), joined(second, " ")),
            {{"first", first}, {"second", second}, {"answer", fmt::format("{} {}", pair / 10, pair % 10)}}};
  }
}

bool right_differ(const Json& data, const std::string& answer) {
  StackValues input;
  for (const std::string& word : words_of(answer)) {
    const auto number = integer_of(word);
    if (!number || number->size() != 1) return false;
    input.push_back((*number)[0] - '0');
  }
  if (input.size() != 2) return false;
  const auto first = run_program(data.at("first").get<StackProgram>(), input),
             second = run_program(data.at("second").get<StackProgram>(), input);
  return first.value() != second.value();
}

/// Tries inputs, the known one at the latest after four.
Trace solve_differ(const Json& data, Dice& dice, TraceStyle style) {
  const auto first = data.at("first").get<StackProgram>(), second = data.at("second").get<StackProgram>();
  Steps steps(dice, style);
  for (int attempt = 0;; ++attempt) {
    StackValues input = {dice.below(10), dice.below(10)};
    if (attempt == 4) {
      const std::vector<std::string> known = words_of(data.at("answer").get<std::string>());
      input = {known[0][0] - '0', known[1][0] - '0'};
    }
    const int64_t a = run_program(first, input).value().back(), b = run_program(second, input).value().back();
    std::string line =
        fmt::format("{}: {} / {}", stack_text(input), run_line(first, input), run_line(second, input));
    if (steps.checked()) line += fmt::format(" ? {} {}", a, b);
    steps.line(line + (a != b ? " yes" : " no"));
    if (a != b) return {steps.text(), stack_text(input)};
  }
}

constexpr Family kStackFamilies[] = {
    {"stack_output",
     "what a program of the stack language leaves on the stack; answer: the numbers",
     {1, 20},
     make_output,
     same_words,
     solve_output},
    {"stack_input",
     "a digit for ? that makes a program give a result; answer: the digit",
     {1, 12},
     make_input,
     right_input,
     solve_input},
    {"stack_program",
     "a program for examples, tested on others too; answer: its words",
     {1, 10},
     make_program,
     right_program,
     solve_program},
    {"stack_differ",
     "an input on which two programs differ; answer: two digits",
     {3, 14},
     make_differ,
     right_differ,
     solve_differ},
};

}  // namespace

std::span<const Family> stack_families() {
  return kStackFamilies;
}

}  // namespace ingot::environments
