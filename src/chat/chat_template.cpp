// See chat_template.h: rendering. Ids are made in encode.cpp, files are read in template_files.cpp.
#include "chat/chat_template.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "chat/chat_template_impl.h"

namespace ingot::chat {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Origin;
using jinja::Value;

Origin origin_of(Source source, int32_t message) {
  return static_cast<Origin>(source) | static_cast<Origin>(message + 1) << 4;
}

Value json_value(const std::string& text, Origin origin, const std::string& where) {
  require_shallow_json(text, where);
  try {
    return Value::from_json(nlohmann::ordered_json::parse(text), origin);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("{}: no valid JSON: {}", where, e.what()));
  } catch (const jinja::Fault& fault) {
    throw Error(fmt::format("{}: {}", where, fault.message), fault.hint);
  }
}

Value tool_calls_value(const Message& m, int32_t index) {
  const Origin origin = origin_of(Source::tool_call, index);
  List calls;
  for (const ToolCall& c : m.tool_calls) {
    Dict function, call;
    function.set(Value::text("name", origin), Value::text(c.name, origin));
    const bool object = nlohmann::ordered_json::parse(c.arguments, nullptr, false).is_object();
    function.set(Value::text("arguments", origin),
                 object ? json_value(c.arguments, origin,
                                     fmt::format("messages[{}]: arguments of '{}'", index, c.name))
                        : Value::text(c.arguments, origin));
    if (!c.id.empty()) call.set(Value::text("id", origin), Value::text(c.id, origin));
    call.set(Value::text("type", origin), Value::text("function", origin));
    call.set(Value::text("function", origin), Value::dict(std::move(function), origin));
    calls.push_back(Value::dict(std::move(call), origin));
  }
  return Value::list(std::move(calls), origin);
}

/// A message as templates see it. Where it has reasoning, "thinking" is another name of it, as in
/// transformers.
Value message_value(const Message& m, int32_t index) {
  const bool assistant = m.role == "assistant";
  const Source source = assistant                                     ? Source::content
                        : m.role == "system" || m.role == "developer" ? Source::system
                        : m.role == "tool" || m.role == "ipython"     ? Source::tool
                                                                      : Source::user;
  const Origin origin = origin_of(source, index);
  Dict out;
  if (m.reasoning_content)
    out.set(Value::text("thinking"), Value::text(*m.reasoning_content, origin_of(Source::reasoning, index)));
  out.set(Value::text("role"), Value::text(m.role));
  if (m.content) out.set(Value::text("content"), Value::text(*m.content, origin));
  if (m.reasoning_content)
    out.set(Value::text("reasoning_content"),
            Value::text(*m.reasoning_content, origin_of(Source::reasoning, index)));
  if (!m.tool_calls.empty()) out.set(Value::text("tool_calls"), tool_calls_value(m, index));
  if (!m.tool_call_id.empty()) out.set(Value::text("tool_call_id"), Value::text(m.tool_call_id, origin));
  if (!m.name.empty()) out.set(Value::text("name"), Value::text(m.name, origin));
  return Value::dict(std::move(out));
}

using Variables = std::vector<std::pair<std::string, Value>>;

void add_kwargs(Variables& out, const std::string& kwargs, const std::string& where) {
  if (kwargs.empty()) return;
  const Value v = json_value(kwargs, origin_of(Source::option, -1), where);
  if (!v.is_dict()) throw Error(fmt::format("{}: expected a JSON object", where));
  for (const auto& [key, value] : v.as_dict().items) out.emplace_back(key.as_text().bytes(), value);
}

Variables variables_of(const Conversation& c, const RenderOptions& options, const NamedTokens& tokens) {
  Variables out;
  for (const auto& [name, content] : tokens) out.emplace_back(name, Value::text(content));
  List messages;
  for (size_t i = 0; i < c.messages.size(); ++i)
    messages.push_back(message_value(c.messages[i], static_cast<int32_t>(i)));
  out.emplace_back("messages", Value::list(std::move(messages)));
  out.emplace_back(
      "tools", c.tools.empty() ? Value::none() : json_value(c.tools, origin_of(Source::tools, -1), "tools"));
  out.emplace_back("documents", Value::none());
  out.emplace_back("add_generation_prompt", Value::boolean(options.add_generation_prompt));
  add_kwargs(out, c.kwargs, "chat_template_kwargs");
  if (options.enable_thinking) out.emplace_back("enable_thinking", Value::boolean(*options.enable_thinking));
  add_kwargs(out, options.kwargs, "template arguments");
  return out;
}

