// Requests of OpenAI clients: what is read, and what is refused by name.
#include "serve/openai_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/api_error.h"
#include "serve/json_fields.h"

namespace ingot::test::openai_request_test {

using namespace serve;

constexpr int64_t kVocab = 100;

/// "field: message" of the refusal, or "" where the request is read.
template <class Read>
std::string refusal(const std::string& body, Read read) {
  try {
    read(parse_body(body));
  } catch (const ApiError& e) {
    EXPECT_EQ(e.status, 400);
    return e.param + ": " + e.what();
  }
  return "";
}
std::string completion(const std::string& body) {
  return refusal(body, [](const auto& json) { read_completion(json, kVocab); });
}
std::string chat_request(const std::string& fields) {
  return refusal(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}",
                 [](const auto& json) { read_chat(json); });
}

TEST(OpenaiRequest, CompletionsAreRead) {
  const CompletionRequest r = read_completion(
      parse_body(R"({"model":"m","prompt":[[1,2],[3]],"max_tokens":0,"temperature":0,"logprobs":1,"echo":true,
                     "seed":-5,"stop":["a","b"],"n":2,"top_k":-1,"min_p":0.1,"top_p":0.5,"user":"me",
                     "presence_penalty":0.0,"logit_bias":{},"suffix":null,"stream":true,
                     "stream_options":{"include_usage":true}})"),
      kVocab);
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(std::get<std::vector<int32_t>>(r.prompts.at(0)), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(r.max_tokens, 0);
  EXPECT_EQ(r.sampling.temperature, 0);
  EXPECT_EQ(r.sampling.top_k, 0) << "-1 means all";
  EXPECT_EQ(r.seed, -5);
  EXPECT_EQ(r.top, 1);
  EXPECT_TRUE(r.echo && r.stream && r.include_usage);
  EXPECT_EQ(r.stop.size(), 2u);
  for (const char* prompt : {R"("text")", R"(["a","b"])", "[1,2,3]"})
    EXPECT_EQ(completion(std::string(R"({"prompt":)") + prompt + "}"), "");
  const CompletionRequest least = read_completion(parse_body(R"({"prompt":"x"})"), kVocab);
  EXPECT_EQ(least.max_tokens, 16);
  EXPECT_EQ(least.top, -1);
  EXPECT_EQ(least.sampling.temperature, 1.0);
  EXPECT_EQ(read_completion(parse_body(R"({"prompt":"x","seed":9223372036854775807})"), kVocab).seed,
            INT64_MAX);
}

TEST(OpenaiRequest, EachFieldIsRefusedByName) {
  struct Case {
    const char *fields, *message;
  };
  const Case cases[] = {
      {R"("temperature":-1)", "temperature: 'temperature' must not be negative, found -1"},
      {R"("temperature":"hot")", "'temperature' must be a number, found \"hot\""},
      {R"("temperature":1e300)", "'temperature' must be at most 100"},
      {R"("top_p":0)", "'top_p' must be positive, found 0"},
      {R"("top_p":1.5)", "'top_p' must be"},
      {R"("min_p":-0.1)", "'min_p' must not be negative"},
      {R"("top_k":-2)", "'top_k' must be"},
      {R"("top_k":1.5)", "'top_k' must be a whole number, found 1.5"},
      {R"("seed":9223372036854775808)", "'seed' must be"},
      {R"("seed":18446744073709551616)", "'seed' must be a whole number"},
      {R"("seed":true)", "'seed' must be a whole number, found true"},
      {R"("n":0)", "'n' must be at least 1, found 0"},
      {R"("n":65)", "'n' must be at most 64, found 65"},
      {R"("max_tokens":-1)", "'max_tokens' must not be negative"},
      {R"("max_tokens":0)", "'max_tokens' is 0, which only 'echo' makes sense of"},
      {R"("logprobs":21)", "'logprobs' must be at most 20"},
      {R"("logprobs":true)", "'logprobs' must be a whole number"},
      {R"("echo":1)", "'echo' must be true or false, found 1"},
      {R"("stop":"")", "'stop' must be a text or a list of texts that are not empty"},
      {R"("stop":[1])", "'stop' must be"},
      {R"("stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])",
       "'stop' has 17 texts, at most 16"},
      {R"("best_of":3)", "'best_of' is not supported"},
      {R"("suffix":"x")", "'suffix' is not supported"},
      {R"("frequency_penalty":0.5)", "'frequency_penalty' is not supported"},
      {R"("repetition_penalty":1.1)", "'repetition_penalty' is not supported"},
      {R"("logit_bias":{"1":2})", "'logit_bias' is not supported"},
      {R"("guided_json":{})", "guided_json: 'guided_json' is no field that this server supports"},
      {R"("stream_options":{"include_usage":true})", "'stream' is not true"},
      {R"("stream":true,"stream_options":{"x":1})", "'stream_options.x' is no field"},
      {R"("stream":true,"stream_options":[])", "'stream_options' must be a JSON object"},
      {R"("return_token_ids":"yes")", "'return_token_ids' must be true or false"},
  };
  for (const Case& c : cases) {
    const std::string found = completion(R"({"prompt":"x",)" + std::string(c.fields) + "}");
    EXPECT_NE(found.find(c.message), std::string::npos) << c.fields << "\n" << found;
  }
  const std::string long_stop = R"({"prompt":"x","stop":")" + std::string(1025, 's') + "\"}";
  EXPECT_NE(completion(long_stop).find("has a text of 1025 bytes"), std::string::npos);
}

