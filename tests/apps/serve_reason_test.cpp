// "reason" of the server: one answer out of many rollouts, streamed or whole, the same for the same seed.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "support/http_client.h"
#include "support/imported.h"
#include "support/running_server.h"
#include "support/tiny_run.h"

namespace ingot::test::serve_reason_test {

using Json = nlohmann::json;

TEST(ServeReason, OneAnswerOutOfManyRollouts) {
  TempDir dir;
  generation_fixture(dir, "llama");
  ASSERT_EQ(shell(dir, "$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  ServerProgram server(dir, "--chat-template chatml-think");
  const auto body = [](const std::string& reason, const std::string& more = "") {
    return R"({"messages":[{"role":"user","content":"hi"}],"seed":7,"reason":{"population":4,)"
           R"("candidates":2,"budget":6,"tail":3,"answer_tokens":5)" +
           reason + "}" + more + "}";
  };
  const Json whole = server.post("/v1/chat/completions", body(R"(,"rounds":2)"));
  ASSERT_EQ(whole["choices"].size(), 1u) << whole;
  EXPECT_EQ(whole["choices"][0]["index"], 0);
  Json again;
  std::thread beside([&] {
    server.post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"other"}],"max_tokens":30})");
  });
  again = server.post("/v1/chat/completions", body(R"(,"rounds":2)"));
  beside.join();
  EXPECT_EQ(again["choices"], whole["choices"]) << "what runs beside it matters";
  EXPECT_EQ(again["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
  const Json samples = server.post("/v1/chat/completions", body(R"(,"method":"majority")"));
  const int64_t one = samples["usage"]["completion_tokens"], three = whole["usage"]["completion_tokens"];
  EXPECT_GT(three, one);
  EXPECT_LE(three, 3 * 4 * (6 + 5 + 3)) << "rollouts have at most their budgets and marks";
  const HttpAnswer stream =
      http_post(server.port(), "/v1/chat/completions", body(R"(,"rounds":2)", R"(,"stream":true)"));
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n")) << stream.body;
  EXPECT_EQ(stream.body.find("\"index\":1"), std::string::npos) << stream.body;
  EXPECT_EQ(server.post("/v1/chat/completions", body(R"(,"rounds":1)", R"(,"n":2)"), 400)["error"]["param"],
            "n");
  const Json long_one =
      server.post("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"hi"}],"reason":{"budget":200,"tail":100}})", 400);
  EXPECT_EQ(long_one["error"]["code"], "context_length_exceeded") << long_one;
  EXPECT_EQ(server.end(SIGTERM), 0);
}

}  // namespace ingot::test::serve_reason_test
