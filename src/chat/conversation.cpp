// See conversation.h.
#include "chat/conversation.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/utf8.h"

namespace ingot::chat {
namespace {

using Json = nlohmann::ordered_json;

Json parse_row(std::string_view text, const std::string& where) {
  require_shallow_json(text, where);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: no valid JSON: {}", where, e.what()));
  }
}

const Json* field(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// Reads the messages of one row; `where_` names the row.
class RowReader {
 public:
  explicit RowReader(std::string where) : where_(std::move(where)) {}

  std::vector<Message> messages(const Json& list, const std::string& name) {
    if (!list.is_array()) fault(name, fmt::format("expected a list of messages, found {}", list.type_name()));
    if (list.empty()) fault(name, "the list is empty, expected at least one message");
    std::vector<Message> out;
    for (size_t i = 0; i < list.size(); ++i) out.push_back(message(list[i], fmt::format("{}[{}]", name, i)));
    return out;
  }

  /// {"from": "human", "value": "..."}: ShareGPT's.
  std::vector<Message> share_messages(const Json& list) {
    if (!list.is_array() || list.empty()) fault("conversations", "expected a list of at least one message");
    std::vector<Message> out;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string at = fmt::format("conversations[{}]", i);
      if (list[i].is_object() && list[i].contains("role")) {
        out.push_back(message(list[i], at));
        continue;
      }
      if (!list[i].is_object()) fault(at, fmt::format("expected an object, found {}", list[i].type_name()));
      const std::string from = text(list[i], "from", at), value = text(list[i], "value", at);
      Message m = text_message(share_role(from, at), value);
      if (from == "function_call") {
        m.content = std::nullopt;
        m.tool_calls = share_calls(value, at + ".value");
      }
      if (const Json* weight = field(list[i], "weight")) m.in_loss = weight_of(*weight, at);
      out.push_back(std::move(m));
    }
    return out;
  }

  std::string tools(const Json& given) {
    const std::string text = given.is_string() ? given.get<std::string>() : given.dump();
    if (text.empty()) return "";
    const std::string checked = checked_tools(text, where_ + ": tools");
    return checked == "[]" ? "" : checked;
  }

  [[noreturn]] void fault(const std::string& at, const std::string& what,
                          const std::string& hint = {}) const {
    throw Error(fmt::format("{}: {}: {}", where_, at, what), hint);
  }

 private:
  std::string text(const Json& object, const char* name, const std::string& at) const {
    const Json* v = field(object, name);
    if (v == nullptr) fault(at, fmt::format("'{}' is missing", name));
    if (!v->is_string()) fault(at, fmt::format("'{}' is {}, expected a string", name, v->type_name()));
    return v->get<std::string>();
  }

  static bool is_role(const std::string& role) {
    return !role.empty() && role.size() <= 64 && std::all_of(role.begin(), role.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
             c == '-' || c == '.';
    });
  }

  std::string share_role(const std::string& from, const std::string& at) const {
    for (const char* name : {"human", "user"})
      if (from == name) return "user";
    for (const char* name : {"gpt", "assistant", "chatgpt", "model", "bot", "function_call"})
      if (from == name) return "assistant";
    for (const char* name : {"tool", "observation", "function_response", "function"})
      if (from == name) return "tool";
    if (from == "system") return "system";
    fault(at, fmt::format("'from' is '{}', expected human, gpt, system, function_call or observation", from));
  }

  std::vector<ToolCall> share_calls(const std::string& value, const std::string& at) const {
    const Json j = parse_row(value, where_ + ": " + at);
    std::vector<ToolCall> out;
    for (const Json& one : j.is_array() ? j : Json::array({j})) out.push_back(call(one, at));
    return out;
  }

  /// A text, or a list of text parts.
  std::string content(const Json& v, const std::string& at) const {
    if (v.is_string()) return v.get<std::string>();
    if (!v.is_array())
      fault(at, fmt::format("is {}, expected a string or a list of text parts", v.type_name()));
    std::string out;
    for (size_t i = 0; i < v.size(); ++i) {
      const Json* type = v[i].is_object() ? field(v[i], "type") : nullptr;
      const Json* text = v[i].is_object() ? field(v[i], "text") : nullptr;
      if (type != nullptr && *type != "text")
        fault(fmt::format("{}[{}]", at, i),
              fmt::format("has type {}; only parts of type \"text\" are supported", type->dump()));
      if (text == nullptr || !text->is_string())
        fault(fmt::format("{}[{}]", at, i), "'text' is missing or no string");
      out += text->get<std::string>();
    }
    return out;
  }