TEST(OpenaiRequest, PromptsAndIds) {
  struct Case {
    const char *prompt, *message;
  };
  const Case cases[] = {{"[]", "'prompt' is an empty list"},
                        {"5", "'prompt' must be a text or a list"},
                        {"[-1]", "'prompt' has the id -1; the model's are 0 to 99"},
                        {"[100]", "'prompt' has the id 100"},
                        {"[1.0]", "'prompt' has the id 1.0"},
                        {"[4294967297]", "'prompt' has the id 4294967297"},
                        {"[18446744073709551615]", "'prompt' has the id 18446744073709551615"},
                        {"[[1],[true]]", "'prompt' has the id true"},
                        {R"(["a",{}])", "'prompt' must hold texts or lists of ids"},
                        {R"([1,"a"])", "'prompt' has the id \"a\""},
                        {"null", "'prompt' is missing"}};
  for (const Case& c : cases) {
    const std::string found = completion(std::string(R"({"prompt":)") + c.prompt + "}");
    EXPECT_NE(found.find(c.message), std::string::npos) << c.prompt << "\n" << found;
  }
  std::string many = R"({"prompt":[)";
  for (int i = 0; i < 257; ++i) many += i == 0 ? "\"a\"" : ",\"a\"";
  EXPECT_NE(completion(many + "]}").find("has 257 prompts, at most 256"), std::string::npos);
  EXPECT_NE(
      completion(R"({"prompt":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"],"n":64})")
          .find("is 1088, at most 1024 are made"),
      std::string::npos);
}

TEST(OpenaiRequest, BodiesThatAreNoJson) {
  const auto message = [](const std::string& body) { return refusal(body, [](const auto&) {}); };
  EXPECT_NE(message("").find("the body is not JSON"), std::string::npos);
  EXPECT_NE(message("{\"a\":1e999}").find("number overflow parsing '1e999'"), std::string::npos);
  EXPECT_NE(message("{\"a\":NaN}").find("the body is not JSON"), std::string::npos);
  EXPECT_NE(message("{\"a\":\"\xff\"}").find("the body is not JSON"), std::string::npos);
  EXPECT_NE(message(R"({"a":"\ud800"})").find("the body is not JSON"), std::string::npos);
  EXPECT_NE(message(std::string(100, '[')).find("nested deeper than 64"), std::string::npos);
  EXPECT_EQ(message(std::string(64, '[') + std::string(64, ']')), "");
  std::string many = "[";
  for (int i = 0; i < (1 << 20) + 10; ++i) many += "{},";
  EXPECT_NE(message(many + "0]").find("more than 1048576 values"), std::string::npos);
  std::string commas = "[\"" + std::string(2'000'000, ',') + "\"]";
  EXPECT_EQ(message(commas), "") << "commas in a text are no values";
  EXPECT_NE(completion("[]").find("the body must be a JSON object, found []"), std::string::npos);
  EXPECT_NE(completion("\"x\"").find("the body must be a JSON object"), std::string::npos);
}

TEST(OpenaiRequest, ChatsAreRead) {
  const ChatRequest r = read_chat(parse_body(
      R"({"messages":[{"role":"system","content":"s"},
                      {"role":"user","content":[{"type":"text","text":"hi"}]}],
          "max_completion_tokens":5,"max_tokens":9,"logprobs":true,"top_logprobs":3,"thinking_budget":0,
          "tools":[{"type":"function","function":{"name":"f","parameters":{}}}],
          "tool_choice":"auto","parallel_tool_calls":true,"response_format":{"type":"text"},
          "chat_template_kwargs":{"enable_thinking":false,"x":1}})"));
  ASSERT_EQ(r.conversation.messages.size(), 2u);
  EXPECT_EQ(r.conversation.messages[1].content, "hi");
  EXPECT_EQ(r.max_tokens, 5);
  EXPECT_EQ(r.top, 3);
  EXPECT_EQ(r.thinking_budget, 0);
  EXPECT_EQ(r.enable_thinking, false);
  EXPECT_EQ(r.template_arguments, R"({"x":1})");
  EXPECT_NE(r.conversation.tools.find("\"f\""), std::string::npos);
  const ChatRequest none = read_chat(parse_body(
      R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"none",
          "tools":[{"type":"function","function":{"name":"f"}}]})"));
  EXPECT_EQ(none.conversation.tools, "") << "the model is told of no tools";
  EXPECT_EQ(none.max_tokens, std::nullopt);
}

