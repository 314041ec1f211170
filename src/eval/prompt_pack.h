// Saved prompts ([Playbook] EVP-10): conversations that a person would try on every new checkpoint -
// greetings, personas in the system's text, several turns - kept in a file and played through a model, so
// that its replies can be read beside those of another one. No score: benchmarks have missed what one look
// at such replies shows.
//
// A pack is JSON lines. A row:  {"name": "persona", "system": "You are ...", "turns": ["Who are you?",
// ...], "thinking": "default" | "on" | "off"}; only `turns`, what the user says in order, must be there.
#pragma once
#include <string>
#include <vector>

#include "eval/python_text.h"
#include "eval/task_model.h"

namespace ingot {

struct SavedPrompts {
  std::string name;    ///< "row 3" where the row has none
  std::string where;   ///< file and line
  std::string system;  ///< "" if none
  std::vector<std::string> turns;
  ThinkingMode thinking = ThinkingMode::automatic;
};

/// Errors name the line and the field; a pack without rows is one.
std::vector<SavedPrompts> read_prompt_pack(const std::string& text, const std::string& path);

/// A reply to one turn.
struct PackReply {
  std::string user, reasoning, content;
  int64_t tokens = 0;
  bool cut = false;    ///< by the budget or the context
  bool empty() const;  ///< nothing but white space beside the reasoning
};

struct PlayedPrompts {
  const SavedPrompts* prompts = nullptr;
  std::vector<PackReply> replies;
};

/// The model answers every turn, with its own earlier replies before it; reasoning is left out of what
/// comes later where the chat template leaves it out. Error where the model has no chat template.
PlayedPrompts play(const SavedPrompts& prompts, TaskModel& model, const TaskSampling& sampling);

/// To be read: each turn and reply, and what is empty or cut; then how many there were.
std::string pack_text(const std::vector<PlayedPrompts>& all);
/// A list of {"name", "messages": [...], "replies": [{"tokens", "cut"}]}, messages as `ingot finetune`
/// reads them.
TaskJson pack_json(const std::vector<PlayedPrompts>& all);

}  // namespace ingot