  bool weight_of(const Json& weight, const std::string& at) const {
    if (!weight.is_number() || (weight != 0 && weight != 1))
      fault(at, fmt::format("'weight' is {}, expected 0 or 1", weight.dump()));
    return weight == 1;
  }

  ToolCall call(const Json& given, const std::string& at) const {
    if (!given.is_object()) fault(at, fmt::format("expected an object, found {}", given.type_name()));
    const Json* inner = field(given, "function");
    const Json& f = inner != nullptr && inner->is_object() ? *inner : given;
    ToolCall out;
    out.name = text(f, "name", at);
    if (const Json* id = field(given, "id"); id != nullptr && id->is_string())
      out.id = id->get<std::string>();
    const Json* arguments = field(f, "arguments");
    if (arguments == nullptr) arguments = field(f, "parameters");
    if (arguments == nullptr) {
      out.arguments = "{}";
    } else if (arguments->is_object()) {
      out.arguments = arguments->dump();
    } else if (arguments->is_string()) {
      out.arguments = arguments->get<std::string>();
      require_shallow_json(out.arguments, where_ + ": " + at + ".arguments");
      const Json parsed = Json::parse(out.arguments, nullptr, false);
      if (parsed.is_object()) out.arguments = parsed.dump();
    } else {
      fault(at,
            fmt::format("'arguments' is {}, expected an object or its JSON text", arguments->type_name()));
    }
    return out;
  }

  Message message(const Json& given, const std::string& at) {
    if (!given.is_object()) fault(at, fmt::format("expected an object, found {}", given.type_name()));
    Message m;
    m.role = text(given, "role", at);
    if (!is_role(m.role))
      fault(at, fmt::format("'role' is '{}', expected a word such as user, assistant, system, tool",
                            utf8::repair(m.role.substr(0, 60))));
    if (const Json* v = field(given, "content")) m.content = content(*v, at + ".content");
    for (const char* name : {"reasoning_content", "thinking", "reasoning"})
      if (const Json* v = field(given, name); v != nullptr && !m.reasoning_content)
        m.reasoning_content = content(*v, at + "." + name);
    if (const Json* calls = field(given, "tool_calls")) {
      if (!calls->is_array())
        fault(at, fmt::format("'tool_calls' is {}, expected a list", calls->type_name()));
      for (size_t i = 0; i < calls->size(); ++i)
        m.tool_calls.push_back(call((*calls)[i], fmt::format("{}.tool_calls[{}]", at, i)));
    }
    if (field(given, "tool_call_id") != nullptr) m.tool_call_id = text(given, "tool_call_id", at);
    if (field(given, "name") != nullptr) m.name = text(given, "name", at);
    if (const Json* weight = field(given, "weight")) m.in_loss = weight_of(*weight, at);
    if (!m.content && m.tool_calls.empty() && !(m.role == "assistant" && m.reasoning_content))
      fault(at,
            fmt::format("'content' of the {} is {}", m.role, given.contains("content") ? "null" : "missing"),
            "only an assistant's message with tool calls or reasoning may have none");
    if (!m.tool_calls.empty() && m.role != "assistant")
      fault(at, fmt::format("the {} has tool calls, only an assistant may", m.role));
    return m;
  }

  std::string where_;
};

}  // namespace

Message text_message(std::string role, std::string content) {
  Message m;
  m.role = std::move(role);
  m.content = std::move(content);
  return m;
}

std::string checked_tools(std::string_view json_list, const std::string& where) {
  const Json list = parse_row(json_list, where);
  if (!list.is_array())
    throw Error(fmt::format("{}: is {}, expected a list of function schemas", where, list.type_name()));
  for (size_t i = 0; i < list.size(); ++i) {
    const Json* function = list[i].is_object() ? field(list[i], "function") : nullptr;
    const Json& f = function != nullptr ? *function : list[i];
    const Json* name = f.is_object() ? field(f, "name") : nullptr;
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
      throw Error(fmt::format("{}[{}]: the schema has no name", where, i),
                  R"(a tool is {"type": "function", "function": {"name": ..., "parameters": {...}}})");
    if (const Json* p = field(f, "parameters"); p != nullptr && !p->is_object())
      throw Error(fmt::format("{}[{}]: 'parameters' is {}, expected a JSON schema (an object)", where, i,
                              p->type_name()));
  }
  return list.dump();
}

