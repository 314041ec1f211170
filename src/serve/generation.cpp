// Completions and chat: a request becomes prompts and a job. See service.h.
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "serve/service.h"

namespace ingot::serve {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

uint64_t seed_of(const Generation& g) {
  return g.seed ? static_cast<uint64_t>(*g.seed) : random_seed();
}

}  // namespace

/// Bounds the new tokens by what the context has left, and refuses what cannot be held.
void Service::fit(JobOptions& o, const std::vector<JobPrompt>& prompts) const {
  const int64_t context = engine_.model().config().context;
  int64_t longest = 0, all = 0;
  for (const JobPrompt& p : prompts) {
    const auto n = static_cast<int64_t>(p.ids.size());
    if (n == 0)
      throw ApiError("the prompt is empty, and the model has no token that begins a text", 400, "prompt");
    if (n > context)
      throw ApiError(fmt::format("the prompt has {} tokens, and the model's context is {}", n, context), 400,
                     o.chat ? "messages" : "prompt", "context_length_exceeded");
    longest = std::max(longest, n);
    all += n;
  }
  o.max_tokens = std::min(o.generation.max_tokens.value_or(context), context);
  const int64_t top = o.generation.top;
  if (top < 0 && !o.generation.token_ids) return;
  const int64_t choices = static_cast<int64_t>(prompts.size()) * o.generation.n;
  const int64_t tokens = (o.echo ? all * o.generation.n : 0) + choices * o.max_tokens;
  if (tokens > limits::kReported / (std::max<int64_t>(top, 0) + 1))
    throw ApiError(fmt::format("the reply would have {} log-probabilities or ids, at most {} are given",
                               tokens * (std::max<int64_t>(top, 0) + 1), limits::kReported),
                   400, "logprobs");
}

void Service::complete(const nlohmann::json& body, const HttpRequest& request,
                       const std::shared_ptr<HttpReply>& reply) {
  const CompletionRequest r = read_completion(body, tokenizer_.vocab_size());
  check_model(r.model);
  std::vector<JobPrompt> prompts;
  for (const Prompt& p : r.prompts) {
    JobPrompt one;
    one.seed = seed_of(r);
    if (const auto* text = std::get_if<std::string>(&p)) {
      one.ids = text_ids(*text, r.begin_token);
      one.text = *text;
    } else {
      one.ids = std::get<std::vector<int32_t>>(p);
      if (r.echo) one.text = tokenizer_.decode(one.ids);
    }
    prompts.push_back(std::move(one));
  }
  JobOptions o;
  o.generation = r;
  o.echo = r.echo;
  o.stop_strings = r.stop;
  if (!r.ignore_end) o.stop_ids = control_.end;
  start(std::move(o), std::move(prompts), request, reply);
}

void Service::chat(const nlohmann::json& body, const HttpRequest& request,
                   const std::shared_ptr<HttpReply>& reply) {
  const ChatRequest r = read_chat(body);
  check_model(r.model);
  const chat::ChatTemplate& t = chat_template();
  chat::RenderOptions how;
  how.add_generation_prompt = true;
  how.enable_thinking = r.enable_thinking;
  how.kwargs = r.template_arguments;
  const chat::Rendered rendered = t.render(r.conversation, how);
  std::vector<JobPrompt> prompts(1);
  prompts[0].ids = t.encode(rendered, tokenizer_).ids;
  prompts[0].seed = seed_of(r);
  JobOptions o;
  o.generation = r;
  o.chat = true;
  o.stop_strings = r.stop;
  o.tools = r.conversation.tools;
  o.format = t.reply_format(r.template_arguments);
  if (r.conversation.tools.empty()) o.format->tools = chat::ToolStyle::none;
  o.in_thinking = rendered.ends_in_thinking;
  if (!r.ignore_end) {
    o.stop_ids = control_.end;
    for (const std::string& mark : t.ends_of_turn()) {
      const auto id = tokenizer_.special_id(mark);
      if (!id)
        o.stop_strings.push_back(mark);
      else if (std::find(o.stop_ids.begin(), o.stop_ids.end(), *id) == o.stop_ids.end())
        o.stop_ids.push_back(*id);
    }
  }
  if (r.reason) o.reasoning = reasoning_of(r, t, o.stop_ids, prompts[0].seed);
  o.thinking = thinking_budget(*o.format, tokenizer_, r.thinking_budget.value_or(-1), o.in_thinking);
  if (o.format->think_close.empty() && r.thinking_budget)
    throw ApiError("'thinking_budget' is given, but the model's template has no thinking", 400,
                   "thinking_budget");
  start(std::move(o), std::move(prompts), request, reply);
}

/// Refuses what the context does not hold in any round, before the first.
std::shared_ptr<Reasoning> Service::reasoning_of(const ChatRequest& r, const chat::ChatTemplate& t,
                                                 const std::vector<int32_t>& stop_ids, uint64_t seed) {
  if (!r.template_arguments.empty())
    throw ApiError("'reason' takes no template arguments but enable_thinking", 400, "chat_template_kwargs");
  reason::RsaOptions rsa = *r.reason;
  rsa.sampling = r.sampling;
  rsa.sampling.seed = seed;
  rsa.enable_thinking = r.enable_thinking;
  const auto made = std::make_shared<Reasoning>();
  made->reasoner = {&engine_, &t, stop_ids, {}};
  made->population = rsa.population;
  made->run.emplace(made->reasoner, reason::ReasonProblem{r.conversation, 0}, rsa);
  const int64_t context = engine_.model().config().context;
  const int64_t needed = made->run->longest_prompt() + rsa.budget + rsa.answer_tokens + 16;  // and marks
  if (rsa.rounds > 0 && needed > context)
    throw ApiError(
        fmt::format("a round of 'reason' may need {} tokens, and the model's context is {}", needed, context),
        400, "reason", "context_length_exceeded");
  return made;
}

void Service::start(JobOptions options, std::vector<JobPrompt> prompts, const HttpRequest& request,
                    const std::shared_ptr<HttpReply>& reply) {
  fit(options, prompts);
  ReplyWriter writer(tokenizer_, {.chat = options.chat,
                                  .model = options_.model,
                                  .created = static_cast<int64_t>(std::time(nullptr)),
                                  .logprobs = options.generation.top >= 0,
                                  .token_ids = options.generation.token_ids});
  const auto job =
      std::make_shared<Job>(engine_, metrics_, std::move(writer), std::move(options), std::move(prompts),
                            reply, request.held, [this](const std::shared_ptr<Job>& j) { note_change(j); });
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw ApiError("the server is stopping", 503);
    if (samples_ + job->samples() > options_.queue)
      throw ApiError(fmt::format("{} answers are under way, at most {} are; try again in a second", samples_,
                                 options_.queue),
                     429, "", "rate_limit_exceeded");
    samples_ += job->samples();
    jobs_.push_back(job);
  }
  try {
    job->submit();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    samples_ -= job->samples();
    std::erase(jobs_, job);
    throw;
  }
}

}  // namespace ingot::serve
