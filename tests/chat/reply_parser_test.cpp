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

/// An object whose texts spell the marks of DeepSeek, Mistral and GPT-OSS.
const std::string kMarkedArguments =
    R"({"city":"Zürich <｜tool▁calls▁end｜><｜tool▁call▁end｜> \"x\"","text":"[TOOL_CALLS]f[ARGS]{]} \\",)"
    R"("end":"<|call|> <|end|> <|message|>\n```","list":[1.5,null,true,{"a":["b"]}]})";

/// What the template lets the assistant generate of `m`, read as a reply, is `m`.
void check_read_back(const std::string& name, const Message& m, const chat::RenderOptions& options = {}) {
  const auto t =
      chat::ChatTemplate::from_text(test::read_text(test::fixture("chat/templates/" + name + ".jinja")),
                                    {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, name);
  chat::Conversation c;
  c.messages = {chat::text_message("user", "q"), m};
  const chat::Rendered r = t.render(c, options);
  ASSERT_EQ(r.loss_spans.size(), 1u) << r.text;
  const chat::ReplyText reply = t.reply_text(r, r.loss_spans[0]);
  EXPECT_FALSE(reply.end_of_turn.empty()) << r.text;
  check_all_splits(t.reply_format(), std::string(reply.text), m, reply.in_thinking);
}

TEST(ReplyParser, ReadsBackWhatDeepSeekMistralAndHarmonyRender) {
  const std::vector<chat::ToolCall> one = {{"", "get", kMarkedArguments}},
                                    two = {{"", "get", kMarkedArguments}, {"", "g2", "{}"}};
  for (const char* name : {"deepseek", "deepseek_v31", "mistral", "mistral_args"})
    for (const auto& calls : {one, two}) check_read_back(name, assistant(std::nullopt, {}, calls));
  for (const char* name : {"deepseek", "deepseek_v31", "mistral_args"})
    for (const auto& calls : {one, two}) check_read_back(name, assistant("Look < here.\n\n", {}, calls));
  for (const char* name : {"deepseek_v31", "mistral_args", "harmony"})
    for (const bool thinks : {false, true}) {
      const chat::RenderOptions options{.enable_thinking = thinks};
      check_read_back(name, assistant("answer <b> [x]\n", "because\n\nof < this [y]"), options);
      check_read_back(name, assistant("Look.", "why", one), options);
      check_read_back(name, assistant(std::nullopt, "why", one), options);
      if (std::string(name) != "harmony") check_read_back(name, assistant("Look.", "why", two), options);
    }
  check_read_back("harmony", assistant(" \n answer, {as} it is \n"));
  check_read_back("harmony", assistant(std::nullopt, {}, one));
  check_read_back("harmony", assistant("I look it up.", {}, one));
}

const ReplyFormat kHarmony{ToolStyle::harmony, "<|channel|>analysis<|message|>", "<|end|>", "", "", true};

// What the model writes has the recipient behind the channel, and a turn may hold several messages.
TEST(ReplyParser, ReadsHarmonysMessages) {
  const std::string call =
      "<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"a\": "
      "\"<|call|>\"}";
  for (const char* end : {"", "<|call|>", "<|end|>", "\n<|call|>"})
    check_all_splits(
        kHarmony,
        "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>analysis<|message|>"
        "two<|end|><|start|>assistant<|channel|>commentary<|message|>Look.<|end|>" +
            call + end,
        assistant("Look.", "one\ntwo", {{"", "get", R"({"a":"<|call|>"})"}}));
  check_all_splits(kHarmony, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>" + call,
                   assistant(std::nullopt, {}, {{"", "f", "{}"}, {"", "get", R"({"a":"<|call|>"})"}}));
  check_all_splits(kHarmony, "still thinking<|end|><|start|>assistant<|channel|>final<|message|>a<|return|>",
                   assistant("a", "still thinking"), true);
  check_all_splits(kHarmony, "<|channel|>analysis<|message|>cut <|en", assistant("", "cut <|en"));
  check_all_splits(kHarmony, "<|message|>a", assistant("a"));
}

TEST(ReplyParser, WhatIsNoMessageOfHarmonysIsContent) {
  for (const std::string text :
       {"plain <|text", "", "to", "to=nobody", "<|channel|>final", "  ",
        "<|channel|>commentary to=functions.get<|message|>not json",
        "<|channel|>commentary to=functions.get<|message|>{\"a\": 1", " to=functions.<|message|>{}",
        "<|channel|>commentary to=functions.get<|message|>{} {}",
        "<|channel|>analysis to=python<|message|>print(1)", "<|start|>user<|message|>who?"})
    check_all_splits(kHarmony, text, assistant(text));
  check_all_splits(kHarmony, "<|channel|>final<|end|><|channel|>final<|message|>a",
                   assistant("<|channel|>final<|end|>\na"));
  ReplyFormat without_tools = kHarmony;
  without_tools.tools = ToolStyle::none;
  const std::string call = " to=functions.f<|channel|>commentary json<|message|>{}";
  check_all_splits(without_tools, "<|channel|>analysis<|message|>r<|end|><|start|>assistant" + call,
                   assistant("<|start|>assistant" + call, "r"));
}

TEST(ReplyParser, ReadsDeepSeeksTwoForms) {
  const ReplyFormat deepseek{ToolStyle::deepseek, "<think>", "</think>", "<｜tool▁calls▁begin｜>",
                             "<｜tool▁calls▁end｜>"};
  const std::string begin = "<｜tool▁calls▁begin｜>", open = "<｜tool▁call▁begin｜>", sep = "<｜tool▁sep｜>",
                    close = "<｜tool▁call▁end｜>", end = "<｜tool▁calls▁end｜>";
  const std::string fenced = open + "function" + sep + "get\n```json\n{\n  \"a\": 1\n}\n```" + close,
                    bare = open + "function" + sep + "{\"b\": 2}" + close;
  check_all_splits(
      deepseek, "<think>\nr\n</think>\n\nLook." + begin + fenced + "\n" + fenced + bare + end,
      assistant("Look.", "r",
                {{"", "get", R"({"a":1})"}, {"", "get", R"({"a":1})"}, {"", "function", R"({"b":2})"}}));
  check_all_splits(deepseek, "a" + begin + bare + end + " b",
                   assistant("a b", {}, {{"", "function", R"({"b":2})"}}));
  for (const std::string& text :
       {begin + end, begin + bare, begin + open + "f" + sep + "[1]" + close + end, begin + bare + "x" + end,
        begin + open + "f{}" + close + end, begin + open + sep + "{}" + close + end,
        begin + open + "function" + sep + "f\n```json\n{}" + close + end,
        begin + open + "function" + sep + "f\n{}" + close + end})
    check_all_splits(deepseek, "x\n" + text, assistant("x\n" + text));
}

