// See reply_parser.h.
#include "chat/reply_parser.h"

#include <algorithm>
#include <utility>

#include "chat/tool_calls.h"

namespace ingot::chat {
namespace {

constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMessage = "<|message|>";                          // ends a header
constexpr std::string_view kHeaders[] = {"<|start|>", "<|channel|>", "to="};  // what one begins with
constexpr std::string_view kMessageEnds[] = {"<|end|>", "<|return|>", "<|call|>"};

/// Length of the longest end of `text` that `tag` begins with, short of the whole tag.
size_t tag_begins(std::string_view text, std::string_view tag) {
  if (tag.empty()) return 0;
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n)
    if (text.ends_with(tag.substr(0, n))) return n;
  return 0;
}

struct FoundTag {
  size_t begin = std::string_view::npos, end = std::string_view::npos;
};

/// The first of the marks that end a message, from byte `from` on.
FoundTag message_end(std::string_view text, size_t from) {
  FoundTag out;
  for (const std::string_view tag : kMessageEnds)
    if (const size_t at = text.find(tag, from); at < out.begin) out = {at, at + tag.size()};
  return out;
}

size_t without_newlines(std::string_view text, size_t end) {
  while (end > 0 && text[end - 1] == '\n') --end;
  return end;
}

}  // namespace

struct ReplyParser::Impl {
  enum class State : uint8_t { start, reasoning, content, call, rest, header, message, message_call };

  ReplyFormat format;
  std::string tools;
  State state = State::start;
  std::string waiting;     // text that is not told apart yet
  size_t searched = 0;     // of waiting, in a call or header: no closing tag begins before
  size_t header_size = 0;  // of waiting, in a call that is a message
  ReplyPiece::Kind message_kind = ReplyPiece::Kind::content;
  bool message_joins = false;  // the text that comes next follows another message of its kind
  bool skip_newlines = false;  // newlines that come next belong to a tag
  bool content_began = false;
  bool final = false;
  Message message{.role = "assistant",
                  .content = std::nullopt,
                  .reasoning_content = std::nullopt,
                  .tool_calls = {},
                  .tool_call_id = "",
                  .name = ""};
  std::vector<ReplyPiece> pieces;

  void emit(ReplyPiece::Kind kind, std::string text) {
    if (text.empty()) return;
    auto& field = kind == ReplyPiece::Kind::reasoning ? message.reasoning_content : message.content;
    if (std::exchange(message_joins, false) && field) text.insert(0, 1, '\n');
    field = field.value_or("") + text;
    pieces.push_back({kind, std::move(text), {}});
  }

  void emit_calls(std::vector<ToolCall> calls, const std::string& written) {
    for (ToolCall& c : calls) {
      message.tool_calls.push_back(c);
      pieces.push_back({ReplyPiece::Kind::tool_call, &c == &calls.front() ? written : "", std::move(c)});
    }
  }

  void enter(State next, size_t taken, bool skips) {
    waiting.erase(0, taken);
    state = next;
    skip_newlines = skips;
    searched = 0;
  }

  /// Drops newlines next to a tag; false while nothing else is there.
  bool past_newlines() {
    if (!skip_newlines) return true;
    waiting.erase(0, std::min(waiting.find_first_not_of('\n'), waiting.size()));
    if (waiting.empty()) return false;
    skip_newlines = false;
    return true;
  }

  /// The reply's first characters say whether it begins with reasoning. True if the state changed.
  bool start() {
    if (format.think_open.empty()) return enter(State::content, 0, false), true;
    const size_t begin = std::min(waiting.find_first_not_of(" \n\r\t"), waiting.size());
    const std::string_view text = std::string_view(waiting).substr(begin);
    if (text.starts_with(format.think_open))
      return enter(State::reasoning, begin + format.think_open.size(), true), true;
    if (!final && std::string_view(format.think_open).starts_with(text)) return false;
    enter(State::content, 0, false);
    return true;
  }

  bool reasoning() {
    if (!past_newlines()) return false;
    const size_t close = waiting.find(format.think_close);
    if (close != std::string::npos) {
      emit(ReplyPiece::Kind::reasoning, waiting.substr(0, without_newlines(waiting, close)));
      enter(State::content, close + format.think_close.size(), true);
      return true;
    }
    release(ReplyPiece::Kind::reasoning, tag_begins(waiting, format.think_close), true);
    return false;
  }