TEST(OpenaiRequest, ChatFieldsAreRefusedByName) {
  struct Case {
    const char *fields, *message;
  };
  const Case cases[] = {
      {R"(,"tool_choice":"required")", "'tool_choice' must be \"none\" or \"auto\""},
      {R"(,"tool_choice":{"type":"function","function":{"name":"f"}})", "'tool_choice' must be"},
      {R"(,"tools":{})", "'tools' must be a list"},
      {R"(,"tools":[{"type":"function"}])", "'tools' cannot be read"},
      {R"(,"response_format":{"type":"json_object"})", "'response_format' is not supported"},
      {R"(,"top_logprobs":3)", "'logprobs' is not true"},
      {R"(,"logprobs":5)", "'logprobs' must be true or false"},
      {R"(,"max_completion_tokens":0)", "'max_completion_tokens' must be"},
      {R"(,"thinking_budget":-1)", "'thinking_budget' must not be negative"},
      {R"(,"chat_template_kwargs":[])", "'chat_template_kwargs' must be an object"},
      {R"(,"chat_template_kwargs":{"enable_thinking":"no"})",
       "'chat_template_kwargs.enable_thinking' must be"},
      {R"(,"prompt":"x")", "'prompt' is no field"},
      {R"(,"functions":[])", "'functions' is no field"},
  };
  for (const Case& c : cases) {
    const std::string found = chat_request(c.fields);
    EXPECT_NE(found.find(c.message), std::string::npos) << c.fields << "\n" << found;
  }
  EXPECT_EQ(chat_request(""), "");
  for (const char* messages :
       {"[]", "\"hi\"", "null", R"([{"content":"x"}])", R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])"})
    EXPECT_NE(refusal(std::string(R"({"messages":)") + messages + "}", [](const auto& j) { read_chat(j); })
                  .find("messages: 'messages' "),
              std::string::npos)
        << messages;
}

/// Requests that made other servers write beyond their memory, or end.
TEST(OpenaiRequest, InputsThatBrokeOtherServers) {
  struct Case {
    const char *fields, *name;
  };
  for (const Case& c : {Case{R"("n_discard":-1)", "n_discard"},                  // CVE-2026-21869
                        {R"("prompt_embeds":"gAJjdG9yY2g=")", "prompt_embeds"},  // CVE-2025-62164
                        {R"("guided_regex":"[")", "guided_regex"},               // CVE-2025-48943
                        {R"("guided_json":{"type":"{"})", "guided_json"},        // CVE-2025-48942
                        {R"("grammar":"root ::= root")", "grammar"}}) {          // llama.cpp's issue 22234
    const std::string found = completion(R"({"prompt":"x",)" + std::string(c.fields) + "}");
    EXPECT_NE(found.find("'" + std::string(c.name) + "' is no field"), std::string::npos) << found;
  }
  // CVE-2025-48944: no schema of a tool is compiled; the model reads it as it is.
  const ChatRequest r = read_chat(parse_body(
      R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",
          "parameters":{"type":"object","properties":{"a":{"type":"str\"ing","pattern":"(["}}}}}]})"));
  EXPECT_NE(r.conversation.tools.find(R"("pattern":"([")"), std::string::npos) << r.conversation.tools;
}

TEST(OpenaiRequest, TokensAreRead) {
  EXPECT_EQ(read_tokenize(parse_body(R"({"prompt":"a","add_special_tokens":false})")).prompt, "a");
  EXPECT_EQ(read_tokenize(parse_body(R"({"messages":[{"role":"user","content":"x"}]})"))
                .conversation.messages.size(),
            1u);
  EXPECT_EQ(read_detokenize(parse_body(R"({"tokens":[1,2]})"), kVocab).ids.size(), 2u);
  EXPECT_NE(
      refusal(R"({"tokens":[-3]})", [](const auto& j) { read_detokenize(j, kVocab); }).find("the id -3"),
      std::string::npos);
  EXPECT_NE(refusal("{}", [](const auto& j) { read_tokenize(j); }).find("'messages' must be"),
            std::string::npos);
}

TEST(OpenaiRequest, KeysAreComparedWhole) {
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  for (const char* other : {"", "secre", "secreT", "secretsecret", "secret "})
    EXPECT_FALSE(equal_in_constant_time(other, "secret")) << other;
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

}  // namespace ingot::test::openai_request_test
