// See rows.h.
#include "environments/rows.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "environments/dice.h"

namespace ingot::environments {
namespace {

using RowJson = nlohmann::ordered_json;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

std::optional<double> positive_number(const std::string& text) {
  try {
    size_t used = 0;
    const double value = std::stod(text, &used);
    if (used == text.size() && std::isfinite(value) && value > 0) return value;
  } catch (const std::exception&) {  // no number
  }
  return {};
}

[[noreturn]] void refuse_mix(const std::string& text) {
  throw Error(fmt::format("'{}' names no environment with difficulties", text),
              "write NAME, NAME:DIFFICULTY or NAME:LEAST-MOST, and *SHARE behind it, as sort:3-8*2");
}

const ProblemMix& drawn_mix(const std::vector<ProblemMix>& mix, double at) {
  double total = 0;
  for (const ProblemMix& one : mix) total += one.share;
  for (const ProblemMix& one : mix) {
    at -= one.share / total;
    if (at < 0) return one;
  }
  return mix.back();
}

std::string prompt_text(const Problem& problem) {
  std::string text;
  for (const chat::Message& message : problem.prompt.messages) text += message.content.value_or("") + "\n";
  return text;
}

std::string solution_text(const chat::Message& reply) {
  const std::string reasoning = reply.reasoning_content.value_or("");
  return reasoning + (reasoning.empty() ? "" : "\n") + "answer: " + reply.content.value_or("") + "\n";
}

RowJson prompt_messages(const DrawnProblem& drawn) {
  RowJson messages = RowJson::array();
  if (drawn.no_think && !drawn.switch_in_turn)
    messages.push_back({{"role", "system"}, {"content", "/no_think"}});
  for (const chat::Message& message : drawn.problem.prompt.messages)
    messages.push_back({{"role", message.role}, {"content", message.content.value_or("")}});
  if (drawn.switch_in_turn) {
    RowJson& turn = messages.back()["content"];
    turn = turn.get<std::string>() + (drawn.no_think ? " /no_think" : " /think");
  }
  return messages;
}

}  // namespace

ProblemMix problem_mix(const std::string& text) {
  ProblemMix mix;
  std::string name = text;
  if (const size_t star = name.rfind('*'); star != name.npos) {
    const auto share = positive_number(name.substr(star + 1));
    if (!share) refuse_mix(text);
    mix.share = *share;
    name.resize(star);
  }
  std::string range;
  if (const size_t colon = name.rfind(':'); colon != name.npos) {
    range = name.substr(colon + 1);
    if (range.empty()) refuse_mix(text);
    name.resize(colon);
  }
  mix.environment = find_environment(name);
  mix.difficulty = mix.environment->difficulty();
  if (range.empty()) return mix;
  const size_t dash = range.find('-');
  const auto least = whole_number(std::string_view(range).substr(0, dash));
  const auto most = dash == range.npos ? least : whole_number(std::string_view(range).substr(dash + 1));
  if (!least || !most || *least > *most) refuse_mix(text);
  if (*least < mix.difficulty.least || *most > mix.difficulty.most)
    throw Error(
        fmt::format("'{}' asks for difficulties {} to {}", text, *least, *most),
        fmt::format("environment '{}' has {} to {}", name, mix.difficulty.least, mix.difficulty.most));
  mix.difficulty = {*least, *most};
  return mix;
}

std::string problem_text(const Problem& problem, const chat::Message& reply) {
  return prompt_text(problem) + solution_text(reply);
}

DrawnProblem drawn_problem(const RowRequest& request, uint64_t number) {
  INGOT_CHECK(!request.mix.empty() && !request.styles.empty(), "an empty request");
  const Random random(request.seed, RandomPurpose::environment, hash64(fmt::format("row {}", number)));
  const ProblemMix& mix = drawn_mix(request.mix, random.uniform(0));
  const auto width = static_cast<uint64_t>(mix.difficulty.most - mix.difficulty.least + 1);
  const int64_t difficulty = mix.difficulty.least + static_cast<int64_t>(random.below(4, width));
  DrawnProblem drawn{&mix, mix.environment->make(request.seed, number, difficulty)};
  drawn.no_think = static_cast<double>(random.uniform(1)) < request.no_think;
  if (!drawn.no_think) drawn.style = request.styles[random.below(5, request.styles.size())];
  const double half = request.no_think / 2;  // of all rows, for either switch
  const double share = half / (drawn.no_think ? request.no_think : 1 - request.no_think);
  drawn.switch_in_turn = request.no_think > 0 && static_cast<double>(random.uniform(6)) < share;
  return drawn;
}

std::string problem_row(const RowRequest& request, uint64_t number) {
  const DrawnProblem drawn = drawn_problem(request, number);
  const ProblemMix& mix = *drawn.mix;
  const Problem& problem = drawn.problem;
  const Random teacher(request.seed, RandomPurpose::environment, hash64(fmt::format("solution {}", number)));
  const std::optional<chat::Message> reply = mix.environment->solve(problem, teacher, drawn.style);
  if (!reply && request.form != RowForm::prompts)
    throw Error(
        fmt::format("environment '{}' has no teacher that solves its problems", mix.environment->name()),
        "give --form prompts");
  RowJson row;
  switch (request.form) {
    case RowForm::text:
      row["text"] = problem_text(problem, *reply);
      break;
    case RowForm::completion:
      row["prompt"] = prompt_text(problem);
      row["completion"] = solution_text(*reply);
      break;
    case RowForm::messages: {
      row["messages"] = prompt_messages(drawn);
      RowJson message = {{"role", "assistant"}};
      if (reply->reasoning_content) message["reasoning_content"] = *reply->reasoning_content;
      message["content"] = reply->content.value_or("");
      row["messages"].push_back(std::move(message));
      break;
    }
    case RowForm::prompts:
      row["prompt"] = prompt_messages(drawn);
      if (reply) row["answer"] = reply->content.value_or("");
      break;
  }
  row["id"] = problem.id();
  return row.dump();
}

}  // namespace ingot::environments