TEST(ReplyParser, ReadsMistralsForms) {
  const ReplyFormat mistral{ToolStyle::mistral, "[THINK]", "[/THINK]", "[TOOL_CALLS]", ""};
  const Message calls = assistant("a", {}, {{"", "f", R"({"x":"[TOOL_CALLS]"})"}, {"", "g", "{}"}});
  const std::string first = R"({"x": "[TOOL_CALLS]"})";
  check_all_splits(mistral,
                   "a[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": " + first +
                       ", \"id\": \"000000001\"}, {\"name\": \"g\", \"arguments\": {}}]\n",
                   calls);
  check_all_splits(mistral, "a[TOOL_CALLS]f[ARGS]" + first + "[TOOL_CALLS]g[ARGS]{}", calls);
  check_all_splits(
      mistral, "a[TOOL_CALLS]f[CALL_ID]000000001[ARGS]" + first + "\n[TOOL_CALLS][{\"name\": \"g\"}]", calls);
  check_all_splits(mistral, "[THINK]r[/THINK]a[TOOL_CALL", assistant("a[TOOL_CALL", "r"));
  for (const std::string text : {"[TOOL_CALLS]", "[TOOL_CALLS][]", "[TOOL_CALLS][1]", "[TOOL_CALLS]f[ARGS]",
                                 "[TOOL_CALLS]f[ARGS]{} behind", "[TOOL_CALLS][ARGS]{}", "[TOOL_CALLS]f{}",
                                 "[TOOL_CALLS][{\"name\": \"f\"}", "a [TOOL_CALLS]f[ARGS][1]"})
    check_all_splits(mistral, text, assistant(text));
}

// Who has not given tools gets a call as text, and need not wait for its end.
TEST(ReplyParser, WithoutToolsACallIsTextThatIsNotHeldBack) {
  const std::string text = "a\n[TOOL_CALLS]f[ARGS]{}";
  ReplyParser parser({ToolStyle::none, "[THINK]", "[/THINK]", "[TOOL_CALLS]", ""});
  std::string said;
  for (const ReplyPiece& p : parser.push(text)) said += p.text;
  EXPECT_EQ(said, text);
  EXPECT_TRUE(parser.finish().empty());
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
  for (const char* name :
       {"chatml", "chatml_think", "qwen3", "zaya", "llama3", "gemma3", "deepseek", "deepseek_v31", "mistral",
        "mistral_args", "harmony", "inst", "plain", "smollm3"}) {
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

// A call's names and values go into JSON, which holds no other bytes.
TEST(ReplyParser, ACallThatIsNotUtf8IsNone) {
  const ReplyFormat zaya{ToolStyle::zaya_xml, "", "", "<tool_call>", "</tool_call>"};
  for (const char* call : {"<function=\xE9><parameter=k>\n1\n</parameter></function>",
                           "<function=f><parameter=\xE9>\n1\n</parameter></function>",
                           "<function=f><parameter=k>\n\xE9\n</parameter></function>"}) {
    const std::string text = fmt::format("<tool_call>{}</tool_call>", call);
    const Message m = chat::parse_reply(zaya, text);
    EXPECT_EQ(m.content, text);
    EXPECT_TRUE(m.tool_calls.empty());
  }
  const std::string python = "<code>f(x='\xE9')</code>",
                    deepseek =
                        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>\xE9"
                        "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  EXPECT_EQ(chat::parse_reply(kPython, python).content, python);
  EXPECT_EQ(chat::parse_reply({ToolStyle::deepseek, "", "", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
                              deepseek)
                .content,
            deepseek);
}

TEST(ReplyParser, UnfinishedReasoningStaysReasoning) {
  check_all_splits(kHermes, "<think>\nstill thinking\n", assistant("", "still thinking\n"));
  check_all_splits(kHermes, "inside</think>\n\nout", assistant("out", "inside"), true);
  check_all_splits(kHermes, "<think>\n\n</think>\n\nfast", assistant("fast"));
}

}  // namespace ingot::reply_parser_test