/// A template that reads a message's `tool_calls` may be another one than that for plain conversations.
jinja::Text render_text(const ChatTemplate::Impl& t, const Conversation& c, const RenderOptions& options) {
  const int64_t now = options.now ? *options.now : static_cast<int64_t>(std::time(nullptr));
  const jinja::Template& used = t.for_tools && !c.tools.empty() ? *t.for_tools : t.plain;
  return used.render(variables_of(c, options, t.tokens), now);
}

/// What `with` adds behind what it shares with `without`.
std::string added_text(const std::string& with, const std::string& without) {
  return with.starts_with(without) ? with.substr(without.size()) : "";
}

/// The generation prompt that follows these messages; "" if the template refuses them.
std::string opening_of(const ChatTemplate::Impl& t, const Conversation& c, RenderOptions options) {
  try {
    options.add_generation_prompt = true;
    const std::string with = render_text(t, c, options).bytes();
    options.add_generation_prompt = false;
    return added_text(with, render_text(t, c, options).bytes());
  } catch (const Error&) {
    return "";
  }
}

/// What the template writes behind the last message before message `i`, where generation of it starts;
/// nothing if it refuses the messages before.
std::optional<std::string> prompt_tail(const ChatTemplate::Impl& t, const Conversation& c, int32_t i,
                                       RenderOptions options) {
  if (i == 0) return std::nullopt;
  try {
    Conversation before = c;
    before.messages.resize(static_cast<size_t>(i));
    options.add_generation_prompt = true;
    const jinja::Text prompt = render_text(t, before, options);
    size_t begin = 0, end = 0;
    for (const auto& run : prompt.runs()) {
      if ((run.origin & 15) != static_cast<Origin>(Source::template_text)) begin = run.end;
      end = run.end;
    }
    return prompt.bytes().substr(begin, end - begin);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Texts that end a turn in formats that are in use; the template's own is found by a probe.
constexpr const char* kTurnEnds[] = {
    "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>", "<end_of_turn>",
    "<|end|>",       "<|return|>",      "<|call|>",   "<｜end▁of▁sentence｜>",
    "<|endoftext|>", "<|end_of_text|>", "</s>"};

/// Behind an assistant's content: the control text that ends its turn.
std::string end_in(std::string_view behind, const NamedTokens& tokens) {
  size_t best = std::string_view::npos;
  std::string found;
  const auto look_for = [&](const std::string& text) {
    const size_t at = text.empty() ? std::string_view::npos : behind.find(text);
    if (at < best) {
      best = at;
      found = text;
    }
  };
  for (const char* end : kTurnEnds) look_for(end);
  for (const auto& [name, content] : tokens)
    if (name == "eos_token") look_for(content);
  if (!found.empty()) return found;
  const size_t open = behind.find_first_not_of(" \n"), close = behind.find('>');
  if (open != std::string_view::npos && behind[open] == '<' && close != std::string_view::npos)
    return std::string(behind.substr(open, close - open + 1));
  return "";
}

/// Of a template that writes no generation prompt: what it writes behind the last message, where generation
/// starts. "" if that is not what `before` the assistant's text begins with.
std::string end_of_prompt(const ChatTemplate::Impl& t, const Conversation& question, std::string_view message,
                          std::string_view before) {
  try {
    const std::string text = render_text(t, question, {}).bytes();
    const size_t at = text.find(message);
    if (at == std::string::npos) return "";
    std::string tail = text.substr(at + message.size());
    return before.starts_with(tail) ? tail : "";
  } catch (const Error&) {
    return "";
  }
}

/// Finds the borders of turns from a small conversation.
void probe(ChatTemplate::Impl& t) {
  Conversation c;
  c.messages = {text_message("user", "7f3a"), text_message("assistant", "b91c")};
  Conversation question = c;
  question.messages.pop_back();
  t.opening = opening_of(t, question, {});
  std::string text;
  try {
    text = render_text(t, c, {}).bytes();
  } catch (const Error&) {
    return;  // the template wants other conversations: loss_spans does with the known ends
  }
  const size_t user = text.find("7f3a"), reply = text.find("b91c");
  if (user == std::string::npos || reply == std::string::npos || reply < user) return;
  const std::string_view before = std::string_view(text).substr(user + 4, reply - user - 4);
  if (t.opening.empty()) t.opening = t.header = end_of_prompt(t, question, "7f3a", before);
  for (size_t n = t.opening.size(); n > 0 && t.header.empty(); --n)
    if (before.ends_with(std::string_view(t.opening).substr(0, n)) ||
        (n == t.opening.size() && before.find(t.opening) != std::string_view::npos))
      t.header = t.opening.substr(0, n);
  t.end_of_turn = end_in(std::string_view(text).substr(reply + 4), t.tokens);
}

}  // namespace

ChatTemplate ChatTemplate::from_text(std::string source, NamedTokens tokens, std::string name) {
  return ChatTemplate(make_template(std::move(source), "", std::move(tokens), std::move(name)));
}

std::shared_ptr<const ChatTemplate::Impl> make_template(std::string source, const std::string& for_tools,
                                                        NamedTokens tokens, std::string name) {
  auto impl = std::make_shared<ChatTemplate::Impl>(jinja::Template(source, name));
  impl->source = std::move(source);
  if (!for_tools.empty())
    impl->for_tools = std::make_unique<jinja::Template>(for_tools, name + " (tool_use)");
  impl->tokens = std::move(tokens);
  impl->name = std::move(name);
  probe(*impl);
  return impl;
}

Rendered ChatTemplate::render(const Conversation& conversation, const RenderOptions& options) const {
  if (conversation.messages.empty())
    throw Error("the conversation is empty", "a template needs at least one message");
  const jinja::Text text = render_text(*impl_, conversation, options);
  Rendered out;
  out.text = text.bytes();
  out.written.resize(conversation.messages.size(), false);
  std::vector<ByteSpan> generated;
  size_t begin = 0;
  for (const auto& run : text.runs()) {
    const Origin origin = run.origin & ~jinja::kGenerated;
    const Run r{begin, run.end, static_cast<Source>(origin & 15), static_cast<int32_t>(origin >> 4) - 1};
    if (!out.runs.empty() && out.runs.back().source == r.source && out.runs.back().message == r.message)
      out.runs.back().end = r.end;
    else
      out.runs.push_back(r);
    if (r.message >= 0) out.written[static_cast<size_t>(r.message)] = true;
    if ((run.origin & jinja::kGenerated) != 0) {
      if (!generated.empty() && generated.back().end == begin)
        generated.back().end = run.end;
      else
        generated.push_back({begin, run.end});
    }
    begin = run.end;
  }
  const auto first = std::find_if(conversation.messages.begin(), conversation.messages.end(),
                                  [](const Message& m) { return m.role == "assistant"; });
  if (first != conversation.messages.end()) {
    Conversation before = conversation;
    before.messages.resize(static_cast<size_t>(first - conversation.messages.begin()));
    TurnBorders borders{
        before.messages.empty() || !generated.empty() ? impl_->opening : opening_of(*impl_, before, options),
        impl_->header,
        {},
        [&](int32_t message) { return prompt_tail(*impl_, conversation, message, options); }};
    if (borders.opening.empty()) borders.opening = impl_->opening;
    borders.ends.assign(std::begin(kTurnEnds), std::end(kTurnEnds));
    borders.ends.push_back(impl_->end_of_turn);
    out.loss_spans = loss_spans(conversation, out, borders, generated);
  }
  const ReplyFormat format = reply_format();
  if (options.add_generation_prompt && !format.think_open.empty() && !out.runs.empty() &&
      out.runs.back().source == Source::template_text) {
    const std::string_view tail = std::string_view(out.text).substr(out.runs.back().begin);
    const size_t open = tail.rfind(format.think_open), close = tail.rfind(format.think_close);
    out.ends_in_thinking =
        open != std::string_view::npos && (close == std::string_view::npos || close < open);
  }
  return out;
}

ReplyText ChatTemplate::reply_text(const Rendered& rendered, const ByteSpan& span) const {
  std::string_view s = std::string_view(rendered.text).substr(span.begin, span.end - span.begin);
  ReplyText out;
  for (const std::string* opening : {&impl_->opening, &impl_->header})
    if (!opening->empty() && s.starts_with(*opening)) {
      s.remove_prefix(opening->size());
      break;
    }
  const std::string_view before = std::string_view(rendered.text).substr(0, span.end - s.size());
  const std::string_view whole = s.substr(0, s.find_last_not_of(" \n\r\t") + 1);
  const auto ends_with = [&](std::string_view end) {
    if (!end.empty() && end.size() > out.end_of_turn.size() && whole.ends_with(end))
      out.end_of_turn = whole.substr(whole.size() - end.size());
  };
  for (const char* end : kTurnEnds) ends_with(end);
  ends_with(impl_->end_of_turn);
  out.text = out.end_of_turn.empty() ? s : whole.substr(0, whole.size() - out.end_of_turn.size());
  const std::string think = reply_format().think_open;
  out.in_thinking = !think.empty() && before.substr(0, before.find_last_not_of('\n') + 1).ends_with(think);
  return out;
}

ReplyFormat ChatTemplate::reply_format(std::string_view kwargs) const {
  const std::string& s = impl_->source;
  const auto has = [&](std::string_view text) { return s.find(text) != std::string::npos; };
  ReplyFormat f;
  if (has("<think>")) f.think_open = "<think>", f.think_close = "</think>";
  if (has("[THINK]")) f.think_open = "[THINK]", f.think_close = "[/THINK]";
  if (has("<|channel|>") && has("<|message|>")) {
    f.tools = ToolStyle::harmony;
    f.channels = true;
    f.think_open = "<|channel|>analysis<|message|>", f.think_close = "<|end|>";
  } else if (has("<｜tool▁calls▁begin｜>")) {
    f.tools = ToolStyle::deepseek;
    f.tool_open = "<｜tool▁calls▁begin｜>", f.tool_close = "<｜tool▁calls▁end｜>";
  } else if (has("[TOOL_CALLS]")) {
    f.tools = ToolStyle::mistral;
    f.tool_open = "[TOOL_CALLS]";
  } else if (has("<function=")) {
    f.tools = ToolStyle::zaya_xml;
    const size_t at = s.find("tool_call>"), open = s.rfind('<', at);
    f.tool_open = at == std::string::npos || at - open > 40 ? "<tool_call>" : s.substr(open, at + 10 - open);
    if (f.tool_open.starts_with("</")) f.tool_open.erase(1, 1);
    f.tool_close = "</" + f.tool_open.substr(1);
  } else if (has("<code>") && has("python_tools") &&
             (!has("<tool_call>") || kwargs.find("\"python_tools\"") != std::string_view::npos)) {
    f.tools = ToolStyle::smollm_python;
    f.tool_open = "<code>", f.tool_close = "</code>";
  } else if (has("<tool_call>")) {
    f.tools = ToolStyle::hermes;
    f.tool_open = "<tool_call>", f.tool_close = "</tool_call>";
  } else if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\""))) {
    f.tools = ToolStyle::llama3;
  }
  return f;
}

const std::string& ChatTemplate::end_of_turn() const {
  return impl_->end_of_turn;
}
std::vector<std::string> ChatTemplate::ends_of_turn() const {
  std::vector<std::string> out;
  if (!end_of_turn().empty()) out.push_back(end_of_turn());
  for (const char* end : {"<|call|>", "<|eom_id|>"})
    if (end != end_of_turn() && source().find(end) != std::string::npos) out.emplace_back(end);
  return out;
}
bool ChatTemplate::knows_thinking() const {
  return impl_->source.find("enable_thinking") != std::string::npos;
}
const std::string& ChatTemplate::source() const {
  return impl_->source;
}
const std::string& ChatTemplate::name() const {
  return impl_->name;
}
const NamedTokens& ChatTemplate::tokens() const {
  return impl_->tokens;
}

}  // namespace ingot::chat
