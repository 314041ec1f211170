// See openai_reply.h. Pieces of JSON are joined as text: a stream writes thousands of small events a second.
#include "serve/openai_reply.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/utf8.h"

namespace ingot::serve {
namespace {

/// The shortest decimal that reads back as the number. JSON has no infinities; OpenAI's lowest value is
/// -9999.
std::string number(double value) {
  return std::isfinite(value) ? nlohmann::json(value).dump() : "-9999.0";
}

template <class List, class Body>
std::string joined(const List& list, Body body) {
  std::string all;
  for (const auto& one : list) {
    if (!all.empty()) all += ',';
    all += body(one);
  }
  return all;
}

std::string id_list(const std::vector<int32_t>& ids) {
  return "[" + joined(ids, [](int32_t id) { return std::to_string(id); }) + "]";
}

std::string byte_list(std::string_view bytes) {
  return "[" + joined(bytes, [](char c) { return std::to_string(static_cast<uint8_t>(c)); }) + "]";
}

std::string usage_json(const UsageTotals& u) {
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":{}}},)"
                     R"("completion_tokens_details":{{"reasoning_tokens":{}}}}})",
                     u.prompt, u.output, u.prompt + u.output, u.cached, u.reasoning);
}

}  // namespace

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int64_t characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

std::string random_name() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

ReplyWriter::ReplyWriter(Tokenizer tokenizer, ReplyOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      id_((options_.chat ? "chatcmpl-" : "cmpl-") + random_name()) {}

/// A token's text; OpenAI's form "bytes:\xe2\x80" where it is a part of a character only.
std::string ReplyWriter::token_text(int32_t id) const {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (utf8::valid_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return text;
}

std::string ReplyWriter::with_head(const char* object, const std::string& choices,
                                   const std::string& usage) const {
  return fmt::format(R"({{"id":"{}","object":"{}","created":{},"model":{},"choices":[{}]{}{}}})", id_, object,
                     options_.created, json_string(options_.model), choices,
                     usage.empty() ? "" : ",\"usage\":", usage);
}

/// Lists by token: texts, log-probabilities, the most likely tokens with the one itself, offsets in
/// characters.
std::string ReplyWriter::completion_logprobs(const Addition& a) const {
  std::string tokens, logprobs, tops, offsets;
  int64_t offset = a.offset;
  for (const ReportedToken& t : a.tokens) {
    const char* comma = tokens.empty() ? "" : ",";
    tokens += comma + json_string(token_text(t.id));
    logprobs += comma + (t.logprob ? number(*t.logprob) : "null");
    offsets += comma + std::to_string(offset);
    if (!t.stop) offset += characters(tokenizer_.token_bytes(t.id));
    // Tokens that look alike share an entry: the likelier one's, so that its maximum is the best token's
    // value.
    std::vector<std::pair<std::string, double>> entries;
    const auto enter = [&](const std::string& text, double value) {
      for (auto& [known, best] : entries)
        if (known == text) return void(best = std::max(best, value));
      entries.emplace_back(text, value);
    };
    for (const TokenProbability& one : t.top) enter(token_text(one.id), one.logprob);
    if (t.logprob) enter(token_text(t.id), *t.logprob);
    tops += comma;
    tops += !t.logprob ? "null" : "{" + joined(entries, [](const auto& e) {
                                    return json_string(e.first) + ":" + number(e.second);
                                  }) + "}";
  }
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})",
                     tokens, logprobs, tops, offsets);
}

std::string ReplyWriter::chat_logprobs(const Addition& a) const {
  const auto one = [&](int32_t id, double logprob) {
    return fmt::format(R"("token":{},"logprob":{},"bytes":{})", json_string(token_text(id)), number(logprob),
                       byte_list(tokenizer_.token_bytes(id)));
  };
  return R"({"content":[)" +
         joined(a.tokens,
                [&](const ReportedToken& t) {
                  return "{" + one(t.id, t.logprob.value_or(0)) + R"(,"top_logprobs":[)" +
                         joined(t.top,
                                [&](const TokenProbability& p) { return "{" + one(p.id, p.logprob) + "}"; }) +
                         "]}";
                }) +
         R"(],"refusal":null})";
}

