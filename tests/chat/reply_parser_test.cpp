// Replies in every style: what a template renders is read back as it was, for any split of the stream.
#include "chat/reply_parser.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "chat/chat_template.h"
#include "support/support.h"

namespace ingot::reply_parser_test {

using chat::Message;
using chat::ReplyFormat;
using chat::ReplyParser;
using chat::ReplyPiece;
using chat::ToolStyle;

Message assistant(std::optional<std::string> content, std::optional<std::string> reasoning = {},
                  std::vector<chat::ToolCall> calls = {}) {
  Message m;
  m.role = "assistant";
  m.content = std::move(content);
  m.reasoning_content = std::move(reasoning);
  m.tool_calls = std::move(calls);
  return m;
}

std::string shown(const Message& m) {
  chat::Conversation c;
  c.messages = {m};
  return chat::write_conversation(c);
}

Message pushed(const ReplyFormat& format, const std::string& text, const std::vector<size_t>& cuts,
               bool in_thinking, const std::string& tools) {
  ReplyParser parser(format, in_thinking, tools);
  Message joined = assistant(std::nullopt);
  const auto take = [&](const std::vector<ReplyPiece>& pieces) {
    for (const ReplyPiece& p : pieces) {
      if (p.kind == ReplyPiece::Kind::tool_call) joined.tool_calls.push_back(p.call);
      if (p.kind == ReplyPiece::Kind::content) joined.content = joined.content.value_or("") + p.text;
      if (p.kind == ReplyPiece::Kind::reasoning)
        joined.reasoning_content = joined.reasoning_content.value_or("") + p.text;
    }
  };
  size_t at = 0;
  for (const size_t cut : cuts) {
    take(parser.push(std::string_view(text).substr(at, cut - at)));
    at = cut;
  }
  take(parser.push(std::string_view(text).substr(at)));
  take(parser.finish());
  if (!joined.content && joined.tool_calls.empty()) joined.content = "";
  EXPECT_EQ(shown(joined), shown(parser.message())) << "pieces and message agree";
  return parser.message();
}

void check_all_splits(const ReplyFormat& format, const std::string& text, const Message& expected,
                      bool in_thinking = false, const std::string& tools = "") {
  const std::string wanted = shown(expected);
  std::vector<size_t> each;
  for (size_t i = 1; i < text.size(); ++i) each.push_back(i);
  ASSERT_EQ(shown(pushed(format, text, {}, in_thinking, tools)), wanted) << text;
  ASSERT_EQ(shown(pushed(format, text, each, in_thinking, tools)), wanted) << "byte by byte: " << text;
  for (size_t i = 1; i < text.size(); ++i)
    ASSERT_EQ(shown(pushed(format, text, {i}, in_thinking, tools)), wanted) << text << "\n" << i;
}

/// The reply of `m` in a template: the rendering behind the generation prompt, without the end of the turn.
void check_round_trip(const std::string& name, const Message& m, const std::string& tools = "") {
  const auto t = chat::ChatTemplate::from_text(
      test::read_text(test::fixture("chat/templates/" + name + ".jinja")), {}, name);
  chat::Conversation c;
  c.messages = {chat::text_message("user", "q")};
  const chat::Rendered prompt = t.render(c, {.add_generation_prompt = true});
  c.messages.push_back(m);
  const std::string all = t.render(c).text;
  ASSERT_TRUE(all.starts_with(prompt.text)) << all;
  std::string reply = all.substr(prompt.text.size());
  const size_t end = reply.rfind(t.end_of_turn());
  ASSERT_NE(end, std::string::npos);
  check_all_splits(t.reply_format(), reply.substr(0, end), m, prompt.ends_in_thinking, tools);
}

const std::string kArguments =
    R"({"city":"Zürich </tool_call> \"x\"","days":3,"list":[1.5,null,true,{"a":"b\n"}]})";
constexpr const char* kTools = R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}])";

TEST(ReplyParser, ReadsWhatTemplatesRender) {
  for (const char* name : {"chatml_think", "qwen3"}) {
    if (std::string(name) == "chatml_think") check_round_trip(name, assistant("plain < answer\n"));
    check_round_trip(name, assistant("answer", "because\n\nof < this"));
    check_round_trip(name, assistant("Look.", "why", {{"", "get", kArguments}, {"", "g2", "{}"}}));
    check_round_trip(name, assistant(std::nullopt, "why", {{"", "get", kArguments}}));
  }
  check_round_trip("llama3", assistant("plain {answer}"));
  check_round_trip("llama3", assistant(std::nullopt, std::nullopt, {{"", "get", kArguments}}));
  check_round_trip("zaya", assistant("answer", "because"));
  check_round_trip("zaya",
                   assistant("Look.", "why",
                             {{"", "f", R"({"s":"12","n":12,"list":[1,"a"],"text":"two\nlines","b":true})"}}),
                   kTools);
}

const ReplyFormat kHermes{ToolStyle::hermes, "<think>", "</think>", "<tool_call>", "</tool_call>"};
const ReplyFormat kPython{ToolStyle::smollm_python, "<think>", "</think>", "<code>", "</code>"};

