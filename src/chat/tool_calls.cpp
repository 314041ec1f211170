// See tool_calls.h: JSON, Python and XML-like calls, and JSON between marks (DeepSeek, Mistral, GPT-OSS).
#include "chat/tool_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/utf8.h"

namespace ingot::chat {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::vector<ToolCall>;

std::optional<Json> parse_json_text(std::string_view text) {
  try {
    require_shallow_json(text, "a tool call");
    Json j = Json::parse(text, nullptr, false);
    if (j.is_discarded()) return std::nullopt;
    return j;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string_view trimmed(std::string_view s) {
  const auto space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!s.empty() && space(s.front())) s.remove_prefix(1);
  while (!s.empty() && space(s.back())) s.remove_suffix(1);
  return s;
}

/// {"name": ..., "arguments" or "parameters": {...}}
std::optional<ToolCall> call_of_json(const Json& j) {
  if (!j.is_object() || !j.contains("name") || !j["name"].is_string()) return std::nullopt;
  const char* const key = j.contains("arguments") ? "arguments" : "parameters";
  ToolCall call;
  call.name = j["name"].get<std::string>();
  call.arguments = "{}";
  if (!j.contains(key)) return call;
  const Json& arguments = j[key];
  if (arguments.is_object()) {
    call.arguments = arguments.dump();
  } else {
    if (!arguments.is_string()) return std::nullopt;
    const auto inner = parse_json_text(arguments.get_ref<const std::string&>());
    if (!inner || !inner->is_object()) return std::nullopt;
    call.arguments = inner->dump();
  }
  return call;
}

/// Where the JSON value that begins at `begin` ends; npos if it does not.
size_t end_of_json(std::string_view s, size_t begin) {
  int depth = 0;
  bool inside = false;
  for (size_t i = begin; i < s.size(); ++i) {
    if (inside) {
      if (s[i] == '\\')
        ++i;
      else if (s[i] == '"')
        inside = false;
    } else if (s[i] == '"') {
      inside = true;
    } else if (s[i] == '{' || s[i] == '[') {
      ++depth;
    } else if (s[i] == '}' || s[i] == ']') {
      if (--depth == 0) return i + 1;
    }
  }
  return std::string_view::npos;
}

/// Objects one after another; Llama writes ';' between several.
std::optional<Calls> json_calls(std::string_view body, bool several) {
  Calls out;
  body = trimmed(body);
  while (!body.empty()) {
    const size_t end = body.front() == '{' ? end_of_json(body, 0) : std::string_view::npos;
    if (end == std::string_view::npos) return std::nullopt;
    const auto j = parse_json_text(body.substr(0, end));
    const auto call = j ? call_of_json(*j) : std::nullopt;
    if (!call) return std::nullopt;
    out.push_back(*call);
    body = trimmed(body.substr(end));
    if (!body.empty() && !several) return std::nullopt;
    if (body.starts_with(';')) body = trimmed(body.substr(1));
  }
  if (out.empty()) return std::nullopt;
  return out;
}

/// Takes `mark` and blanks behind it off the front of `s`.
bool take_mark(std::string_view& s, std::string_view mark) {
  if (!s.starts_with(mark)) return false;
  s = trimmed(s.substr(mark.size()));
  return true;
}

/// The call of `name` with the JSON object that `s` begins with, which is taken off.
std::optional<ToolCall> take_arguments(std::string_view& s, std::string_view name) {
  const size_t end = s.starts_with('{') ? end_of_json(s, 0) : std::string_view::npos;
  if (name.empty() || end == std::string_view::npos) return std::nullopt;
  const auto arguments = parse_json_text(s.substr(0, end));
  if (!arguments) return std::nullopt;
  s = trimmed(s.substr(end));
  return ToolCall{"", std::string(name), arguments->dump()};
}

/// V3.1 writes NAME, the separator and JSON; V3 and R1 the type, the separator, NAME and JSON in a fence.
std::optional<Calls> deepseek_calls(std::string_view body) {
  static constexpr std::string_view kSeparator = "<｜tool▁sep｜>", kFence = "```json";
  Calls out;
  body = trimmed(body);
  while (take_mark(body, "<｜tool▁call▁begin｜>")) {
    const size_t separator = body.find(kSeparator);
    if (separator == std::string_view::npos) return std::nullopt;
    std::string_view name = trimmed(body.substr(0, separator));
    take_mark(body = body.substr(separator), kSeparator);
    const bool fenced = !body.starts_with('{');
    if (fenced) {
      const size_t fence = body.find(kFence);
      if (fence == std::string_view::npos) return std::nullopt;
      name = trimmed(body.substr(0, fence));
      take_mark(body = body.substr(fence), kFence);
    }
    auto call = take_arguments(body, name);
    if (!call || (fenced && !take_mark(body, "```")) || !take_mark(body, "<｜tool▁call▁end｜>"))
      return std::nullopt;
    out.push_back(std::move(*call));
  }
  if (out.empty() || !body.empty()) return std::nullopt;
  return out;
}

/// A list of calls, or NAME[ARGS]{...}, in which an id may stand behind the name; several one after another.
std::optional<Calls> mistral_calls(std::string_view body) {
  static constexpr std::string_view kArguments = "[ARGS]";
  Calls out;
  body = trimmed(body);
  while (take_mark(body, "[TOOL_CALLS]")) {
    if (body.starts_with('[')) {
      const size_t end = end_of_json(body, 0);
      const auto list = parse_json_text(body.substr(0, end));
      if (end == std::string_view::npos || !list || list->empty()) return std::nullopt;
      for (const Json& j : *list) {
        auto call = call_of_json(j);
        if (!call) return std::nullopt;
        out.push_back(std::move(*call));
      }
      body = trimmed(body.substr(end));
    } else {
      const size_t at = body.find(kArguments);
      if (at == std::string_view::npos) return std::nullopt;
      const std::string_view before = body.substr(0, at);
      take_mark(body = body.substr(at), kArguments);
      auto call = take_arguments(body, trimmed(before.substr(0, before.find("[CALL_ID]"))));
      if (!call) return std::nullopt;
      out.push_back(std::move(*call));
    }
  }
  if (out.empty() || !body.empty()) return std::nullopt;
  return out;
}

/// A message with its header, without what ends it.
std::optional<Calls> harmony_calls(std::string_view body) {
  static constexpr std::string_view kMessage = "<|message|>", kFunctions = "functions.";
  const size_t at = body.find(kMessage);
  if (at == std::string_view::npos) return std::nullopt;
  const ChannelHeader header = read_channel_header(body.substr(0, at));
  body = trimmed(body.substr(at + kMessage.size()));
  if (!header.assistants || !header.to.starts_with(kFunctions)) return std::nullopt;
  auto call = take_arguments(body, header.to.substr(kFunctions.size()));
  if (!call || !body.empty()) return std::nullopt;
  return Calls{std::move(*call)};
}

/// Calls as Python writes them, with literals as values.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : s_(text) {}

  std::optional<Calls> calls() {
    Calls out;
    for (skip(true); at_ < s_.size(); skip(true)) {
      auto call = this->call();
      if (!call) return std::nullopt;
      out.push_back(std::move(*call));
      if (at_ < s_.size() && s_[at_] == ';') ++at_;
    }
    if (out.empty()) return std::nullopt;
    return out;
  }

 private:
  static constexpr int kDepth = 64;

  void skip(bool lines = true) {
    while (at_ < s_.size() &&
           (s_[at_] == ' ' || s_[at_] == '\t' || (lines && (s_[at_] == '\n' || s_[at_] == '\r'))))
      ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string word(bool dots) {
    const size_t begin = at_;
    const auto part = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (dots && c == '.') ||
             (at_ > begin && c >= '0' && c <= '9');
    };
    while (at_ < s_.size() && part(s_[at_])) ++at_;
    return std::string(s_.substr(begin, at_ - begin));
  }

  std::optional<ToolCall> call() {
    ToolCall out;
    out.name = word(true);
    if (out.name.ends_with(".call")) out.name.resize(out.name.size() - 5);
    if (out.name.empty() || !take('(')) return std::nullopt;
    Json arguments = Json::object();
    while (!take(')')) {
      if (!arguments.empty() && !take(',')) return std::nullopt;
      skip();
      if (take(')')) break;
      const std::string key = word(false);
      Json v;
      if (key.empty() || !take('=') || !value(v, 0)) return std::nullopt;
      arguments[key] = std::move(v);
    }
    out.arguments = arguments.dump();
    return out;
  }

  bool value(Json& out, int depth) {
    skip();
    if (depth > kDepth || at_ >= s_.size()) return false;
    const char c = s_[at_];
    if (c == '"' || c == '\'') return string(out);
    if (c == '[' || c == '(') return list(out, c == '[' ? ']' : ')', depth);
    if (c == '{') return dict(out, depth);
    if (c == '-' || (c >= '0' && c <= '9')) return number(out);
    const std::string w = word(false);
    if (w == "True")
      out = true;
    else if (w == "False")
      out = false;
    else if (w == "None")
      out = nullptr;
    else
      return false;
    return true;
  }

  bool number(Json& out) {
    const size_t begin = at_;
    while (at_ < s_.size() && std::string_view("+-.eE0123456789").find(s_[at_]) != std::string_view::npos)
      ++at_;
    out = Json::parse(s_.substr(begin, at_ - begin), nullptr, false);
    return out.is_number();
  }

  bool list(Json& out, char close, int depth) {
    ++at_;
    out = Json::array();
    while (!take(close)) {
      if (!out.empty() && !take(',')) return false;
      if (take(close)) break;
      Json item;
      if (!value(item, depth + 1)) return false;
      out.push_back(std::move(item));
    }
    return true;
  }

  bool dict(Json& out, int depth) {
    ++at_;
    out = Json::object();
    while (!take('}')) {
      if (!out.empty() && !take(',')) return false;
      if (take('}')) break;
      Json key, item;
      if (!value(key, depth + 1) || !key.is_string() || !take(':') || !value(item, depth + 1)) return false;
      out[key.get<std::string>()] = std::move(item);
    }
    return true;
  }

  bool string(Json& out) {
    const char quote = s_[at_++];
    std::string text;
    while (at_ < s_.size() && s_[at_] != quote) {
      if (s_[at_] != '\\') {
        text += s_[at_++];
      } else if (!escape(text)) {
        return false;
      }
    }
    if (at_ >= s_.size()) return false;
    ++at_;
    out = std::move(text);
    return true;
  }

  bool escape(std::string& text) {
    static constexpr std::string_view kLetters = "ntrbfav0\\'\"", kMeaning("\n\t\r\b\f\a\v\0\\'\"", 11);
    if (++at_ >= s_.size()) return false;
    const char c = s_[at_++];
    if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
      text += kMeaning[i];
      return true;
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0 || at_ + digits > s_.size()) {
      text += '\\';
      text += c;
      return digits == 0;
    }
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const size_t v = std::string_view("0123456789abcdef").find(static_cast<char>(s_[at_] | 0x20));
      if (v == std::string_view::npos) return false;
      code = code * 16 + static_cast<uint32_t>(v);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    utf8::append(text, code);
    return true;
  }