Conversation read_conversation(std::string_view row, const std::string& where) {
  const Json j = parse_row(row, where);
  RowReader reader(where);
  if (!j.is_object()) throw Error(fmt::format("{}: expected an object, found {}", where, j.type_name()));
  Conversation out;
  if (const Json* messages = field(j, "messages")) {
    out.messages = reader.messages(*messages, "messages");
  } else if (const Json* share = field(j, "conversations")) {
    out.messages = reader.share_messages(*share);
  } else if (const Json* prompt = field(j, "prompt"); prompt != nullptr && prompt->is_array()) {
    out.messages = reader.messages(*prompt, "prompt");
    for (Message& m : out.messages) m.in_loss = false;
    if (const Json* completion = field(j, "completion"))
      for (Message& m : reader.messages(*completion, "completion")) out.messages.push_back(std::move(m));
  } else {
    throw Error(fmt::format(
        "{}: the row is no conversation: it has none of 'messages', 'conversations', and a list 'prompt'",
        where));
  }
  if (const Json* system = field(j, "system"); system != nullptr && system->is_string() &&
                                               !system->get_ref<const std::string&>().empty() &&
                                               out.messages[0].role != "system")
    out.messages.insert(out.messages.begin(), text_message("system", system->get<std::string>()));
  if (const Json* tools = field(j, "tools")) out.tools = reader.tools(*tools);
  if (const Json* kwargs = field(j, "chat_template_kwargs")) {
    if (!kwargs->is_object())
      reader.fault("chat_template_kwargs", fmt::format("is {}, expected an object", kwargs->type_name()));
    out.kwargs = kwargs->dump();
  }
  return out;
}

std::vector<std::string> texts_of(const Conversation& conversation) {
  std::vector<std::string> out;
  for (const Message& m : conversation.messages) {
    if (m.reasoning_content) out.push_back(*m.reasoning_content);
    if (m.content) out.push_back(*m.content);
    for (const ToolCall& c : m.tool_calls) out.push_back(c.name + " " + c.arguments);
  }
  std::erase(out, "");
  return out;
}

bool is_conversation(std::string_view row) {
  try {
    require_shallow_json(row, "row");
  } catch (const Error&) {
    return false;
  }
  const Json j = Json::parse(row, nullptr, false);
  if (!j.is_object()) return false;
  const Json* prompt = field(j, "prompt");
  return field(j, "messages") != nullptr || field(j, "conversations") != nullptr ||
         (prompt != nullptr && prompt->is_array());
}

std::vector<Message> read_messages(std::string_view json_list, const std::string& where) {
  const Json j = parse_row(json_list, where);
  return RowReader(where).messages(j, "messages");
}

std::string write_conversation(const Conversation& conversation) {
  Json row = Json::object();
  row["messages"] = Json::array();
  for (const Message& m : conversation.messages) {
    Json out = {{"role", m.role}};
    if (m.content) out["content"] = *m.content;
    if (m.reasoning_content) out["reasoning_content"] = *m.reasoning_content;
    for (const ToolCall& c : m.tool_calls) {
      Json arguments = Json::parse(c.arguments, nullptr, false);
      if (!arguments.is_object()) arguments = c.arguments;
      Json call = Json::object();
      if (!c.id.empty()) call["id"] = c.id;
      call["type"] = "function";
      call["function"] = {{"name", c.name}, {"arguments", std::move(arguments)}};
      out["tool_calls"].push_back(std::move(call));
    }
    if (!m.tool_call_id.empty()) out["tool_call_id"] = m.tool_call_id;
    if (!m.name.empty()) out["name"] = m.name;
    if (!m.in_loss) out["weight"] = 0;
    row["messages"].push_back(std::move(out));
  }
  if (!conversation.tools.empty()) row["tools"] = Json::parse(conversation.tools);
  if (!conversation.kwargs.empty()) row["chat_template_kwargs"] = Json::parse(conversation.kwargs);
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ingot::chat
