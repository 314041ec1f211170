// Rows of conversations: TRL's, OpenAI's and ShareGPT's are read, what is wrong is named with its row and
// field.
#include "chat/conversation.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot::conversation_test {

using chat::Conversation;
using chat::read_conversation;

std::string error_of(const std::string& row) {
  try {
    read_conversation(row, "data.jsonl:3");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Conversation, ReadsTheThreeKindsOfRows) {
  const Conversation trl = read_conversation(
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text",
      "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "thinking": "r",
      "tool_calls": [{"type": "function",
      "function": {"name": "f", "arguments": "{ \"z\": 1, \"a\": [2.5] }"}}]}, {"role": "tool", "name":
      "f", "content": "t"},
      {"role": "assistant", "content": "end", "weight": 0}], "tools":
      "[{\"name\": \"f\", \"parameters\": {}}]"})",
      "row");
  ASSERT_EQ(trl.messages.size(), 5u);
  EXPECT_EQ(*trl.messages[1].content, "ab");
  EXPECT_FALSE(trl.messages[2].content);
  EXPECT_EQ(*trl.messages[2].reasoning_content, "r");
  EXPECT_EQ(trl.messages[2].tool_calls[0].arguments, R"({"z":1,"a":[2.5]})") << "keys keep their order";
  EXPECT_TRUE(trl.messages[2].in_loss);
  EXPECT_FALSE(trl.messages[4].in_loss);
  EXPECT_EQ(trl.tools, R"([{"name":"f","parameters":{}}])");
  EXPECT_EQ(read_conversation(chat::write_conversation(trl), "again"), trl);

  const Conversation share = read_conversation(
      R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value":
      "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, {"from": "observation", "value": "o"}, {"from":
      "gpt", "value": "a"}], "system": "s"})",
      "row");
  ASSERT_EQ(share.messages.size(), 5u);
  EXPECT_EQ(share.messages[0].role, "system");
  EXPECT_EQ(share.messages[2].tool_calls[0].name, "f");
  EXPECT_EQ(share.messages[3].role, "tool");

  const Conversation prompt = read_conversation(
      R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content":
      "a"}]})",
      "row");
  EXPECT_FALSE(prompt.messages[0].in_loss);
  EXPECT_TRUE(prompt.messages[1].in_loss);
}

TEST(Conversation, WhatIsWrongIsNamedWithRowAndField) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "data.jsonl:3: no valid JSON"},
      {"[]", "expected an object"},
      {R"({"text": "x"})", "no conversation"},
      {R"({"messages": []})", "messages: the list is empty"},
      {R"({"messages": [1]})", "messages[0]: expected an object"},
      {R"({"messages": [{"content": "x"}]})", "messages[0]: 'role' is missing"},
      {R"({"messages": [{"role": "<|im_end|>", "content": "x"}]})", "messages[0]: 'role' is '<|im_end|>'"},
      {R"({"messages": [{"role": "user", "content": null}]})", "'content' of the user is null"},
      {R"({"messages": [{"role": "user"}]})", "'content' of the user is missing"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content: is number"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0]: has type \"image\""},
      {R"({"messages": [{"role": "user", "content": "x", "tool_calls": [{"name": "f"}]}]})",
       "only an assistant may"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}]})",
       "tool_calls[0]: 'name' is missing"},
      {R"({"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]})", "'weight' is 0.5"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"description": "d"}]})",
       "tools[0]: the schema has no name"},
      {R"({"conversations": [{"from": "martian", "value": "x"}]})", "'from' is 'martian'"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "no valid JSON"}};
  for (const auto& [row, expected] : cases) {
    const std::string error = error_of(row);
    EXPECT_NE(error.find(expected), std::string::npos) << row << "\n" << error;
    EXPECT_NE(error.find("data.jsonl:3"), std::string::npos) << error;
  }
  EXPECT_NE(error_of(std::string(100, '[')).find("nested deeper"), std::string::npos);
}

TEST(Conversation, IsToldFromOtherRows) {
  EXPECT_TRUE(chat::is_conversation(R"({"messages": []})"));
  EXPECT_TRUE(chat::is_conversation(R"({"prompt": [], "x": 1})"));
  EXPECT_FALSE(chat::is_conversation(R"({"prompt": "text", "completion": "text"})"));
  EXPECT_FALSE(chat::is_conversation("no json"));
}

}  // namespace ingot::conversation_test
