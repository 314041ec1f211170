// `ingot serve`: a model behind OpenAI's HTTP API, and a page to talk to it, until Ctrl-C.
#include <fmt/core.h>
#include <semaphore.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <thread>

#include "apps/checks.h"
#include "apps/inference.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/log.h"
#include "infer/engine.h"
#include "serve/service.h"
#include "train/memory_policy.h"

namespace ingot {
namespace {

struct ServeArguments : InferenceArguments {
  std::string host = "127.0.0.1", name, key_file, cache;
  uint16_t port = 8000;
  int64_t queue = 1024, token_budget = 512, deadline = 600;
};

sem_t end_of_service;

/// The first signal ends the service in order, the second at once.
void end_on_signals() {
  ::sem_init(&end_of_service, 0, 0);
  struct sigaction action {};
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  action.sa_handler = [](int) { ::sem_post(&end_of_service); };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

void wait_for_signal() {
  while (::sem_wait(&end_of_service) != 0) {
  }
}

/// The key from the file's first line or the environment: a flag would show it to every user of the machine.
std::string key_of(const ServeArguments& o) {
  if (o.key_file.empty()) {
    const char* key = std::getenv("INGOT_API_KEY");
    return key == nullptr ? "" : key;
  }
  std::string key = real_file_system().read(o.key_file);
  key.resize(std::min(key.find_first_of("\r\n"), key.size()));
  if (key.empty())
    throw Error(fmt::format("the first line of '{}' is empty, but it is the API key", o.key_file),
                "write the key into the file, or leave out --api-key-file");
  return key;
}

std::string name_of(const ServeArguments& o) {
  if (!o.name.empty()) return o.name;
  const std::string named = o.model.path();
  const auto path = std::filesystem::absolute(named).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.0f} MiB", std::ceil(static_cast<double>(bytes) / 1048576.0));
}

/// What is served, and how to reach it. Standard output, so that a program can read the port.
void announce(const Session& s, const serve::Service& service, const serve::HttpServer& server,
              const serve::ServiceOptions& options) {
  const EngineStats stats = service.stats();
  const std::string address =
      server.address().find(':') == std::string::npos ? server.address() : "[" + server.address() + "]";
  std::cout << fmt::format(
                   "{}: {} of weights, {} of cache, context {}, {}\n"
                   "page   http://{}:{}/\n"
                   "API    http://{}:{}/v1{}\n"
                   "Ctrl-C ends.\n",
                   options.model, mebibytes(s.model.bytes()), mebibytes(stats.page_limit * stats.page_bytes),
                   s.model.model().config().context,
                   s.chat_template ? "chat template " + s.chat_template->name()
                                   : "no chat template: it continues text",
                   address, server.port(), address, server.port(),
                   options.key.empty() ? "" : " (with the key)")
            << std::flush;
  if (!server.loopback() && options.key.empty())
    log::warn("anyone who reaches {} can use this server: give --api-key-file, or leave out --host", address);
}

int serve_model(const ServeArguments& o) {
  serve::ServiceOptions options;
  options.model = name_of(o);
  options.key = key_of(o);
  options.queue = o.queue;
  options.deadline = std::chrono::seconds(o.deadline);
  // First the port: where it is in use, nothing has been loaded.
  serve::HttpServer server(o.host, o.port, {}, [](int status, const std::string& why) {
    return serve::error_message(serve::ApiError(why, status));
  });
  options.loopback = server.loopback();
  const Session s = open_session(o);
  EngineOptions engine;
  engine.token_budget = o.token_budget;
  engine.cache_bytes = parse_memory(o.cache, "--cache");
  engine.latents = s.latents;
  serve::Service service(s.model.model(), s.tokenizer, s.control, s.chat_template, engine, options);
  end_on_signals();
  server.start([&](serve::HttpRequest request, std::shared_ptr<serve::HttpReply> reply) {
    service.handle(std::move(request), std::move(reply));
  });
  std::exception_ptr failure;
  std::thread loop([&] {
    try {
      service.run();
    } catch (...) {
      failure = std::current_exception();
      ::sem_post(&end_of_service);
    }
  });
  announce(s, service, server, options);
  wait_for_signal();
  log::info("ending");
  server.stop_accepting();
  service.stop();
  loop.join();
  server.close();
  if (failure) std::rethrow_exception(failure);
  return 0;
}

}  // namespace

void add_serve_command(CLI::App& app, int& code) {
  auto o = std::make_shared<ServeArguments>();
  CLI::App* c =
      app.add_subcommand("serve", "answer OpenAI clients over HTTP, and show a page to talk to a model");
  add_model_options(c, *o);
  add_chat_template_option(c, *o);
  c->add_option("--host", o->host, "address to listen on; others than loopback let the network in")
      ->capture_default_str();
  c->add_option("--port", o->port, "port; 0: any free one")
      ->capture_default_str()
      ->check(in(between(0, 65535)));
  c->add_option("--name", o->name, "the model's name for clients; default: its folder's");
  c->add_option(
      "--api-key-file", o->key_file,
      "file whose first line clients must send as bearer token; default: $INGOT_API_KEY, or no key");
  c->add_option("--cache", o->cache,
                "memory of cached sequences, e.g. 2GiB; default: 8 sequences of the context, at most 2GiB");
  c->add_option("--token-budget", o->token_budget, "rows of one call of the model")
      ->capture_default_str()
      ->check(in(between(1, 0x1p20)));
  c->add_option("--queue", o->queue, "answers under way at most; further requests get 429")
      ->capture_default_str()
      ->check(in(between(1, 0x1p20)));
  c->add_option("--deadline", o->deadline, "seconds that a request may take")
      ->capture_default_str()
      ->check(in(between(1, 0x1p30, "seconds")));
  c->footer(
      "Examples:\n"
      "  ingot serve runs/first                       # then open http://127.0.0.1:8000/\n"
      "  curl -s http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"prompt\": \"The \", \"max_tokens\": 20}'");
  c->callback([o, &code] { code = serve_model(*o); });
}

}  // namespace ingot
