// See prompt_pack.h.
#include "eval/prompt_pack.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/json_depth.h"
#include "eval/requests.h"

namespace ingot {
namespace {

constexpr const char* kRow = "write rows like {\"name\": \"greeting\", \"turns\": [\"Hello!\"]}";

const std::string& text_of(const TaskJson& value, const std::string& where, const char* field) {
  if (!value.is_string()) throw Error(fmt::format("{}: '{}' is no text", where, field), kRow);
  return value.get_ref<const std::string&>();
}

SavedPrompts read_row(const std::string& line, std::string where, size_t number) {
  require_shallow_json(line, where);
  const TaskJson row = TaskJson::parse(line, nullptr, false);
  if (!row.is_object()) throw Error(fmt::format("{}: the line is no JSON object", where), kRow);
  SavedPrompts p{fmt::format("row {}", number), std::move(where), {}, {}, ThinkingMode::automatic};
  for (const auto& [key, value] : row.items()) {
    if (key == "name") {
      p.name = text_of(value, p.where, "name");
    } else if (key == "system") {
      p.system = text_of(value, p.where, "system");
    } else if (key == "thinking") {
      p.thinking = enum_from<ThinkingMode>(text_of(value, p.where, "thinking"), p.where + ": thinking");
    } else if (key == "turns" && value.is_array()) {
      for (const TaskJson& turn : value) p.turns.push_back(text_of(turn, p.where, "turns"));
    } else {
      throw Error(fmt::format("{}: '{}' is no field of saved prompts, or no list", p.where, key), kRow);
    }
  }
  if (p.turns.empty()) throw Error(fmt::format("{}: 'turns' is absent or empty", p.where), kRow);
  if (p.thinking == ThinkingMode::switched)
    throw Error(fmt::format("{}: thinking = switched belongs to tasks", p.where), "give default, on or off");
  return p;
}

std::string indented(const std::string& text) {
  std::string out;
  for (const char c : text) (out += c) += c == '\n' ? "             " : "";
  return out;
}

}  // namespace

std::vector<SavedPrompts> read_prompt_pack(const std::string& text, const std::string& path) {
  std::vector<SavedPrompts> all;
  std::istringstream lines(text);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    all.push_back(read_row(line, fmt::format("{}:{}", path, number), number));
  }
  if (all.empty()) throw Error(fmt::format("'{}' has no saved prompts", path), kRow);
  return all;
}

bool PackReply::empty() const {
  return content.find_first_not_of(" \t\r\n") == std::string::npos;
}

PlayedPrompts play(const SavedPrompts& prompts, TaskModel& model, const TaskSampling& sampling) {
  PlayedPrompts out{&prompts, {}};
  std::vector<ChatTurn> turns;
  if (!prompts.system.empty()) turns.push_back({"system", prompts.system});
  for (const std::string& user : prompts.turns) {
    turns.push_back({"user", user});
    const ChatPrompt prompt = model.chat_prompt(turns, prompts.thinking);
    PackReply reply{.user = user};
    const AnswerRequest request{
        answer_prompt(model, prompt.ids, sampling.max_tokens, prompts.where, reply.cut), out.replies.size(),
        prompt.in_thinking};
    const Answer answer = model.answer({&request, 1}, sampling).at(0).at(0);
    const ParsedAnswer parsed = model.parse_answer(answer.text, prompt.in_thinking);
    reply.reasoning = parsed.reasoning, reply.content = parsed.content;
    reply.tokens = answer.tokens, reply.cut = reply.cut || answer.cut;
    turns.push_back({"assistant", reply.content});
    out.replies.push_back(std::move(reply));
  }
  return out;
}

std::string pack_text(const std::vector<PlayedPrompts>& all) {
  std::string text;
  std::vector<int64_t> lengths;
  int64_t empty = 0, cut = 0;
  for (const PlayedPrompts& played : all) {
    text += played.prompts->name + "\n";
    const auto line = [&](const char* who, const std::string& what) {
      text += fmt::format("  {:<9}  {}\n", who, indented(what));
    };
    if (!played.prompts->system.empty()) line("system", played.prompts->system);
    for (const PackReply& r : played.replies) {
      line("user", r.user);
      if (!r.reasoning.empty()) line("thinking", r.reasoning);
      line("assistant", r.empty() ? "(an empty answer)" : r.content);
      if (r.cut) line("", "(cut: the budget or the context is used up)");
      lengths.push_back(r.tokens), empty += r.empty(), cut += r.cut;
    }
    text += "\n";
  }
  std::sort(lengths.begin(), lengths.end());
  return text + fmt::format("{} conversations, {} answers: {} empty, {} cut; {} tokens in the median\n",
                            all.size(), lengths.size(), empty, cut,
                            lengths.empty() ? 0 : lengths[lengths.size() / 2]);
}

TaskJson pack_json(const std::vector<PlayedPrompts>& all) {
  TaskJson list = TaskJson::array();
  for (const PlayedPrompts& played : all) {
    TaskJson messages = TaskJson::array(), replies = TaskJson::array();
    if (!played.prompts->system.empty())
      messages.push_back({{"role", "system"}, {"content", played.prompts->system}});
    for (const PackReply& r : played.replies) {
      messages.push_back({{"role", "user"}, {"content", r.user}});
      TaskJson reply = {{"role", "assistant"}, {"content", r.content}};
      if (!r.reasoning.empty()) reply["reasoning_content"] = r.reasoning;
      messages.push_back(std::move(reply));
      replies.push_back({{"tokens", r.tokens}, {"cut", r.cut}});
    }
    list.push_back({{"name", played.prompts->name}, {"messages", messages}, {"replies", replies}});
  }
  return list;
}

}  // namespace ingot
