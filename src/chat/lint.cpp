// See lint.h.
#include "chat/lint.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot::chat {
namespace {

using LintJson = nlohmann::ordered_json;

constexpr size_t kFields = 1000;  // distinct paths that are counted
constexpr std::string_view kBlank = " \t\r\n";

std::string_view without_blanks(std::string_view s) {
  const size_t begin = std::min(s.find_first_not_of(kBlank), s.size());
  s.remove_prefix(begin);
  return s.substr(0, s.find_last_not_of(kBlank) + 1);
}

/// The beginning of a text on one line.
std::string in_quotes(std::string_view text) {
  const bool cut = text.size() > 60;
  std::string out = utf8::repair(text.substr(0, std::min<size_t>(text.size(), 60)));
  std::replace(out.begin(), out.end(), '\n', ' ');
  return "'" + out + (cut ? "...'" : "'");
}

std::string replaced(std::string text, std::string_view part, std::string_view by) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += by.size())
    text.replace(at, part.size(), by);
  return text;
}

/// What a template may take out of a system's text: switches of thinking.
bool says_something(const std::string& text) {
  return !without_blanks(replaced(replaced(text, "/no_think", ""), "/think", "")).empty();
}

/// Calls visit(path, is_null) for the fields of rows and messages; what tools and calls hold is data.
template <class Visit>
void visit_fields(const LintJson& j, const std::string& path, const Visit& visit) {
  if (j.is_array()) {
    for (const LintJson& one : j) visit_fields(one, path + "[]", visit);
    return;
  }
  if (!j.is_object()) return;
  for (const auto& [key, value] : j.items()) {
    const std::string at = path.empty() ? key : path + "." + key;
    visit(at, value.is_null());
    if (key != "tools" && key != "arguments" && key != "parameters" && key != "chat_template_kwargs")
      visit_fields(value, at, visit);
  }
}

bool assistant_wrote(Source s) {
  return s == Source::reasoning || s == Source::content || s == Source::tool_call;
}

const char* who(Source s) {
  switch (s) {
    case Source::system:
      return "the system";
    case Source::user:
      return "the user";
    case Source::tool:
      return "a tool";
    default:
      return "the caller";
  }
}

bool overlap(const Run& run, const ByteSpan& span) {
  return run.begin < span.end && run.end > span.begin;
}

bool has_run(const Rendered& r, size_t message, Source source) {
  return std::any_of(r.runs.begin(), r.runs.end(), [&](const Run& run) {
    return run.message == static_cast<int32_t>(message) && run.source == source;
  });
}

std::string same_arguments(const std::string& arguments) {
  const LintJson j = LintJson::parse(arguments, nullptr, false);
  return j.is_discarded() ? arguments : nlohmann::json(j).dump();
}

/// A message in the form in which it is compared: templates trim texts, and no style writes a call's id.
/// "" where it says nothing.
std::string compared(const Message& m, bool reasoning) {
  std::string out;
  const auto add = [&](const char* name, std::string_view text) {
    if (!text.empty()) out += fmt::format("{}: {}; ", name, text);
  };
  if (reasoning && m.reasoning_content) add("reasoning", without_blanks(*m.reasoning_content));
  if (m.content) add("content", without_blanks(*m.content));
  for (const ToolCall& c : m.tool_calls) add("call", c.name + " " + same_arguments(c.arguments));
  return out;
}

}  // namespace

std::string_view advice(LintKind kind) {
  switch (kind) {
    case LintKind::unreadable:
      return "mend or remove the rows";
    case LintKind::null_field:
      return "a conversion lost it, or no row needs it: restore or remove the field";
    case LintKind::refused:
      return "mend the rows, or choose another template";
    case LintKind::system_absent:
    case LintKind::message_absent:
      return "training would not see this text: put it where the template prints it, or change the template";
    case LintKind::reasoning_dropped:
      return "the model would be trained to answer without it: divide the conversation so that the reply is "
             "the last one, or use a template that keeps reasoning";
    case LintKind::empty_mask:
      return "nothing would be trained: the row needs a reply of the assistant whose weight is not 0";
    case LintKind::mask_covers_other:
      return "the model would be trained to write it: mend the template's {% generation %}";
    case LintKind::mask_misses:
      return "the model would not be trained to write it: mend the template's {% generation %}";
    case LintKind::no_end:
      return "the model would not be trained to stop: write the end of the turn inside what is generated";
    case LintKind::not_read_back:
      return "a reply like this one would come back as another message when the model is used";
    case LintKind::control_text:
      return "they stay text; --trust-text would make control tokens of them";
  }
  return "";
}

Lint::Lint(ChatTemplate chat_template, std::optional<Tokenizer> tokenizer)
    : template_(std::move(chat_template)), tokenizer_(std::move(tokenizer)) {}

void Lint::fault(LintKind kind, const std::string& where, std::string text) {
  faults_.push_back({kind, where, std::move(text)});
}

void Lint::add(std::string_view row, const std::string& where) {
  ++rows_;
  Conversation c;
  try {
    c = read_conversation(row, where);
  } catch (const Error& e) {
    return fault(LintKind::unreadable, where, e.what());
  }
  visit_fields(LintJson::parse(row), "", [&](const std::string& path, bool null) {
    if (fields_.size() >= kFields && !fields_.contains(path)) return;
    Field& f = fields_[path];
    ++f.seen;
    f.null += null;
  });
  Rendered r;
  try {
    r = template_.render(c);
  } catch (const Error& e) {
    return fault(LintKind::refused, where, e.what());
  }
  check_texts(c, r, where);
  check_mask(c, r, where);
  check_replies(c, r, where);
  if (tokenizer_) check_ids(r, where);
}