  /// Emits what is certain: all but `held` bytes, and newlines before them that a tag may take.
  void release(ReplyPiece::Kind kind, size_t held, bool newlines) {
    size_t end = final ? waiting.size() : waiting.size() - held;
    if (!final && newlines) end = without_newlines(waiting, end);
    emit(kind, waiting.substr(0, end));
    waiting.erase(0, end);
  }

  /// Llama 3: a reply that begins as a call is one to its end.
  bool begins_rest(bool& undecided) {
    const size_t begin = std::min(waiting.find_first_not_of(" \n\r\t"), waiting.size());
    const std::string_view text = std::string_view(waiting).substr(begin);
    undecided = !final && (text.empty() || (text.size() < kPythonTag.size() && kPythonTag.starts_with(text)));
    return text.starts_with('{') || text.starts_with(kPythonTag);
  }

  bool content() {
    if (!past_newlines()) return false;
    if (!content_began && format.tools == ToolStyle::llama3) {
      bool undecided = false;
      if (begins_rest(undecided)) return enter(State::rest, 0, false), true;
      if (undecided) return false;
    }
    if (!waiting.empty()) content_began = true;
    const bool tags = !format.tool_open.empty();
    const size_t open = tags ? waiting.find(format.tool_open) : std::string::npos;
    if (open != std::string::npos) {
      const size_t end = takes_newlines() ? without_newlines(waiting, open) : open;
      emit(ReplyPiece::Kind::content, waiting.substr(0, end));
      enter(format.tool_close.empty() ? State::rest : State::call, end, false);
      return true;
    }
    release(ReplyPiece::Kind::content, tag_begins(waiting, format.tool_open), tags && takes_newlines());
    return false;
  }

  /// Newlines beside tags of tool calls belong to the tags.
  bool takes_newlines() const {
    return format.tools != ToolStyle::deepseek && format.tools != ToolStyle::mistral;
  }

  /// A call between tags; `waiting` begins with the newlines before the opening tag.
  bool call() {
    const size_t begin = waiting.find(format.tool_open) + format.tool_open.size();
    for (size_t close = waiting.find(format.tool_close, std::max(searched, begin));
         close != std::string::npos; close = waiting.find(format.tool_close, close + 1)) {
      const std::string_view body = std::string_view(waiting).substr(begin, close - begin);
      if (is_cut_inside_value(format.tools, body)) continue;
      const size_t end = close + format.tool_close.size();
      std::string written = waiting.substr(0, end);
      if (auto calls = parse_tool_calls(format.tools, body, tools)) {
        emit_calls(std::move(*calls), written.substr(without_leading_newlines(written)));
        enter(State::content, end, takes_newlines());
      } else {
        emit(ReplyPiece::Kind::content, std::move(written));
        enter(State::content, end, false);
      }
      return true;
    }
    searched = waiting.size() - std::min(waiting.size(), format.tool_close.size() - 1);
    if (final) {
      emit(ReplyPiece::Kind::content, std::move(waiting));
      waiting.clear();
    }
    return false;
  }
  static size_t without_leading_newlines(std::string_view s) {
    return std::min(s.find_first_not_of('\n'), s.size());
  }

  void rest() {
    if (!final || waiting.empty()) return;
    std::string_view body = waiting;
    const size_t tag = body.find(kPythonTag);
    if (tag != std::string_view::npos && body.find_first_not_of(" \n\r\t") == tag)
      body.remove_prefix(tag + kPythonTag.size());
    if (auto calls = parse_tool_calls(format.tools, body, tools))
      emit_calls(std::move(*calls), waiting);
    else
      emit(ReplyPiece::Kind::content, waiting);
    waiting.clear();
  }

  /// The header of a message in a channel; a text without one is content.
  bool header() {
    const size_t begin = std::min(waiting.find_first_not_of(" \n\r\t"), waiting.size());
    const std::string_view text = std::string_view(waiting).substr(begin);
    const auto may_be = [&](std::string_view h) { return text.starts_with(h) || h.starts_with(text); };
    if (!std::any_of(std::begin(kHeaders), std::end(kHeaders), may_be) && !may_be(kMessage))
      return begin_message(ReplyPiece::Kind::content, 0);
    const size_t end = waiting.find(kMessage, searched);
    const FoundTag stop = message_end(waiting, searched);
    if (stop.begin < end) {  // no header
      emit(ReplyPiece::Kind::content, waiting.substr(0, stop.end));
      return enter(State::header, stop.end, false), true;
    }
    if (end == std::string::npos) {
      searched = waiting.size() - std::min(waiting.size(), kMessage.size() - 1);
      if (final) release(ReplyPiece::Kind::content, 0, false);
      return false;
    }
    const ChannelHeader h = read_channel_header(std::string_view(waiting).substr(0, end));
    header_size = end + kMessage.size();
    if (!h.assistants || !h.to.empty()) {
      if (h.assistants && format.tools == ToolStyle::harmony && h.to.starts_with("functions."))
        return enter(State::message_call, 0, false), true;
      return begin_message(ReplyPiece::Kind::content, 0);  // nobody here has asked for it: as it was written
    }
    return begin_message(h.channel == "analysis" ? ReplyPiece::Kind::reasoning : ReplyPiece::Kind::content,
                         header_size);
  }

