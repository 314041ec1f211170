// Problems with teachers' solutions as rows of JSON, one a line, for every kind of training: plain text for
// pretraining and midtraining, conversations for SFT, prompts for RL. A row is a pure function of the request
// and its number, so any part of a file can be made anywhere.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "environments/environment.h"

namespace ingot::environments {

/// An environment's share of the rows and the difficulties that are drawn for it, all alike.
struct ProblemMix {
  EnvironmentPointer environment;
  DifficultyRange difficulty;
  double share = 1;
};

/// "sort", "sort:3-8", "sort:5", "sort:3-8*2": name, difficulties (all without), share (1 without). Error
/// that says what is wrong with it.
ProblemMix problem_mix(const std::string& text);

/// text: {"text"}: the problem, the reasoning, "answer: ...". messages: {"messages"} with
/// reasoning_content. completion: {"prompt", "completion"}: the same text cut behind the problem. prompts:
/// {"prompt": [messages], "answer"}: for RL, without a solution in the conversation. Every row has the
/// "id" of its problem.
enum class RowForm : uint8_t { text, messages, completion, prompts };
constexpr auto enum_names(RowForm) {
  return names_in_order<RowForm>("text", "messages", "completion", "prompts");
}

struct RowRequest {
  std::vector<ProblemMix> mix;
  RowForm form = RowForm::messages;
  std::vector<TraceStyle> styles = {TraceStyle::checked};  ///< drawn alike
  /// Share of rows without reasoning. In messages and prompts one half of them have "/no_think" as the system
  /// message, the other half at the end of the user's turn, and as many rows with reasoning end the user's
  /// turn with "/think": a model then follows the switch in either place. A text has the answer alone.
  double no_think = 0;
  uint64_t seed = 0;
};

/// What row `number` is about: its problem and how it is shown.
struct DrawnProblem {
  const ProblemMix* mix = nullptr;  ///< of the request
  Problem problem;
  bool no_think = false;
  bool switch_in_turn = false;            ///< the user's turn ends with the switch
  TraceStyle style = TraceStyle::answer;  ///< answer under no_think
};
DrawnProblem drawn_problem(const RowRequest& request, uint64_t number);

/// Row `number`, one line without its newline. Error: an environment without a teacher in another form than
/// prompts.
std::string problem_row(const RowRequest& request, uint64_t number);

/// The text of a solved problem, as in RowForm::text.
std::string problem_text(const Problem& problem, const chat::Message& reply);

}  // namespace ingot::environments
