// See openai_request.h.
#include "serve/openai_request.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/api_error.h"
#include "serve/json_fields.h"

namespace ingot::serve {
namespace {

using Json = nlohmann::json;

std::vector<std::string> read_stop(JsonFields& f) {
  const Json* v = f.value("stop");
  if (!v) return {};
  const Json list = v->is_array() ? *v : Json::array({*v});
  if (static_cast<int64_t>(list.size()) > limits::kStops)
    f.refuse("stop", fmt::format("has {} texts, at most {} are taken", list.size(), limits::kStops));
  std::vector<std::string> stop;
  for (const Json& one : list) {
    if (one.is_null()) continue;  // lm-evaluation-harness writes [null] for none
    if (!one.is_string() || one.get_ref<const std::string&>().empty())
      f.refuse("stop",
               fmt::format("must be a text or a list of texts that are not empty, found {}", shown(one)));
    stop.push_back(one.get<std::string>());
    if (static_cast<int64_t>(stop.back().size()) > limits::kStopBytes)
      f.refuse("stop", fmt::format("has a text of {} bytes, at most {} are taken", stop.back().size(),
                                   limits::kStopBytes));
  }
  return stop;
}

void read_generation(JsonFields& f, Generation& g) {
  g.model = f.text("model").value_or("");
  g.sampling.temperature = f.number("temperature", up_to(100)).value_or(1.0);
  g.sampling.top_p = f.number("top_p", positive(1)).value_or(1.0);
  g.sampling.top_k = std::max<int64_t>(f.integer("top_k", between(-1, 0x1p31 - 1)).value_or(0), 0);
  g.sampling.min_p = f.number("min_p", up_to(1)).value_or(0.0);
  g.seed = f.integer("seed", any_integer());
  g.n = f.integer("n", between(1, limits::kSamples)).value_or(1);
  g.stop = read_stop(f);
  g.stream = f.boolean("stream").value_or(false);
  if (const Json* options = f.value("stream_options")) {
    JsonFields inner(*options, "stream_options.");
    g.include_usage = inner.boolean("include_usage").value_or(false);
    inner.only("continuous_usage_stats", {"false"}, "");
    inner.only("include_obfuscation", {"false"}, "");
    inner.done();
    if (!g.stream) f.refuse("stream_options", "is given, but 'stream' is not true");
  }
  g.token_ids = f.boolean("return_token_ids").value_or(false);
  g.ignore_end = f.boolean("ignore_eos").value_or(false);
  f.only("presence_penalty", {"0"}, "tokens are drawn from the model's own distribution");
  f.only("frequency_penalty", {"0"}, "tokens are drawn from the model's own distribution");
  f.only("repetition_penalty", {"1"}, "tokens are drawn from the model's own distribution");
  f.only("logit_bias", {"{}"}, "tokens are drawn from the model's own distribution");
  f.ignore({"user", "metadata", "safety_identifier", "prompt_cache_key"});
}

int32_t token_id(const Json& v, int64_t vocab, const JsonFields& f, const char* name) {
  const bool whole = v.is_number_integer() && !(v.is_number_unsigned() && v.get<uint64_t>() > INT32_MAX);
  if (!whole || v.get<int64_t>() < 0 || v.get<int64_t>() >= vocab)
    f.refuse(name, fmt::format("has the id {}; the model's are 0 to {}", shown(v), vocab - 1));
  return v.get<int32_t>();
}

std::vector<int32_t> token_ids(const Json& list, int64_t vocab, const JsonFields& f, const char* name) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& v : list) ids.push_back(token_id(v, vocab, f, name));
  return ids;
}

/// A text, ids, or a list of either.
std::vector<Prompt> read_prompts(JsonFields& f, int64_t vocab) {
  const Json* v = f.value("prompt");
  if (!v) f.refuse("prompt", "is missing: a text, a list of token ids, or a list of either");
  if (v->is_string()) return {v->get<std::string>()};
  if (!v->is_array()) f.refuse("prompt", fmt::format("must be a text or a list, found {}", shown(*v)));
  if (v->empty()) f.refuse("prompt", "is an empty list");
  if (v->front().is_number()) return {token_ids(*v, vocab, f, "prompt")};
  if (static_cast<int64_t>(v->size()) > limits::kPrompts)
    f.refuse("prompt", fmt::format("has {} prompts, at most {} are taken", v->size(), limits::kPrompts));
  std::vector<Prompt> prompts;
  for (const Json& one : *v) {
    if (one.is_string())
      prompts.emplace_back(one.get<std::string>());
    else if (one.is_array())
      prompts.emplace_back(token_ids(one, vocab, f, "prompt"));
    else
      f.refuse("prompt", fmt::format("must hold texts or lists of ids, found {}", shown(one)));
  }
  return prompts;
}

