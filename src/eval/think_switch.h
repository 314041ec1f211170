// The think/no-think switch: every turn of a conversation ends with /think or /no_think at random, and the
// reply must have reasoning or none accordingly ([Playbook] ThinkFollow).
#pragma once
#include "eval/task_model.h"

namespace ingot {

/// The turns of a row in the chat format: system text, then the row's messages, or its prompt as the user's.
std::vector<ChatTurn> chat_turns(const Task& task, size_t row);

struct SwitchOutcome {
  std::vector<std::string> prompts, replies;
  std::vector<bool> thinks, followed;  ///< by turn of the user: what was asked, whether it was done
  std::vector<bool> formed;            ///< well_formed()
  std::vector<Answer> answers;
  double share() const;         ///< of turns that followed
  double formed_share() const;  ///< of turns with a whole answer
  TaskJson arguments() const;
  TaskJson texts() const;
  TaskJson modes() const;
};

/// Asks turn by turn; earlier replies stay in the conversation without their reasoning. Which turns think
/// is a function of the task's seed, the row and the turn.
SwitchOutcome run_think_switch(const Task& task, size_t row, TaskModel& model);

}  // namespace ingot
