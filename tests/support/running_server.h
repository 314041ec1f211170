// A server that listens on a free port: the program `ingot serve`, or its service in this process.
#pragma once
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "serve/service.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test {

/// `ingot serve` of the model in dir/in.
class ServerProgram {
 public:
  explicit ServerProgram(const TempDir& dir, const std::string& options = "", const std::string& key = "");
  uint16_t port() const { return port_; }
  /// A field of /proc/PID/status in bytes, such as VmRSS.
  int64_t memory(const std::string& field) const;
  /// The reply's JSON; another status fails the test.
  nlohmann::json post(const std::string& path, const std::string& body, int status = 200) const;
  /// Its exit code.
  int end(int signal);

 private:
  std::string out_;
  Process process_;
  uint16_t port_ = 0;
};

/// The service over a model, which must outlive it, as `ingot serve` runs it.
class ServerThread {
 public:
  ServerThread(const Model& model, const Tokenizer& tokenizer, const ControlTokens& control,
               std::optional<chat::ChatTemplate> chat_template, const EngineOptions& engine,
               const serve::ServiceOptions& options);
  ~ServerThread();
  uint16_t port() const { return server_.port(); }
  EngineStats stats() const { return service_.stats(); }

 private:
  serve::Service service_;
  serve::HttpServer server_;
  std::thread loop_;
};

}  // namespace ingot::test