constexpr Range kTokens = between(0, 0x1p31 - 1, "tokens");

/// A message of chat/ becomes an answer to the client, under the field that it is about.
template <class Body>
auto of_field(const JsonFields& f, const char* name, Body body) {
  try {
    return body();
  } catch (const Error& e) {
    f.refuse(name, fmt::format("cannot be read: {}", e.what()));
  }
}

void read_tools(JsonFields& f, chat::Conversation& c) {
  const Json* tools = f.value("tools");
  const Json* choice = f.value("tool_choice");
  if (choice && *choice != "none" && *choice != "auto")
    f.refuse("tool_choice", fmt::format("must be \"none\" or \"auto\": the model decides whether to call a "
                                        "tool; found {}",
                                        shown(*choice)));
  f.only("parallel_tool_calls", {"true"}, "the model decides how many tools it calls");
  if (tools && !tools->is_array()) f.refuse("tools", fmt::format("must be a list, found {}", shown(*tools)));
  if (!tools || tools->empty()) return;
  const std::string checked =
      of_field(f, "tools", [&] { return chat::checked_tools(tools->dump(), "tools"); });
  if (!choice || *choice == "auto") c.tools = checked;
}

/// "reason": {"method": "rsa" or "majority", "population", "candidates", "rounds", "budget", "tail",
/// "answer_tokens", "compaction"}; what one answer out of many leaves no place for is refused.
std::optional<reason::RsaOptions> read_reason(JsonFields& f, const ChatRequest& r) {
  const Json* given = f.value("reason");
  if (!given) return {};
  if (!given->is_object()) f.refuse("reason", fmt::format("must be an object, found {}", shown(*given)));
  JsonFields fields(*given, "reason.");
  reason::RsaOptions o;
  const std::string method = fields.text("method").value_or("rsa");
  if (method != "rsa" && method != "majority") fields.refuse("method", "must be \"rsa\" or \"majority\"");
  o.population = fields.integer("population", between(1, limits::kSamples)).value_or(o.population);
  o.candidates = std::min(o.candidates, o.population);
  o.candidates =
      fields.integer("candidates", between(1, static_cast<double>(o.population))).value_or(o.candidates);
  o.rounds = fields.integer("rounds", up_to(limits::kRounds)).value_or(o.rounds);
  if (method == "majority") o.rounds = 0;
  o.budget = fields.integer("budget", between(1, 0x1p24, "tokens")).value_or(o.budget);
  o.tail = std::min(o.tail, o.budget);
  o.tail = fields.integer("tail", between(1, static_cast<double>(o.budget), "tokens")).value_or(o.tail);
  o.answer_tokens = fields.integer("answer_tokens", between(1, 0x1p24, "tokens")).value_or(o.answer_tokens);
  o.compaction = of_field(fields, "compaction", [&] {
    return enum_from<reason::Compaction>(fields.text("compaction").value_or("tail"), "compaction");
  });
  fields.done();
  const auto alone = [&](bool there, const char* name) {
    if (there) f.refuse(name, "is not taken together with 'reason', which gives one answer");
  };
  alone(r.n != 1, "n");
  alone(r.top >= 0, "logprobs");
  alone(r.token_ids, "return_token_ids");
  alone(r.ignore_end, "ignore_eos");
  alone(!r.stop.empty(), "stop");
  alone(!r.conversation.tools.empty(), "tools");
  alone(r.max_tokens.has_value(), "max_tokens");
  alone(r.thinking_budget.has_value(), "thinking_budget");
  return o;
}

