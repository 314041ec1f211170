// See running_server.h.
#include "support/running_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <sstream>

#include "support/http_client.h"

namespace ingot::test {

ServerProgram::ServerProgram(const TempDir& dir, const std::string& options, const std::string& key)
    : out_(dir / "serve_out"),
      process_({"/bin/bash", "-c",
                "exec $INGOT serve $DIR/in --port 0 " + options + " >$DIR/serve_out 2>$DIR/serve_err"},
               {"INGOT=" INGOT_BINARY, "DIR=" + dir.path(), "INGOT_API_KEY=" + key}) {
  for (int i = 0; i < 6000; ++i) {
    const std::string text = std::filesystem::exists(out_) ? read_text(out_) : "";
    if (text.find("Ctrl-C ends.") != std::string::npos) {
      const size_t at = text.find("http://127.0.0.1:") + 17;
      port_ = static_cast<uint16_t>(std::stoi(text.substr(at)));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "the server did not start: " << read_text(dir / "serve_err");
}

int64_t ServerProgram::memory(const std::string& field) const {
  std::istringstream lines(read_text("/proc/" + std::to_string(process_.pid()) + "/status"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  ADD_FAILURE() << "no " << field;
  return 0;
}

nlohmann::json ServerProgram::post(const std::string& path, const std::string& body, int status) const {
  const HttpAnswer a = http_post(port_, path, body);
  EXPECT_EQ(a.status, status) << a.body;
  return nlohmann::json::parse(a.body, nullptr, false);
}

int ServerProgram::end(int signal) {
  process_.signal(signal);
  return process_.wait().exit_code;
}

ServerThread::ServerThread(const Model& model, const Tokenizer& tokenizer, const ControlTokens& control,
                           std::optional<chat::ChatTemplate> chat_template, const EngineOptions& engine,
                           const serve::ServiceOptions& options)
    : service_(model, tokenizer, control, std::move(chat_template), engine, options),
      server_("127.0.0.1", 0, {},
              [](int status, const std::string& why) {
                return serve::error_message(serve::ApiError(why, status));
              }),
      loop_([this] { service_.run(); }) {
  server_.start([this](serve::HttpRequest r, std::shared_ptr<serve::HttpReply> reply) {
    service_.handle(std::move(r), std::move(reply));
  });
}

ServerThread::~ServerThread() {
  server_.stop_accepting();
  service_.stop();
  loop_.join();
  server_.close();
}

}  // namespace ingot::test
