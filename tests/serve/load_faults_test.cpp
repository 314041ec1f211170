// The server under load: 64 clients, most of which ask for the same, others read slowly, go away, send too
// much, nonsense or a wrong key. INGOT_LONG_TESTS=1: a minute of it, with the times to the first token, and
// the rate of 64 clients beside that of the engine alone (for a machine that does nothing else).
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include "models/presets.h"
#include "support/http_client.h"
#include "support/imported.h"
#include "support/long_tests.h"
#include "support/running_server.h"

namespace ingot::test::load_faults_test {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

const char* const kKey = "Authorization: Bearer secret\r\n";
const char* const kFixed = R"({"prompt":"the river","max_tokens":40,"seed":11,"logprobs":2})";

std::string streaming_request(int samples) {
  return fmt::format(R"({{"prompt":"once upon","max_tokens":60,"ignore_eos":true,"n":{},"stream":true}})",
                     samples);
}

/// What a client saw of a streamed reply.
struct Streamed {
  int status = 0;
  double first_seconds = 0;  ///< to the first token
  bool complete = false;
};

/// Asks on a connection of its own. A slow client holds little and takes its time.
Streamed stream(uint16_t port, const std::string& body, bool slow = false) {
  HttpClient client(port, slow ? 2048 : 0);
  const auto began = Clock::now();
  Streamed s;
  client.send(http_request("POST", "/v1/completions", body, std::string(kKey) + "Connection: close\r\n"));
  std::string all;
  for (std::string some; !(some = client.some(60)).empty();) {
    all += some;
    if (s.first_seconds == 0 && all.find("data: {") != std::string::npos) s.first_seconds = since(began);
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (all.starts_with("HTTP/1.1 ")) s.status = std::stoi(all.substr(9, 3));
  s.complete = all.find("data: [DONE]") != std::string::npos && all.find("\"error\"") == std::string::npos;
  return s;
}

/// What 64 clients do until they are told to stop, and what comes of it.
class Load {
 public:
  explicit Load(uint16_t port) : port_(port) {
    const auto add = [&](int count, void (Load::*what)(int)) {
      for (int i = 0; i < count; ++i)
        clients_.emplace_back([this, what] {
          for (int turn = 0; !stop_; ++turn) (this->*what)(turn);
        });
    };
    add(44, &Load::equal), add(6, &Load::read_slowly), add(4, &Load::go_away);
    add(4, &Load::send_too_much), add(4, &Load::send_nonsense), add(2, &Load::use_a_wrong_key);
  }
  void end() {
    stop_ = true;
    for (std::thread& c : clients_) c.join();
  }

  std::atomic<int64_t> completed{0}, refused{0}, slow_completed{0}, turned_away{0};
  std::vector<double> first_seconds;  ///< of equal requests

 private:
  void equal(int) {
    const Streamed s = stream(port_, streaming_request(1));
    if (judge(s, "an equal request")) {
      const std::lock_guard lock(mutex_);
      first_seconds.push_back(s.first_seconds);
    }
  }
  void read_slowly(int) {
    slow_completed += judge(stream(port_, streaming_request(2), true), "a slow reader") ? 1 : 0;
  }
  /// Well-formed requests complete or are asked to come again.
  bool judge(const Streamed& s, const char* who) {
    if (s.status == 429) {
      ++refused;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return false;
    }
    EXPECT_TRUE(s.status == 200 && s.complete) << who << " got " << s.status;
    ++completed;
    return true;
  }
  void go_away(int turn) {
    HttpClient client(port_);
    client.send(http_request("POST", "/v1/completions", streaming_request(4), kKey));
    if (turn % 2 == 0) client.some();
  }
  void send_too_much(int turn) {
    if (turn % 2 == 0)
      expect(std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n") + kKey +
                 "Content-Length: 9000000\r\n\r\n",
             413);
    else
      expect("GET /v1/models HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n", 431);
  }
  void send_nonsense(int turn) {
    const char* const bodies[] = {"{", "[]", R"({"prompt":"a","n":0})",
                                  R"({"prompt":"a","temperature":1e999})", R"({"prompt":[-1]})"};
    if (turn % 6 == 5)
      expect("NONSENSE\r\n\r\n", 400);
    else
      expect(http_request("POST", "/v1/completions", bodies[turn % 6], kKey), 400);
  }
  void use_a_wrong_key(int) {
    expect(http_request("POST", "/v1/completions", streaming_request(1), "Authorization: Bearer guess\r\n"),
           401);
  }
  void expect(const std::string& bytes, int status) {
    HttpClient client(port_);
    client.send(bytes);
    const HttpAnswer a = client.receive();
    EXPECT_EQ(a.status, status) << a.body;
    ++turned_away;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  const uint16_t port_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<std::thread> clients_;
};

/// The fixed request's answer; it asks again where it is refused.
Json fixed_answer(uint16_t port) {
  HttpAnswer a;
  for (int i = 0; i < 2000 && a.status != 200; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    a = http_post(port, "/v1/completions", kFixed, kKey);
    EXPECT_TRUE(a.status == 200 || a.status == 429) << a.status << a.body;
  }
  return Json::parse(a.body, nullptr, false).value("choices", Json());
}

void wait_until_idle(uint16_t port) {
  for (int i = 0; i < 3000; ++i) {
    if (http_get(port, "/metrics", kKey).body.find("num_requests_running{model_name=\"in\"} 0") !=
        std::string::npos)
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "requests are still under way";
}

TEST(ServerLoad, SixtyFourClientsOfEveryKind) {
  constexpr int64_t kMiB = 1 << 20, kCache = 8 * kMiB;
  const TempDir dir;
  generation_fixture(dir, "llama");
  ASSERT_EQ(shell(dir, "$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  ServerProgram server(dir, "--cache 8MiB --queue 64", "secret");
  const int64_t loaded = server.memory("VmRSS");
  const Json idle = fixed_answer(server.port());
  EXPECT_EQ(idle.size(), 1u);
  {  // what the first requests allocate, and the store, stays
    Load warm_up(server.port());
    std::this_thread::sleep_for(std::chrono::seconds(long_tests() ? 5 : 1));
    warm_up.end();
    wait_until_idle(server.port());
  }
  const int64_t before = server.memory("VmRSS");
  Load load(server.port());
  int64_t fixed = 0;
  for (const auto began = Clock::now(); since(began) < (long_tests() ? 60 : 3); ++fixed) {
    EXPECT_EQ(fixed_answer(server.port()), idle) << "under load";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  load.end();
  wait_until_idle(server.port());
  EXPECT_EQ(fixed_answer(server.port()), idle) << "afterwards";
  const int64_t most = server.memory("VmHWM"), after = server.memory("VmRSS");
  // Beside weights and store, 64 clients at once have 64 stacks, buffers and replies under way: 4 MiB each.
  EXPECT_LE(most, loaded + kCache + 64 * 4 * kMiB);
  // After seconds only, allocators of threads have not seen everything yet.
  EXPECT_LE(after, before + before / 20 + (long_tests() ? 0 : 8 * kMiB));
  EXPECT_GT(load.slow_completed, 0);
  EXPECT_GT(load.turned_away, 20);
  std::sort(load.first_seconds.begin(), load.first_seconds.end());
  const size_t count = load.first_seconds.size();
  ASSERT_GT(count, 40u);
  const double median = load.first_seconds[count / 2], p99 = load.first_seconds[count * 99 / 100];
  if (long_tests()) {
    EXPECT_LE(p99, 5 * median);
  }
  fmt::print(
      "{} completed ({} of slow readers), {} asked to come again, {} turned away, {} fixed requests; first "
      "token: "
      "median {:.1f} ms, p99 {:.1f} ms; resident: {:.1f} MiB loaded, {:.1f} before, {:.1f} at most, {:.1f} "
      "after\n",
      load.completed.load(), load.slow_completed.load(), load.refused.load(), load.turned_away.load(), fixed,
      1e3 * median, 1e3 * p99, loaded / 1048576.0, before / 1048576.0, most / 1048576.0, after / 1048576.0);
  EXPECT_EQ(server.end(SIGINT), 0);
}

/// Seconds that 64 requests of `tokens` new tokens take.
double engine_seconds(const Model& model, const std::vector<Request>& requests) {
  Engine engine(model, {});
  const auto began = Clock::now();
  for (const Request& r : requests) engine.submit(r, {});
  engine.run_until_idle();
  return since(began);
}

double server_seconds(uint16_t port, const std::vector<Request>& requests, bool streamed) {
  std::vector<std::thread> clients;
  const auto began = Clock::now();
  for (const Request& r : requests)
    clients.emplace_back([&r, port, streamed] {
      const Json body = {{"prompt", r.prompt},
                         {"max_tokens", r.max_tokens},
                         {"ignore_eos", true},
                         {"seed", r.sampling.seed},
                         {"stream", streamed}};
      const HttpAnswer a = http_post(port, "/v1/completions", body.dump());
      EXPECT_EQ(a.status, 200) << a.body;
    });
  for (std::thread& c : clients) c.join();
  return since(began);
}

TEST(ServerLoad, SixtyFourClientsReachTheEnginesRate) {
  INGOT_LONG_TEST("on a machine that does nothing else");
  std::string characters;
  for (int c = 0x4E00; characters.size() < 3 * 4096; ++c)
    for (const int byte : {0xE0 | c >> 12, 0x80 | (c >> 6 & 63), 0x80 | (c & 63)})
      characters += static_cast<char>(byte);
  const Tokenizer tokenizer = Tokenizer::from_characters(characters);
  ModelConfig config = model_preset("zaya-mini");
  config.vocab = tokenizer.vocab_size();
  Model model(config, Precision::f32());
  model.weights().initialize(1);
  std::vector<Request> requests(64);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.assign(32, static_cast<int32_t>(10 + i));
    requests[i].max_tokens = 96;
    requests[i].sampling.seed = i;
  }
  const ServerThread server(model, tokenizer, {}, std::nullopt, {}, {.model = "zaya-mini"});
  std::vector<double> ratios, streamed_ratios;
  for (int round = 0; round < 5; ++round) {
    const double alone = engine_seconds(model, requests);
    ratios.push_back(alone / server_seconds(server.port(), requests, false));
    streamed_ratios.push_back(alone / server_seconds(server.port(), requests, true));
    fmt::print("{:.0f} tokens/s by the engine; of it through the server: {:.3f}, as streams {:.3f}\n",
               64 * 96 / alone, ratios.back(), streamed_ratios.back());
  }
  std::sort(ratios.begin(), ratios.end());
  EXPECT_GE(ratios[2], 0.9);
}

}  // namespace ingot::test::load_faults_test
