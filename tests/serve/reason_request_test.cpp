// "reason" of chat requests: what is read, and what is refused by name.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/api_error.h"
#include "serve/json_fields.h"
#include "serve/openai_request.h"

namespace ingot::test::reason_request_test {

using namespace serve;

ChatRequest read(const std::string& fields) {
  return read_chat(parse_body(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}"));
}

std::string refusal(const std::string& fields) {
  try {
    read(fields);
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 400);
    return e.param;
  }
  return "";
}

TEST(ReasonRequest, IsReadWithItsDefaults) {
  EXPECT_FALSE(read("").reason);
  const auto usual = read(R"(,"reason":{})").reason;
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->population, 16);
  EXPECT_EQ(usual->rounds, 2);
  const auto given =
      read(R"(,"reason":{"method":"rsa","population":6,"candidates":3,"rounds":1,"budget":50,"tail":20,
                              "answer_tokens":9,"compaction":"hybrid"})")
          .reason;
  EXPECT_EQ(given->population, 6);
  EXPECT_EQ(given->candidates, 3);
  EXPECT_EQ(given->rounds, 1);
  EXPECT_EQ(given->budget, 50);
  EXPECT_EQ(given->tail, 20);
  EXPECT_EQ(given->answer_tokens, 9);
  EXPECT_EQ(given->compaction, reason::Compaction::hybrid);
  EXPECT_EQ(read(R"(,"reason":{"method":"majority","rounds":5})").reason->rounds, 0);
  EXPECT_EQ(read(R"(,"reason":{"population":2,"budget":4})").reason->candidates, 2)
      << "at most the population";
}

TEST(ReasonRequest, IsRefusedByName) {
  EXPECT_EQ(refusal(R"(,"reason":true)"), "reason");
  EXPECT_EQ(refusal(R"(,"reason":{"method":"luck"})"), "reason.method");
  EXPECT_EQ(refusal(R"(,"reason":{"population":65})"), "reason.population");
  EXPECT_EQ(refusal(R"(,"reason":{"population":2,"candidates":3})"), "reason.candidates");
  EXPECT_EQ(refusal(R"(,"reason":{"rounds":17})"), "reason.rounds");
  EXPECT_EQ(refusal(R"(,"reason":{"budget":8,"tail":9})"), "reason.tail");
  EXPECT_EQ(refusal(R"(,"reason":{"compaction":"zip"})"), "reason.compaction");
  EXPECT_EQ(refusal(R"(,"reason":{"width":1})"), "reason.width");
  EXPECT_EQ(refusal(R"(,"reason":{},"n":2)"), "n");
  EXPECT_EQ(refusal(R"(,"reason":{},"logprobs":true)"), "logprobs");
  EXPECT_EQ(refusal(R"(,"reason":{},"max_tokens":5)"), "max_tokens");
  EXPECT_EQ(refusal(R"(,"reason":{},"stop":"x")"), "stop");
  EXPECT_EQ(refusal(R"(,"reason":{},"thinking_budget":5)"), "thinking_budget");
}

}  // namespace ingot::test::reason_request_test