std::vector<chat::Message> read_messages(JsonFields& f) {
  const Json* messages = f.value("messages");
  if (!messages || !messages->is_array() || messages->empty())
    f.refuse("messages", "must be a list of at least one message");
  return of_field(f, "messages", [&] { return chat::read_messages(messages->dump(), "messages"); });
}

}  // namespace

CompletionRequest read_completion(const Json& body, int64_t vocab) {
  JsonFields f(body);
  CompletionRequest r;
  read_generation(f, r);
  r.prompts = read_prompts(f, vocab);
  r.max_tokens = f.integer("max_tokens", kTokens).value_or(16);
  r.top = f.integer("logprobs", up_to(limits::kTop)).value_or(-1);
  r.echo = f.boolean("echo").value_or(false);
  r.begin_token = f.boolean("add_special_tokens").value_or(true);
  if (f.integer("best_of", between(1, limits::kSamples)).value_or(r.n) != r.n)
    f.refuse("best_of", "is not supported: give 'n'");
  f.only("suffix", {"\"\""}, "text is continued, not filled in");
  f.done();
  if (static_cast<int64_t>(r.prompts.size()) * r.n > limits::kChoices)
    f.refuse("n", fmt::format("times the number of prompts is {}, at most {} are made",
                              static_cast<int64_t>(r.prompts.size()) * r.n, limits::kChoices));
  if (*r.max_tokens == 0 && !r.echo) f.refuse("max_tokens", "is 0, which only 'echo' makes sense of");
  return r;
}

ChatRequest read_chat(const Json& body) {
  JsonFields f(body);
  ChatRequest r;
  read_generation(f, r);
  r.conversation.messages = read_messages(f);
  read_tools(f, r.conversation);
  r.max_tokens = f.integer("max_completion_tokens", between(1, 0x1p31 - 1, "tokens"));
  const auto older = f.integer("max_tokens", between(1, 0x1p31 - 1, "tokens"));
  if (!r.max_tokens) r.max_tokens = older;
  const bool logprobs = f.boolean("logprobs").value_or(false);
  const auto top = f.integer("top_logprobs", up_to(limits::kTop));
  if (top && !logprobs) f.refuse("top_logprobs", "is given, but 'logprobs' is not true");
  if (logprobs) r.top = top.value_or(0);
  f.only("response_format", {R"({"type":"text"})"}, "answers are not held to a schema");
  f.only("modalities", {R"(["text"])"}, "");
  f.only("add_generation_prompt", {"true"}, "");
  f.only("continue_final_message", {"false"}, "");
  if (const Json* arguments = f.value("chat_template_kwargs")) {
    if (!arguments->is_object())
      f.refuse("chat_template_kwargs", fmt::format("must be an object, found {}", shown(*arguments)));
    Json others = *arguments;
    if (const auto thinking = others.find("enable_thinking"); thinking != others.end()) {
      if (!thinking->is_boolean())
        f.refuse("chat_template_kwargs.enable_thinking", "must be true or false, found " + shown(*thinking));
      r.enable_thinking = thinking->get<bool>();
      others.erase(thinking);
    }
    if (!others.empty()) r.template_arguments = others.dump();
  }
  r.thinking_budget = f.integer("thinking_budget", kTokens);
  r.reason = read_reason(f, r);
  f.done();
  return r;
}

TokenizeRequest read_tokenize(const Json& body) {
  JsonFields f(body);
  TokenizeRequest r;
  r.model = f.text("model").value_or("");
  r.prompt = f.text("prompt");
  r.begin_token = f.boolean("add_special_tokens").value_or(r.prompt.has_value());
  r.texts = f.boolean("return_token_strs").value_or(false);
  r.generation_prompt = f.boolean("add_generation_prompt").value_or(true);
  if (!r.prompt) {
    r.conversation.messages = read_messages(f);
    read_tools(f, r.conversation);
  }
  f.done();
  return r;
}

DetokenizeRequest read_detokenize(const Json& body, int64_t vocab) {
  JsonFields f(body);
  DetokenizeRequest r;
  r.model = f.text("model").value_or("");
  const Json* tokens = f.value("tokens");
  if (!tokens || !tokens->is_array()) f.refuse("tokens", "must be a list of token ids");
  r.ids = token_ids(*tokens, vocab, f, "tokens");
  f.done();
  return r;
}

}  // namespace ingot::serve
