// See engine_model.h.
#include "eval/engine_model.h"

#include <algorithm>

#include "base/error.h"
#include "infer/call_cost.h"

namespace ingot {

static EngineOptions engine_options(const Model& model, const EngineModelOptions& o) {
  const int64_t page = SequenceStore(sequence_layout(model), 0).page_bytes();
  const int64_t context = SequenceStore::pages_for(model.config().context) + 1;
  return {.token_budget = std::clamp<int64_t>(o.logit_bytes / (4 * model.config().vocab), 16, 256),
          .max_pages = std::max(context, o.cache_bytes / std::max<int64_t>(1, page))};
}

int64_t engine_model_bytes(const Model& model, const EngineModelOptions& options) {
  const EngineOptions o = engine_options(model, options);
  return o.max_pages * SequenceStore(sequence_layout(model), 0).page_bytes() +
         call_cost(model, o.token_budget).bytes + o.token_budget * 4 * model.config().vocab;
}

EngineModel::EngineModel(const Model& model, Tokenizer tokenizer, EngineModelOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      engine_(model, tokenizer_, engine_options(model, options_)) {
  if (!options_.chat) return;
  for (const int32_t end : chat::end_ids(*options_.chat, tokenizer_)) options_.control.end.push_back(end);
}

int32_t EngineModel::prefix() const {
  if (options_.control.begin) return *options_.control.begin;
  const TokenRoles& roles = tokenizer_.roles();
  if (roles.bos) return *roles.bos;
  if (roles.eos) return *roles.eos;
  if (!options_.control.end.empty()) return options_.control.end.front();
  throw Error("the model's tokenizer names no token that a text could follow",
              "give tasks a prompt that is not empty; perplexity needs a begin or end-of-text token");
}

std::vector<ContinuationScore> EngineModel::score(std::span<const ScoreRequest> requests) {
  std::vector<ContinuationScore> scores(requests.size());
  std::vector<std::string> errors(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const ScoreRequest& r = requests[i];
    if (r.continuation.empty()) continue;  // nothing to predict: 0, and what the harness says too
    Request q;
    q.prompt = r.context;
    q.prompt.insert(q.prompt.end(), r.continuation.begin(), r.continuation.end());
    q.max_tokens = 0;
    q.report.prompt_from = static_cast<int64_t>(r.context.size());
    q.report.top = 1;
    Sink sink;
    sink.prompt = [&score = scores[i]](const PromptScores& p) {
      for (size_t t = 0; t < p.logprob.size(); ++t) {
        score.logprob += static_cast<double>(p.logprob[t]);
        score.greedy = score.greedy && static_cast<double>(p.logprob[t]) >= p.top[t].front().logprob;
      }
    };
    sink.finished = [&error = errors[i]](const Finished& f) { error = f.error; };
    engine_.submit(std::move(q), std::move(sink));
  }
  engine_.run_until_idle();
  for (const std::string& e : errors)
    if (!e.empty()) throw Error(e);
  return scores;
}

static SamplingOptions sampling_of(const TaskSampling& s) {
  return {.temperature = s.temperature,
          .top_k = s.top_k,
          .top_p = s.top_p,
          .min_p = s.min_p,
          .seed = static_cast<uint64_t>(s.seed)};
}

std::vector<std::vector<Answer>> EngineModel::answer(std::span<const AnswerRequest> requests,
                                                     const TaskSampling& sampling) {
  if (options_.rsa) return reasoned(requests, sampling);
  std::vector<std::vector<Answer>> answers(requests.size());
  std::string error;
  for (size_t i = 0; i < requests.size(); ++i) {
    answers[i].resize(static_cast<size_t>(sampling.samples));
    Request q;
    q.prompt = requests[i].prompt;
    q.sampling = sampling_of(sampling);
    q.key = requests[i].key;
    q.n = sampling.samples;
    q.max_tokens = sampling.max_tokens;
    q.stop_ids = options_.control.end;
    q.stop_strings = sampling.stop;
    q.thinking = budget_of(sampling.thinking_tokens, requests[i].in_thinking);
    Sink sink;
    sink.token = [&mine = answers[i]](const TokenEvent& e) {
      Answer& a = mine[static_cast<size_t>(e.sample)];
      a.text += e.text;
      a.tokens += e.stop ? 0 : 1;
    };
    sink.finished = [&mine = answers[i], &error](const Finished& f) {
      Answer& a = mine[static_cast<size_t>(f.sample)];
      a.text += f.text;
      a.cut = f.reason == FinishReason::max_tokens || f.reason == FinishReason::context;
      if (!f.error.empty()) error = f.error;
    };
    engine_.submit(std::move(q), std::move(sink));
  }
  engine_.run_until_idle();
  if (!error.empty()) throw Error(error);
  return answers;
}

std::vector<std::vector<Answer>> EngineModel::reasoned(std::span<const AnswerRequest> requests,
                                                       const TaskSampling& sampling) {
  reason::RsaOptions rsa = *options_.rsa;
  if (sampling.samples != rsa.population)
    throw Error(fmt::format("the method gives {} answers to each row, and the task has {} samples",
                            rsa.population, sampling.samples),
                "give --population the task's sampling.samples");
  rsa.sampling = sampling_of(sampling);
  std::vector<reason::ReasonProblem> problems;
  for (const AnswerRequest& r : requests) {
    if (r.turns.empty())
      throw Error("majority and rsa need a task in the chat format",
                  "set chat.enabled in the task's file, or name problems without +text");
    reason::ReasonProblem problem{.prompt = {}, .key = r.key};
    for (const ChatTurn& t : r.turns)
      problem.prompt.messages.push_back(chat::text_message(t.role, t.content));
    problems.push_back(std::move(problem));
  }
  if (!requests.empty() &&
      (requests[0].thinking == ThinkingMode::on || requests[0].thinking == ThinkingMode::off))
    rsa.enable_thinking = requests[0].thinking == ThinkingMode::on;
  const reason::Reasoner reasoner{&engine_, &*options_.chat, options_.control.end, {}};
  std::vector<std::vector<Answer>> answers;
  for (const reason::RsaResult& result : reason::markovian_rsa(reasoner, problems, rsa)) {
    std::vector<Answer> row;
    const int64_t n = rsa.population, decoded = result.decoded();
    for (int64_t j = 0; j < n; ++j) {
      const reason::Rollout& r = result.last()[static_cast<size_t>(j)];
      row.push_back({r.text, decoded / n + (j < decoded % n ? 1 : 0), !r.finished});
    }
    answers.push_back(std::move(row));
  }
  return answers;
}

static void require_chat(bool has) {
  if (has) return;
  throw Error("the model has no chat template, so it cannot be asked in a conversation",
              "leave tasks with chat.enabled out, or evaluate a model that was trained on conversations");
}

ChatPrompt EngineModel::chat_prompt(std::span<const ChatTurn> turns, ThinkingMode thinking) const {
  require_chat(options_.chat.has_value());
  chat::Conversation conversation;
  for (const ChatTurn& t : turns) conversation.messages.push_back(chat::text_message(t.role, t.content));
  chat::RenderOptions render{.add_generation_prompt = true};
  if (thinking == ThinkingMode::on || thinking == ThinkingMode::off)
    render.enable_thinking = thinking == ThinkingMode::on;
  const chat::Rendered rendered = options_.chat->render(conversation, render);
  return {options_.chat->encode(rendered, tokenizer_).ids, rendered.text, rendered.ends_in_thinking};
}

ParsedAnswer EngineModel::parse_answer(const std::string& text, bool in_thinking) const {
  require_chat(options_.chat.has_value());
  const chat::Message m = chat::parse_reply(options_.chat->reply_format(), text, in_thinking);
  return {m.reasoning_content.value_or(""), m.content.value_or("")};
}

ThinkingBudget EngineModel::budget_of(int64_t tokens, bool opened) const {
  if (tokens == 0) return {};
  require_chat(options_.chat.has_value());
  const chat::ReplyFormat format = options_.chat->reply_format();
  if (format.think_close.empty())
    throw Error("sampling.thinking_tokens: the model's chat template has no reasoning",
                "leave it out of the task");
  return thinking_budget(format, tokenizer_, tokens, opened);
}

}  // namespace ingot
