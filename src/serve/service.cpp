// See service.h. Access, the small endpoints, and the two threads; generation.cpp has completions and chat.
#include "serve/service.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "serve/json_fields.h"
#include "serve/page.h"

namespace ingot::serve {
namespace {

using Ordered = nlohmann::ordered_json;
using namespace std::chrono_literals;

std::string dumped(const Ordered& value) {
  return value.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

/// "localhost:8000" without its port.
std::string_view name_of_host(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  return colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)
             ? host.substr(0, colon)
             : host;
}

}  // namespace

Service::Service(const Model& model, Tokenizer tokenizer, ControlTokens control,
                 std::optional<chat::ChatTemplate> chat_template, EngineOptions engine,
                 ServiceOptions options)
    : tokenizer_(std::move(tokenizer)),
      control_(std::move(control)),
      template_(std::move(chat_template)),
      options_(std::move(options)),
      created_(static_cast<int64_t>(std::time(nullptr))),
      metrics_(options_.model),
      engine_(model, tokenizer_, engine),
      writer_([this] { write_replies(); }) {}

Service::~Service() {
  stop();
  writer_.join();
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  try {
    check_access(request);
    route(request, reply);
  } catch (const ApiError& e) {
    if (e.status == 429) metrics_.refused();
    reply->send(error_message(e));
  } catch (const Error& e) {  // what the engine, the tokenizer or the template cannot do with this request
    reply->send(error_message(ApiError(e.what())));
  }
}

void Service::check_access(const HttpRequest& r) const {
  const std::string_view host = name_of_host(r.host);
  if (options_.loopback && !host.empty() && host != "localhost" && host != "127.0.0.1" && host != "[::1]")
    throw ApiError("this server answers to localhost only; start it with --host to serve other names", 403);
  if (!r.origin.empty() && r.origin != "http://" + r.host && r.origin != "https://" + r.host)
    throw ApiError("this server does not answer to pages of another origin", 403);
  if (options_.key.empty() || file_of_page(r.path) || r.path == "/health") return;
  constexpr std::string_view kScheme = "Bearer ";
  const bool bearer = r.authorization.starts_with(kScheme);
  if (!equal_in_constant_time(bearer ? r.authorization.substr(kScheme.size()) : "", options_.key))
    throw ApiError("the API key is missing or wrong: send it as 'Authorization: Bearer KEY'", 401, "",
                   "invalid_api_key");
}

void Service::check_model(const std::string& name) const {
  if (!name.empty() && name != options_.model)
    throw ApiError(
        fmt::format("there is no model '{}'; this server has '{}'", name.substr(0, 200), options_.model), 404,
        "model", "model_not_found");
}

void Service::route(const HttpRequest& r, const std::shared_ptr<HttpReply>& reply) {
  static constexpr std::string_view kPosts[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                                "/detokenize"};
  const bool post = std::find(std::begin(kPosts), std::end(kPosts), r.path) != std::end(kPosts);
  const bool reads = r.method == "GET" || r.method == "HEAD";
  if (!post) {
    const HttpMessage answer = get(r.path);
    if (!reads) throw ApiError(fmt::format("{} takes GET, not {}", r.path, r.method), 405);
    return reply->send(answer);
  }
  if (r.method != "POST") throw ApiError(fmt::format("{} takes POST, not {}", r.path, r.method), 405);
  const nlohmann::json body = parse_body(r.body);
  if (r.path == "/v1/completions") return complete(body, r, reply);
  if (r.path == "/v1/chat/completions") return chat(body, r, reply);
  reply->send({200, "application/json", r.path == "/tokenize" ? tokenize(body) : detokenize(body), {}});
}

std::optional<HttpMessage> Service::file_of_page(const std::string& path) const {
  const char* text = path == "/"           ? kPageHtml
                     : path == "/page.css" ? kPageStyle
                     : path == "/page.js"  ? kPageScript
                                           : nullptr;
  if (!text) return std::nullopt;
  const char* type = path == "/" ? "text/html" : path == "/page.css" ? "text/css" : "text/javascript";
  return HttpMessage{
      200,
      std::string(type) + "; charset=utf-8",
      text,
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}}};
}

HttpMessage Service::get(const std::string& path) const {
  if (auto file = file_of_page(path)) return *file;
  if (path == "/health") return {200, "application/json", R"({"status":"ok"})", {}};
  if (path == "/version") return {200, "application/json", dumped({{"version", build_info().version}}), {}};
  if (path == "/metrics") return {200, kPrometheusType, metrics_.text(engine_.stats()), {}};
  if (path == "/v1/models") return {200, "application/json", models_json(), {}};
  if (path == "/tokenizer_info") return {200, "application/json", tokenizer_info_json(), {}};
  throw ApiError(fmt::format("there is nothing at {}", path.substr(0, 200)), 404);
}