std::string ReplyWriter::logprobs_json(const Addition& a) const {
  if (!options_.logprobs) return "null";
  return options_.chat ? chat_logprobs(a) : completion_logprobs(a);
}

std::string ReplyWriter::message_json(const Addition& a, bool whole) const {
  std::vector<std::string> fields;
  if (whole) fields.push_back(R"("role":"assistant")");
  if (!a.reasoning.empty()) fields.push_back("\"reasoning_content\":" + json_string(a.reasoning));
  if (whole && a.text.empty() && !a.calls.empty())
    fields.push_back(R"("content":null)");
  else if (whole || !a.text.empty())
    fields.push_back("\"content\":" + json_string(a.text));
  if (!a.calls.empty()) {
    int64_t index = a.first_call;
    fields.push_back(
        "\"tool_calls\":[" +
        joined(a.calls,
               [&](const chat::ToolCall& call) {
                 const std::string at = whole ? "" : fmt::format("\"index\":{},", index);
                 ++index;
                 return fmt::format(
                     R"({{{}"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", at,
                     json_string(call.id), json_string(call.name), json_string(call.arguments));
               }) +
        "]");
  }
  return "{" + joined(fields, [](const std::string& f) { return f; }) + "}";
}

std::string ReplyWriter::choice_json(const Addition& a, bool whole) const {
  std::string choice = fmt::format("{{\"index\":{},", a.choice);
  if (options_.chat)
    choice += (whole ? "\"message\":" : "\"delta\":") + message_json(a, whole);
  else
    choice += "\"text\":" + json_string(a.text);
  choice += ",\"logprobs\":" + (a.tokens.empty() && !whole ? "null" : logprobs_json(a));
  choice += ",\"finish_reason\":" + (a.finish ? json_string(a.finish) : std::string("null"));
  if (options_.token_ids) {
    if (!a.prompt.empty()) choice += ",\"prompt_token_ids\":" + id_list(a.prompt);
    std::vector<int32_t> ids;
    for (const ReportedToken& t : a.tokens) ids.push_back(t.id);
    choice += ",\"token_ids\":" + id_list(ids);
  }
  return choice + "}";
}

std::string ReplyWriter::whole(const std::vector<Addition>& choices, const UsageTotals& usage) const {
  return with_head(options_.chat ? "chat.completion" : "text_completion",
                   joined(choices, [&](const Addition& a) { return choice_json(a, true); }),
                   usage_json(usage));
}

namespace {
constexpr const char* kChunk = "chat.completion.chunk";
}

std::string ReplyWriter::begin_event(int64_t choice) const {
  if (!options_.chat) return "";
  const std::string text = fmt::format(
      R"({{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}})",
      choice);
  return "data: " + with_head(kChunk, text, "") + "\n\n";
}

std::string ReplyWriter::event(const Addition& a) const {
  return "data: " + with_head(options_.chat ? kChunk : "text_completion", choice_json(a, false), "") + "\n\n";
}

void ReplyWriter::advance(Addition& a) const {
  Addition next;
  next.choice = a.choice;
  next.offset = a.offset;
  for (const ReportedToken& t : a.tokens)
    if (!t.stop) next.offset += characters(tokenizer_.token_bytes(t.id));
  a = std::move(next);
}

std::string ReplyWriter::usage_event(const UsageTotals& usage) const {
  return "data: " + with_head(options_.chat ? kChunk : "text_completion", "", usage_json(usage)) + "\n\n";
}

std::string ReplyWriter::error_event(const ApiError& error) {
  return "data: " + error_json(error) + "\n\n";
}

}  // namespace ingot::serve