void Lint::check_texts(const Conversation& c, const Rendered& r, const std::string& where) {
  for (size_t i = 0; i < c.messages.size(); ++i) {
    const Message& m = c.messages[i];
    const bool system = m.role == "system" || m.role == "developer";
    const bool spoke = m.content && says_something(*m.content);
    if (!r.written[i] && (spoke || !m.tool_calls.empty()))
      fault(system ? LintKind::system_absent : LintKind::message_absent, where,
            fmt::format("messages[{}] of the {} is not in the text: {}", i, m.role,
                        in_quotes(m.content.value_or(m.tool_calls.empty() ? "" : m.tool_calls[0].name))));
    if (m.role == "assistant" && m.in_loss && m.reasoning_content &&
        !without_blanks(*m.reasoning_content).empty() && !has_run(r, i, Source::reasoning))
      fault(LintKind::reasoning_dropped, where,
            fmt::format("the reasoning of messages[{}] is not in the text: {}", i,
                        in_quotes(*m.reasoning_content)));
  }
}

void Lint::check_mask(const Conversation& c, const Rendered& r, const std::string& where) {
  if (r.loss_spans.empty()) {
    const bool any = std::any_of(c.messages.begin(), c.messages.end(),
                                 [](const Message& m) { return m.role == "assistant"; });
    return fault(LintKind::empty_mask, where,
                 any ? "nothing that the assistant wrote is in the loss" : "the assistant says nothing");
  }
  // What a later turn repeats, such as the name of the called tool, is no part of the assistant's.
  const auto turn_ended_before = [&](const Run& run) {
    return std::any_of(r.runs.begin(), r.runs.end(), [&](const Run& earlier) {
      return earlier.message == run.message && assistant_wrote(earlier.source) && earlier.end <= run.begin &&
             std::any_of(r.loss_spans.begin(), r.loss_spans.end(), [&](const ByteSpan& s) {
               return overlap(earlier, s) && s.end <= run.begin &&
                      !template_.reply_text(r, s).end_of_turn.empty();
             });
    });
  };
  for (const Run& run : r.runs) {
    if (run.source == Source::template_text) continue;
    const auto span = std::find_if(r.loss_spans.begin(), r.loss_spans.end(),
                                   [&](const ByteSpan& s) { return overlap(run, s); });
    const std::string text = in_quotes(std::string_view(r.text).substr(run.begin, run.end - run.begin));
    if (!assistant_wrote(run.source)) {
      if (span != r.loss_spans.end())
        fault(LintKind::mask_covers_other, where,
              fmt::format("the mask holds what {} wrote: {}", who(run.source), text));
    } else if (c.messages[static_cast<size_t>(run.message)].in_loss && !turn_ended_before(run) &&
               (span == r.loss_spans.end() || span->begin > run.begin || span->end < run.end)) {
      fault(
          LintKind::mask_misses, where,
          fmt::format("what the assistant wrote in messages[{}] is not in the loss: {}", run.message, text));
    }
  }
  const std::string& end = template_.end_of_turn();
  for (const ByteSpan& s : r.loss_spans)
    if (!end.empty() && template_.reply_text(r, s).end_of_turn.empty())
      fault(LintKind::no_end, where,
            fmt::format("the mask ends with {}, without the end of the turn",
                        in_quotes(r.text.substr(s.end - std::min<size_t>(s.end - s.begin, 20),
                                                std::min<size_t>(s.end - s.begin, 20)))));
}

void Lint::check_replies(const Conversation& c, const Rendered& r, const std::string& where) {
  const ReplyFormat format = template_.reply_format(c.kwargs);
  for (const ByteSpan& span : r.loss_spans) {
    const auto run = std::find_if(r.runs.begin(), r.runs.end(), [&](const Run& one) {
      return assistant_wrote(one.source) && overlap(one, span);
    });
    if (run == r.runs.end()) continue;
    const auto index = static_cast<size_t>(run->message);
    const Message& m = c.messages[index];
    const ReplyText reply = template_.reply_text(r, span);
    const Message read = parse_reply(format, reply.text, reply.in_thinking, c.tools);
    const bool reasoning = !m.reasoning_content || has_run(r, index, Source::reasoning);
    const std::string wanted = compared(m, reasoning), found = compared(read, true);
    if (wanted != found)
      fault(LintKind::not_read_back, where,
            fmt::format("messages[{}] would be read back as {} (it is {})", index, in_quotes(found),
                        in_quotes(wanted)));
  }
}

void Lint::check_ids(const Rendered& r, const std::string& where) {
  const std::vector<int32_t> own = template_.encode(r, *tokenizer_).ids,
                             trusting = template_.encode(r, *tokenizer_, Trust::messages).ids;
  if (own == trusting) return;
  std::map<int32_t, int64_t> more;
  for (const int32_t id : trusting) more[id] += tokenizer_->is_special(id);
  for (const int32_t id : own) more[id] -= tokenizer_->is_special(id);
  std::string spelled;
  for (const auto& [id, count] : more)
    if (count > 0) spelled += fmt::format("{}{}", spelled.empty() ? "" : ", ", tokenizer_->decode({&id, 1}));
  if (spelled.empty())
    ++other_borders_;
  else
    fault(LintKind::control_text, where, "a message spells " + spelled);
}

const std::vector<LintFault>& Lint::finish() {
  for (const auto& [path, f] : fields_)
    if (f.null == f.seen)
      fault(LintKind::null_field, "",
            fmt::format("'{}' is null wherever it stands: {} of {} times in {} rows", path, f.null, f.seen,
                        rows_));
  fields_.clear();
  return faults_;
}

}  // namespace ingot::chat