std::string Service::models_json() const {
  return dumped({{"object", "list"},
                 {"data",
                  {{{"id", options_.model},
                    {"object", "model"},
                    {"created", created_},
                    {"owned_by", "ingot"},
                    {"max_model_len", engine_.model().config().context}}}}});
}

std::string Service::tokenizer_info_json() const {
  const auto text = [&](std::optional<int32_t> id) {
    return id ? Ordered(std::string(tokenizer_.token_bytes(*id))) : Ordered(nullptr);
  };
  const TokenRoles& roles = tokenizer_.roles();
  std::optional<int32_t> end = roles.eos;
  if (!end && !control_.end.empty()) end = control_.end.front();
  Ordered info = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"bos_token", text(roles.bos ? roles.bos : control_.begin)},
                  {"eos_token", text(end)},
                  {"pad_token", text(roles.pad)},
                  {"add_bos_token", control_.begin.has_value()},
                  {"vocab_size", tokenizer_.vocab_size()},
                  {"model_max_length", engine_.model().config().context},
                  {"chat_template", template_ ? Ordered(template_->source()) : Ordered(nullptr)}};
  return dumped(info);
}

std::vector<int32_t> Service::text_ids(const std::string& text, bool begin_token) const {
  std::vector<int32_t> ids;
  if (begin_token && control_.begin) ids.push_back(*control_.begin);
  // Who completes a text writes its control tokens himself, as with Hugging Face and vLLM; a chat's messages
  // cannot (chat_template.h).
  tokenizer_.encode_to(text, {.parse_special = true}, ids);
  return ids;
}

std::string Service::tokenize(const nlohmann::json& body) const {
  const TokenizeRequest r = read_tokenize(body);
  check_model(r.model);
  std::vector<int32_t> ids;
  if (r.prompt) {
    ids = text_ids(*r.prompt, r.begin_token);
  } else {
    chat::RenderOptions how;
    how.add_generation_prompt = r.generation_prompt;
    ids = chat_template().prompt_ids(r.conversation, tokenizer_, how);
  }
  Ordered answer = {
      {"count", ids.size()}, {"max_model_len", engine_.model().config().context}, {"tokens", ids}};
  if (r.texts) {
    answer["token_strs"] = Ordered::array();
    for (const int32_t id : ids) answer["token_strs"].push_back(tokenizer_.decode({&id, 1}));
  }
  return dumped(answer);
}

std::string Service::detokenize(const nlohmann::json& body) const {
  const DetokenizeRequest r = read_detokenize(body, tokenizer_.vocab_size());
  check_model(r.model);
  return dumped({{"prompt", tokenizer_.decode(r.ids)}});
}

const chat::ChatTemplate& Service::chat_template() const {
  if (template_) return *template_;
  throw ApiError("the model has no chat template: it continues text; use /v1/completions", 400, "messages");
}

void Service::note_change(const std::shared_ptr<Job>& job) {
  if (!job->note_change()) return;
  {
    const std::lock_guard lock(mutex_);
    written_.push_back(job);
    if (written_.size() > 1) return;  // the writer has been woken
  }
  changed_.notify_one();
}

/// The writer's thread. It writes at most every few milliseconds, so that tokens of fast models share events.
void Service::write_replies() {
  constexpr auto kPause = 4ms;
  auto next_look = Clock::now();
  std::vector<std::shared_ptr<Job>> jobs;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, 100ms, [&] { return !written_.empty() || stopping_; });
      if (stopping_ && jobs_.empty()) return;
      jobs.swap(written_);
    }
    for (const auto& job : jobs) {
      if (!job->flush()) continue;
      const std::lock_guard lock(mutex_);
      const auto found = std::find(jobs_.begin(), jobs_.end(), job);
      if (found == jobs_.end()) continue;
      samples_ -= job->samples();
      jobs_.erase(found);
    }
    jobs.clear();
    if (Clock::now() > next_look) {
      end_late_jobs();
      next_look = Clock::now() + 200ms;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void Service::end_late_jobs() {
  std::vector<std::shared_ptr<Job>> late;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_)
      if (stopping_ || Clock::now() - job->began() > options_.deadline) late.push_back(job);
  }
  for (const auto& job : late)
    job->fail(
        stopping_
            ? ApiError("the server is stopping", 503)
            : ApiError(fmt::format("the request took longer than {} s", options_.deadline.count()), 504));
}

void Service::run() {
  const auto ended = [&] {
    const std::lock_guard lock(mutex_);
    return stopping_ && jobs_.empty();
  };
  while (!ended())
    if (!engine_.step()) engine_.wait_for_work(100ms);
  engine_.run_until_idle();  // lets go of what was cancelled
}

void Service::stop() {
  stopping_ = true;
  changed_.notify_all();
}

}  // namespace ingot::serve