  std::string_view s_;
  size_t at_ = 0;
};

/// The declared type of an argument: "string", ...; "" if no schema tells.
std::string declared_type(std::string_view tools, const std::string& function, const std::string& argument) {
  const auto list = parse_json_text(tools);
  if (!list || !list->is_array()) return "";
  for (const Json& tool : *list) {
    const Json& f = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!f.is_object() || f.value("name", Json()) != Json(function)) continue;
    const Json type = f.value(Json::json_pointer("/parameters/properties"), Json::object());
    if (!type.is_object() || !type.contains(argument) || !type[argument].is_object()) return "";
    const Json found = type[argument].value("type", Json());
    return found.is_string() ? found.get<std::string>() : "";
  }
  return "";
}

/// <function=NAME><parameter=KEY>value</parameter>...</function>
std::optional<Calls> xml_calls(std::string_view body, std::string_view tools) {
  static constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=";
  Calls out;
  body = trimmed(body);
  while (!body.empty()) {
    const size_t name_end = body.find('>');
    if (!body.starts_with(kFunction) || name_end == std::string_view::npos) return std::nullopt;
    ToolCall call;
    call.name = body.substr(kFunction.size(), name_end - kFunction.size());
    Json arguments = Json::object();
    body = trimmed(body.substr(name_end + 1));
    while (body.starts_with(kParameter)) {
      const size_t key_end = body.find('>'), end = body.find("</parameter>");
      if (key_end == std::string_view::npos || end == std::string_view::npos || end < key_end)
        return std::nullopt;
      const std::string key(body.substr(kParameter.size(), key_end - kParameter.size()));
      std::string_view value = body.substr(key_end + 1, end - key_end - 1);
      if (value.starts_with('\n')) value.remove_prefix(1);
      if (value.ends_with('\n')) value.remove_suffix(1);
      const bool is_string = declared_type(tools, call.name, key) == "string";
      const auto json = is_string ? std::nullopt : parse_json_text(value);
      arguments[key] = json && !json->is_string() ? *json : Json(std::string(value));
      body = trimmed(body.substr(end + std::string_view("</parameter>").size()));
    }
    if (call.name.empty() || !body.starts_with("</function>")) return std::nullopt;
    call.arguments = arguments.dump();
    out.push_back(std::move(call));
    body = trimmed(body.substr(std::string_view("</function>").size()));
  }
  if (out.empty()) return std::nullopt;
  return out;
}

}  // namespace

