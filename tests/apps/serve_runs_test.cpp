// `ingot serve` as a program: stock requests over HTTP, wrong ones beside them, and what ends it.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/http_client.h"
#include "support/imported.h"
#include "support/prometheus_grammar.h"
#include "support/running_server.h"
#include "support/tiny_run.h"

namespace ingot::test::serve_runs_test {

using Json = nlohmann::json;

class ServeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    generation_fixture(dir_, "llama");
    ASSERT_EQ(shell(dir_, "$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  }
  TempDir dir_;
};

TEST_F(ServeTest, CompletionsTokensAndErrors) {
  ServerProgram server(dir_);
  const Json models = Json::parse(http_get(server.port(), "/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "in");
  EXPECT_EQ(models["data"][0]["max_model_len"], 256);
  const Json ids = server.post("/tokenize", R"({"prompt":"the river","add_special_tokens":false})")["tokens"];
  EXPECT_EQ(server.post("/detokenize", Json{{"tokens", ids}}.dump())["prompt"], "the river");
  EXPECT_EQ(server.post("/tokenize", R"({"prompt":"<|end_of_text|>","add_special_tokens":false})")["count"],
            1);
  // What lm-evaluation-harness scores with: one value for each token of the prompt and the one that is made.
  const Json scored = server.post("/v1/completions", Json{{"model", "in"},
                                                          {"prompt", {ids, ids}},
                                                          {"temperature", 0},
                                                          {"max_tokens", 1},
                                                          {"logprobs", 1},
                                                          {"seed", 1234},
                                                          {"echo", true}}
                                                         .dump());
  ASSERT_EQ(scored["choices"].size(), 2u);
  for (const Json& choice : scored["choices"]) {
    const Json& l = choice["logprobs"];
    EXPECT_EQ(l["token_logprobs"].size(), ids.size() + 1);
    EXPECT_TRUE(l["token_logprobs"][0].is_null() && l["top_logprobs"][0].is_null());
    for (size_t i = 1; i <= ids.size(); ++i) {
      double best = -1e9;
      for (const Json& one : l["top_logprobs"][i]) best = std::max(best, one.get<double>());
      EXPECT_GE(best, l["token_logprobs"][i].get<double>());
    }
    EXPECT_EQ(l["token_logprobs"].back(), l["top_logprobs"].back().front())
        << "the greedy token, the same value";
  }
  EXPECT_EQ(server.post("/v1/completions",
                        R"({"prompt":"a","echo":true,"max_tokens":0,"logprobs":0})")["choices"][0]["text"],
            "a");
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","model":"other"})", 404)["error"]["code"],
            "model_not_found");
  EXPECT_EQ(
      server.post("/v1/completions", Json{{"prompt", std::vector<int>(300, 1)}}.dump(), 400)["error"]["code"],
      "context_length_exceeded");
  server.post("/v1/completions", "{", 400);
  server.post("/v1/nothing", "{}", 404);
  EXPECT_EQ(http_get(server.port(), "/v1/completions").status, 405);
  const Json chat =
      server.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})", 400);
  EXPECT_NE(chat["error"]["message"].get<std::string>().find("no chat template"), std::string::npos);
  HttpClient foreign(server.port());
  foreign.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(foreign.receive().status, 403);
  EXPECT_EQ(http_get(server.port(), "/v1/models", "Origin: http://evil.example\r\n").status, 403);
  const HttpAnswer page = http_get(server.port(), "/");
  EXPECT_NE(page.body.find("<script src=\"/page.js\">"), std::string::npos);
  EXPECT_NE(page.fields.at("content-security-policy").find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(http_get(server.port(), "/page.js").status, 200);
  const PrometheusText metrics = read_prometheus(http_get(server.port(), "/metrics").body);
  EXPECT_EQ(metrics.problems, "");
  EXPECT_EQ(metrics.samples.count("vllm:generation_tokens_total{model_name=\"in\"}"), 1U);
  EXPECT_EQ(server.end(SIGINT), 0);
}

/// The joined text of a stream, which must end as streams end.
std::string streamed(const std::string& events) {
  EXPECT_TRUE(events.ends_with("data: [DONE]\n\n")) << events;
  std::string text;
  for (size_t at = 0; (at = events.find("data: {", at)) != std::string::npos; ++at) {
    const Json event = Json::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
    for (const Json& c : event["choices"]) {
      if (c.contains("text"))
        text += c["text"].get<std::string>();
      else if (c["delta"].contains("content"))
        text += c["delta"]["content"].get<std::string>();
    }
  }
  return text;
}

TEST_F(ServeTest, ChatStreamsEqualWholeReplies) {
  ServerProgram server(dir_, "--chat-template chatml-think");
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":20,"seed":7)";
  const Json whole = server.post("/v1/chat/completions", body + "}");
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  const HttpAnswer stream = http_post(server.port(), "/v1/chat/completions", body + R"(,"stream":true})");
  EXPECT_EQ(streamed(stream.body), whole["choices"][0]["message"]["content"]);
  const Json several = server.post(
      "/v1/chat/completions", body + R"(,"n":3,"logprobs":true,"top_logprobs":2,"return_token_ids":true})");
  ASSERT_EQ(several["choices"].size(), 3u);
  EXPECT_EQ(several["choices"][0]["message"], whole["choices"][0]["message"])
      << "the first of several is the one";
  EXPECT_EQ(several["choices"][1]["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
  server.post("/v1/chat/completions", body + R"(,"tool_choice":"required"})", 400);
  EXPECT_EQ(server.end(SIGTERM), 0);
}

TEST_F(ServeTest, AnswersAreEqualUnderLoadAndRudeClientsCostNobody) {
  ServerProgram server(dir_, "--queue 48");
  const std::string fixed = R"({"prompt":"the river","max_tokens":40,"seed":11,"logprobs":2})";
  const Json idle = server.post("/v1/completions", fixed)["choices"];
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0}, refused{0}, wrong{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 16; ++c)
    clients.emplace_back([&, c] {
      for (int i = 0; !stop; ++i) {
        HttpClient client(server.port(), c % 4 == 3 ? 2048 : 0);
        const std::string body = R"({"prompt":"once","max_tokens":60,"n":4,"stream":)" +
                                 std::string(c % 2 == 0 ? "true" : "false") + "}";
        if (c % 4 == 0) {  // goes away in the middle
          client.send(http_request("POST", "/v1/completions", body));
          client.some(1);
        } else if (c % 4 == 1 && i % 2 == 1) {  // malformed
          client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n");
          const HttpAnswer a = client.receive();
          EXPECT_EQ(a.status, 413) << a.body;
          if (a.status != 413) ++wrong;
        } else {
          const HttpAnswer a = client.post("/v1/completions", body);
          if (a.status == 200)
            ++answered;
          else if (a.status == 429 && a.fields.contains("retry-after"))
            ++refused;
          else {
            ADD_FAILURE() << c << " got " << a.status << a.body;
            ++wrong;
          }
        }
      }
    });
  for (int i = 0; i < 10; ++i) {
    HttpAnswer a;
    int tries = 0;
    do a = http_post(server.port(), "/v1/completions", fixed);
    while (a.status == 429 && ++tries < 2000);
    EXPECT_EQ(a.status, 200) << a.body;
    EXPECT_EQ(Json::parse(a.body, nullptr, false).value("choices", Json()), idle);
  }
  stop = true;
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, 0);
  // Everything that was begun ends, whoever waits for it.
  std::string metrics;
  for (int i = 0; i < 500; ++i) {
    metrics = http_get(server.port(), "/metrics").body;
    if (metrics.find("num_requests_running{model_name=\"in\"} 0") != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(metrics.find("num_requests_running{model_name=\"in\"} 0"), std::string::npos) << metrics;
  // The model's files may go: they are in memory.
  std::filesystem::remove_all(dir_ / "in");
  EXPECT_EQ(server.post("/v1/completions", fixed)["choices"], idle);
  EXPECT_EQ(server.end(SIGINT), 0);
}

TEST_F(ServeTest, KeysPortsAndDeadlines) {
  ServerProgram server(dir_, "--deadline 1", "secret");
  EXPECT_EQ(http_get(server.port(), "/health").status, 200);
  EXPECT_EQ(http_get(server.port(), "/").status, 200) << "the page asks for the key";
  for (const char* field : {"", "Authorization: Bearer wrong\r\n", "Authorization: secret\r\n"})
    EXPECT_EQ(http_get(server.port(), "/v1/models", field).status, 401) << field;
  EXPECT_EQ(http_get(server.port(), "/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  const ShellResult taken = shell(dir_, "$INGOT serve $DIR/in --port " + std::to_string(server.port()));
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_NE(taken.err.find("Address already in use"), std::string::npos) << taken.err;
  EXPECT_EQ(server.end(SIGINT), 0);
  write_text(dir_ / "key", "\n");
  const ShellResult empty = shell(dir_, "$INGOT serve $DIR/in --api-key-file $DIR/key");
  EXPECT_NE(empty.err.find("is empty, but it is the API key"), std::string::npos) << empty.err;
}

/// From a run of the quickstart's kind to a server that holds conversations: a script and a command.
TEST(Serve, QuickstartsRunBecomesAConversation) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "base");
  std::filesystem::create_directory(dir / "base/text");
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "term" + std::to_string(i) + ": n. A \"thing\" that " +
            tiny_text(6, static_cast<uint64_t>(i) + 1).substr(0, 24) + ". More of it.\n<|endoftext|>\n";
  write_text(dir / "base/text/jargon.txt", text);
  write_text(dir / "text.txt", text);
  write_text(dir / "base.toml", base_recipe(dir.path(), 256, "vocab = 300"));
  ASSERT_EQ(shell(dir, "$INGOT run $DIR/base.toml").exit_code, 0);
  const std::string script =
      "INGOT_EPOCHS=1 '" + std::string(INGOT_SOURCE_DIR) + "/scripts/quickstart_chat' ";
  const ShellResult made = shell(dir, script + "$DIR/base");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.out.find("40 conversations from"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("serve " + (dir / "base-chat")), std::string::npos) << made.out;
  std::filesystem::create_symlink(dir / "base-chat", dir / "in");
  {
    ServerProgram server(dir);
    const Json reply =
        server.post("/v1/chat/completions",
                    R"({"messages":[{"role":"user","content":"What is term3?"}],"max_tokens":4})");
    EXPECT_EQ(reply["choices"][0]["message"]["role"], "assistant");
    EXPECT_EQ(server.end(SIGINT), 0);
  }
  EXPECT_EQ(shell(dir, script + "$DIR/base").exit_code, 1) << "it would overwrite";
  const ShellResult none = shell(dir, script + "$DIR/nothing");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.err.find("is no finished run"), std::string::npos) << none.err;
}

}  // namespace ingot::test::serve_runs_test