// SmolLM3's template prints an assistant's content as it is, so its calls stand there as the model wrote
// them: as JSON between tags for tools and xml_tools, as Python for python_tools.
TEST(ReplyParser, ReadsSmolLM3sTwoStyles) {
  const auto t = chat::ChatTemplate::from_text(test::read_text(test::fixture("chat/templates/smollm3.jinja")),
                                               {}, "smollm3");
  const struct {
    const char* kwargs;
    ToolStyle style;
    std::string written;
  } cases[] = {{"", ToolStyle::hermes,
                "\n<tool_call>\n{\"name\": \"get\", \"arguments\": " + kArguments +
                    "}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
               {R"({"python_tools": ["get"]})", ToolStyle::smollm_python,
                "\n<code>\nget(city=\"Zürich </tool_call> \\\"x\\\"\", days=3, list=[1.5, None, True, {'a': "
                "'b\\n'}])\nnow()\n</code>"}};
  for (const auto& c : cases) {
    const ReplyFormat format = t.reply_format(c.kwargs);
    ASSERT_EQ(format.tools, c.style);
    for (const std::string reasoning : {"", "why\n\nso"}) {
      chat::Conversation conversation;
      conversation.kwargs = c.kwargs;
      conversation.messages = {
          chat::text_message("user", "q"),
          chat::text_message(
              "assistant",
              (reasoning.empty() ? "" : "<think>\n" + reasoning + "\n</think>\n\n") + "Look." + c.written)};
      const chat::Rendered r = t.render(conversation);
      ASSERT_EQ(r.loss_spans.size(), 1u);
      const chat::ReplyText reply = t.reply_text(r, r.loss_spans[0]);
      EXPECT_EQ(reply.end_of_turn, "<|im_end|>");
      check_all_splits(
          format, std::string(reply.text),
          assistant("Look.", reasoning.empty() ? std::nullopt : std::optional<std::string>(reasoning),
                    {{"", "get", kArguments}, {"", "now", "{}"}}));
    }
  }
}

// Every template: a reply of text alone comes back from the rendering of a whole conversation, wherever the
// template lets the assistant's turn begin.
TEST(ReplyParser, TextComesBackFromEveryTemplate) {
  const std::string text = "Two lines,\nof which one < other {x} & \"é\" 🙂";
  for (const char* name : {"chatml", "chatml_think", "qwen3", "zaya", "llama3", "gemma3", "deepseek",
                           "mistral", "inst", "plain", "smollm3"}) {
    const auto t = chat::ChatTemplate::from_text(
        test::read_text(test::fixture(std::string("chat/templates/") + name + ".jinja")),
        {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, name);
    chat::Conversation c;
    c.messages = {chat::text_message("user", "q"), chat::text_message("assistant", text),
                  chat::text_message("user", "r"), chat::text_message("assistant", text)};
    const chat::Rendered r = t.render(c);
    ASSERT_EQ(r.loss_spans.size(), 2u) << name;
    for (const chat::ByteSpan& s : r.loss_spans) {
      const chat::ReplyText reply = t.reply_text(r, s);
      EXPECT_FALSE(reply.end_of_turn.empty()) << name;
      // Mistral, Llama 2 and the plain format put a blank around a reply, which belongs to it.
      std::string wanted(reply.text.substr(0, reply.text.find(text[0])));
      wanted = wanted.find_first_not_of(' ') == std::string::npos ? wanted + text : text;
      if (reply.text.ends_with(' ')) wanted += ' ';
      check_all_splits(t.reply_format(), std::string(reply.text), assistant(wanted), reply.in_thinking);
    }
  }
}

TEST(ReplyParser, ReadsPythonCalls) {
  check_all_splits(
      kPython,
      "Look.\n<code>\nget(city='Zürich </code>', days=3, flag=True, x=[1, 2.5, None], d={\"k\": "
      "'v\\n'})\nnow()\n</code>",
      assistant(
          "Look.", {},
          {{"", "get", R"({"city":"Zürich </code>","days":3,"flag":true,"x":[1,2.5,null],"d":{"k":"v\n"}})"},
           {"", "now", "{}"}}));
  const ReplyFormat llama{ToolStyle::llama3, "", "", "", ""};
  check_all_splits(llama, "<|python_tag|>search.call(query=\"a b\")",
                   assistant(std::nullopt, {}, {{"", "search", R"({"query":"a b"})"}}));
  check_all_splits(llama, R"({"name": "a", "parameters": {}}; {"name": "b", "parameters": {"x": 1}})",
                   assistant(std::nullopt, {}, {{"", "a", "{}"}, {"", "b", R"({"x":1})"}}));
}

TEST(ReplyParser, WhatIsNoCallIsContent) {
  check_all_splits(kHermes, "a <tool_call>not json</tool_call> b",
                   assistant("a <tool_call>not json</tool_call> b"));
  check_all_splits(kHermes, "<tool_call>\n{\"name\": \"f\"", assistant("<tool_call>\n{\"name\": \"f\""));
  check_all_splits(kHermes, "x\n\n<tool_cal", assistant("x\n\n<tool_cal"));
  check_all_splits(kPython, "<code>print(1 + 1)</code>", assistant("<code>print(1 + 1)</code>"));
  check_all_splits({ToolStyle::llama3, "", "", "", ""}, "{not a call}", assistant("{not a call}"));
  check_all_splits(kHermes, "", assistant(""));
  check_all_splits(kHermes, "<thin", assistant("<thin"));
  check_all_splits({}, "<think>a</think><tool_call>", assistant("<think>a</think><tool_call>"));
}

TEST(ReplyParser, UnfinishedReasoningStaysReasoning) {
  check_all_splits(kHermes, "<think>\nstill thinking\n", assistant("", "still thinking\n"));
  check_all_splits(kHermes, "inside</think>\n\nout", assistant("out", "inside"), true);
  check_all_splits(kHermes, "<think>\n\n</think>\n\nfast", assistant("fast"));
}

}  // namespace ingot::reply_parser_test