ChannelHeader read_channel_header(std::string_view header) {
  const auto word_behind = [&](std::string_view mark) {
    const size_t at = header.find(mark);
    if (at == std::string_view::npos) return std::string_view();
    const std::string_view rest = header.substr(at + mark.size());
    return rest.substr(0, std::min(rest.find_first_of(" \n\r\t<"), rest.size()));
  };
  const std::string_view role = word_behind("<|start|>");
  return {word_behind("<|channel|>"), word_behind("to="), role.empty() || role == "assistant"};
}

std::optional<std::string> compact_json(std::string_view text) {
  const auto j = parse_json_text(text);
  if (!j) return std::nullopt;
  return j->dump();
}

std::optional<std::vector<ToolCall>> parse_tool_calls(ToolStyle style, std::string_view body,
                                                      std::string_view tools) {
  if (utf8::valid_prefix(body) != body.size()) return std::nullopt;  // JSON could not hold it
  switch (style) {
    case ToolStyle::hermes:
      return json_calls(body, false);
    case ToolStyle::llama3:
      return trimmed(body).starts_with('{') ? json_calls(body, true) : PythonReader(body).calls();
    case ToolStyle::smollm_python:
      return PythonReader(body).calls();
    case ToolStyle::zaya_xml:
      return xml_calls(body, tools);
    case ToolStyle::deepseek:
      return deepseek_calls(body);
    case ToolStyle::mistral:
      return mistral_calls(body);
    case ToolStyle::harmony:
      return harmony_calls(body);
    case ToolStyle::none:
      break;
  }
  return std::nullopt;
}

bool is_cut_inside_value(ToolStyle style, std::string_view body) {
  if (style == ToolStyle::zaya_xml) {
    const size_t open = body.rfind("<parameter="), close = body.rfind("</parameter>");
    return open != std::string_view::npos && (close == std::string_view::npos || close < open);
  }
  char quote = '\0';
  for (size_t i = 0; i < body.size(); ++i) {
    if (quote != '\0') {
      if (body[i] == '\\')
        ++i;
      else if (body[i] == quote)
        quote = '\0';
    } else if (body[i] == '"' || (style == ToolStyle::smollm_python && body[i] == '\'')) {
      quote = body[i];
    }
  }
  return quote != '\0';
}

}  // namespace ingot::chat
