// See think_switch.h.
#include "eval/think_switch.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "eval/requests.h"

namespace ingot {

std::vector<ChatTurn> chat_turns(const Task& task, size_t row) {
  const TaskChat& chat = task.config().chat;
  std::vector<ChatTurn> turns;
  if (!chat.system.empty()) turns.push_back({"system", chat.system});
  if (chat.messages.empty()) {
    turns.push_back({"user", task.context(row)});
    return turns;
  }
  const TaskJson& list = row_field(task.rows()[row], {chat.messages}, task.where(row));
  const auto wrong = [&](const std::string& what) {
    throw Error(fmt::format("{}: '{}' {}", task.where(row), chat.messages, what),
                "write a list of texts, which the user says in turn, or of {\"role\", \"content\"}");
  };
  if (!list.is_array() || list.empty()) wrong("is no list, or an empty one");
  for (const TaskJson& m : list) {
    if (m.is_string())
      turns.push_back({"user", m.get<std::string>()});
    else if (m.is_object() && m.contains("role") && m.contains("content") && m["role"].is_string() &&
             m["content"].is_string())
      turns.push_back({m["role"].get<std::string>(), m["content"].get<std::string>()});
    else
      wrong("holds something else than messages");
  }
  return turns;
}

bool well_formed(const Answer& answer, const ParsedAnswer& parsed) {
  return !answer.cut && !python_strip(parsed.content).empty();
}

namespace {

double true_share(const std::vector<bool>& of) {
  return static_cast<double>(std::count(of.begin(), of.end(), true)) / static_cast<double>(of.size());
}

}  // namespace

double SwitchOutcome::share() const {
  return true_share(followed);
}
double SwitchOutcome::formed_share() const {
  return true_share(formed);
}
TaskJson SwitchOutcome::arguments() const {
  TaskJson list = TaskJson::array();
  for (const std::string& p : prompts) list.push_back(TaskJson::array({p}));
  return list;
}
TaskJson SwitchOutcome::texts() const {
  TaskJson list = TaskJson::array();
  for (const std::string& r : replies) list.push_back(TaskJson::array({r}));
  return list;
}
TaskJson SwitchOutcome::modes() const {
  TaskJson list = TaskJson::array();
  for (size_t t = 0; t < thinks.size(); ++t)
    list.push_back(
        fmt::format("{}: {}", thinks[t] ? "/think" : "/no_think", followed[t] ? "followed" : "ignored"));
  return list;
}

SwitchOutcome run_think_switch(const Task& task, size_t row, TaskModel& model) {
  TaskSampling sampling = task.config().sampling;
  sampling.samples = 1;
  const Random random(static_cast<uint64_t>(sampling.seed), RandomPurpose::sampling, row);
  SwitchOutcome out;
  std::vector<ChatTurn> so_far;
  for (const ChatTurn& turn : chat_turns(task, row)) {
    if (turn.role != "user") {
      if (turn.role != "assistant")
        so_far.push_back(turn);  // the model's own replies stand in for written ones
      continue;
    }
    const bool think = random.below(out.thinks.size(), 2) == 1;
    so_far.push_back({"user", turn.content + (think ? " /think" : " /no_think")});
    const ChatPrompt prompt = model.chat_prompt(so_far, ThinkingMode::automatic);
    bool cut = false;
    const AnswerRequest request{answer_prompt(model, prompt.ids, sampling.max_tokens, task.where(row), cut),
                                row * 1000 + out.thinks.size(), prompt.in_thinking};
    const Answer answer = model.answer({&request, 1}, sampling).at(0).at(0);
    const ParsedAnswer parsed = model.parse_answer(answer.text, prompt.in_thinking);
    const bool thought = !python_strip(parsed.reasoning).empty();
    out.prompts.push_back(prompt.text);
    out.replies.push_back(answer.text);
    out.answers.push_back(answer);
    out.thinks.push_back(think);
    out.followed.push_back(thought == think);
    out.formed.push_back(well_formed(answer, parsed));
    so_far.push_back({"assistant", parsed.content});
  }
  if (out.thinks.empty()) fail("{}: the conversation has no message of the user", task.where(row));
  return out;
}

}  // namespace ingot