  bool begin_message(ReplyPiece::Kind kind, size_t taken) {
    message_kind = kind;
    message_joins = true;
    enter(State::message, taken, false);
    return true;
  }

  /// The text of a message.
  bool message_text() {
    const FoundTag end = message_end(waiting, 0);
    if (end.begin != std::string::npos) {
      emit(message_kind, waiting.substr(0, end.begin));
      return enter(State::header, end.end, false), true;
    }
    size_t held = 0;
    for (const std::string_view tag : kMessageEnds) held = std::max(held, tag_begins(waiting, tag));
    release(message_kind, held, false);
    return false;
  }

  /// A message that is a call; `waiting` begins with its header. It may lack the mark that ends it, at which
  /// generation stops.
  bool message_call() {
    FoundTag end = message_end(waiting, std::max(searched, header_size));
    const auto text = [&](size_t until) {
      return std::string_view(waiting).substr(header_size, until - header_size);
    };
    while (end.begin != std::string::npos && is_cut_inside_value(format.tools, text(end.begin)))
      end = message_end(waiting, end.end);
    searched = waiting.size() - std::min(waiting.size(), std::string_view("<|return|>").size() - 1);
    if (end.begin == std::string::npos) {
      if (!final) return false;
      end = {waiting.size(), waiting.size()};
    }
    std::string written = waiting.substr(0, end.end);
    if (auto calls = parse_tool_calls(format.tools, std::string_view(waiting).substr(0, end.begin), tools))
      emit_calls(std::move(*calls), written);
    else
      emit(ReplyPiece::Kind::content, std::move(written));
    enter(State::header, end.end, false);
    return true;
  }

  void advance() {
    for (bool more = true; more;) {
      switch (state) {
        case State::start:
          more = start();
          break;
        case State::reasoning:
          more = reasoning();
          break;
        case State::content:
          more = content();
          break;
        case State::call:
          more = call();
          break;
        case State::rest:
          rest();
          more = false;
          break;
        case State::header:
          more = header();
          break;
        case State::message:
          more = message_text();
          break;
        case State::message_call:
          more = message_call();
          break;
      }
    }
  }
};

ReplyParser::ReplyParser(ReplyFormat format, bool in_thinking, std::string_view tools)
    : impl_(std::make_unique<Impl>()) {
  impl_->format = std::move(format);
  impl_->tools = tools;
  if (impl_->format.tools == ToolStyle::none) impl_->format.tool_open = impl_->format.tool_close = "";
  if (impl_->format.channels)
    in_thinking ? void(impl_->begin_message(ReplyPiece::Kind::reasoning, 0))
                : impl_->enter(Impl::State::header, 0, false);
  else if (in_thinking && !impl_->format.think_close.empty())
    impl_->enter(Impl::State::reasoning, 0, true);
}
ReplyParser::~ReplyParser() = default;
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;
ReplyParser& ReplyParser::operator=(ReplyParser&&) noexcept = default;

std::vector<ReplyPiece> ReplyParser::push(std::string_view text) {
  impl_->waiting += text;
  impl_->advance();
  return std::exchange(impl_->pieces, {});
}

std::vector<ReplyPiece> ReplyParser::finish() {
  impl_->final = true;
  impl_->advance();
  Message& m = impl_->message;
  if (!m.content && m.tool_calls.empty()) m.content = "";
  return std::exchange(impl_->pieces, {});
}

const Message& ReplyParser::message() const {
  return impl_->message;
}

Message parse_reply(const ReplyFormat& format, std::string_view text, bool in_thinking,
                    std::string_view tools) {
  ReplyParser parser(format, in_thinking, tools);
  parser.push(text);
  parser.finish();
  return parser.message();
}

}  // namespace ingot::chat
