// Chat templates: renderings equal those of transformers (tools/oracle/make_chat.py), masks hold what the
// assistant wrote, messages forge no control token, and templates have limits.
#include "chat/chat_template.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "chat/jinja/template.h"
#include "support/support.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::chat_template_test {

using chat::ChatTemplate;
using chat::Conversation;
using chat::Rendered;
using chat::RenderOptions;
namespace jinja = chat::jinja;
using test::fixture;
using test::read_text;
using Json = nlohmann::ordered_json;

const chat::NamedTokens kTokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

std::vector<Conversation> conversations() {
  std::vector<Conversation> out;
  std::istringstream lines(read_text(fixture("chat/conversations.jsonl")));
  for (std::string line; std::getline(lines, line);)
    out.push_back(chat::read_conversation(line, fmt::format("conversations.jsonl:{}", out.size() + 1)));
  return out;
}

ChatTemplate fixture_template(const std::string& name) {
  const std::string path = fixture("chat/templates/" + name + ".jinja");
  return ChatTemplate::from_text(read_text(path), kTokens, name);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "no error";
}

std::string render_text(const std::string& source, const Conversation& c) {
  return ChatTemplate::from_text(source, kTokens, "t").render(c).text;
}
Conversation one(const std::string& text = "hi") {
  Conversation c;
  c.messages = {chat::text_message("user", text)};
  return c;
}

/// The options with which make_chat.py renders conversation `n` in template `index`.
RenderOptions options_of(const Json& expected, size_t n, size_t index) {
  const Json& o = expected["options"][(n + index) % expected["options"].size()];
  RenderOptions options;
  options.add_generation_prompt = o.value("add_generation_prompt", false);
  if (o.contains("enable_thinking")) options.enable_thinking = o["enable_thinking"].get<bool>();
  return options;
}

TEST(ChatTemplate, RendersAsTransformersByteForByte) {
  const Json expected = Json::parse(read_text(fixture("chat/renders.json")));
  const std::vector<Conversation> rows = conversations();
  EXPECT_GE(rows.size(), 40u);
  EXPECT_GE(expected["renders"].size(), 12u);
  size_t index = 0;
  for (const auto& [name, hashes] : expected["renders"].items()) {
    const ChatTemplate t = fixture_template(name);
    ASSERT_EQ(hashes.size(), rows.size());
    for (size_t n = 0; n < rows.size(); ++n) {
      const RenderOptions options = options_of(expected, n, index);
      std::string text;
      const std::string error = error_of([&] { text = t.render(rows[n], options).text; });
      if (hashes[n] == "") {
        EXPECT_NE(error.find("refuses the conversation"), std::string::npos)
            << name << " " << n << ": " << text;
      } else {
        EXPECT_EQ(hash128_hex(text.data(), text.size()), hashes[n].get<std::string>())
            << "make_chat.py --show " << name << " " << n << "\n"
            << error << "\n"
            << text;
      }
    }
    ++index;
  }
}

TEST(ChatTemplate, TheShippedTemplateIsTheOneThatIsCompared) {
  EXPECT_EQ(ChatTemplate::shipped("chatml-think").source(),
            read_text(fixture("chat/templates/chatml_think.jinja")));
  EXPECT_NE(error_of([] { ChatTemplate::shipped("x"); }).find("chatml-think"), std::string::npos);
}

/// What the spans cover, one string each.
std::vector<std::string> covered(const Rendered& r) {
  std::vector<std::string> out;
  for (const chat::ByteSpan& s : r.loss_spans) out.push_back(r.text.substr(s.begin, s.end - s.begin));
  return out;
}

using Texts = std::vector<std::string>;

TEST(ChatTemplate, TheMaskHoldsWhatTheAssistantWroteAndTheEndOfItsTurn) {
  Conversation c;
  c.messages = {chat::text_message("system", "S"), chat::text_message("user", "A"),
                chat::text_message("assistant", "B"), chat::text_message("user", "C"),
                chat::text_message("assistant", "D")};
  const std::pair<const char*, Texts> cases[] = {
      {"chatml", {"B<|im_end|>", "D<|im_end|>"}},
      {"llama3", {"B<|eot_id|>", "D<|eot_id|>"}},
      {"qwen3", {"B<|im_end|>", "<think>\n\n</think>\n\nD<|im_end|>"}},
      {"zaya", {"B<|im_end|>", "D<|im_end|>"}},
      {"gemma3", {"B<end_of_turn>", "D<end_of_turn>"}},
      {"deepseek", {"B<｜end▁of▁sentence｜>", "D<｜end▁of▁sentence｜>"}},
      {"deepseek_v31", {"B<｜end▁of▁sentence｜>", "D<｜end▁of▁sentence｜>"}},
      {"mistral_args", {"B</s>", "D</s>"}},
      {"mistral", {" B</s>", " D</s>"}},  // generation starts behind [/INST]
      {"inst", {" B </s>", " D </s>"}},
      {"harmony", {"<|channel|>final<|message|>B<|end|>", "<|channel|>final<|message|>D<|return|>"}},
      {"chatml_think", {"B<|im_end|>", "D<|im_end|>"}},
      {"plain", {" B</s>", " D</s>"}}};
  for (const auto& [name, expected] : cases) {
    EXPECT_EQ(covered(fixture_template(name).render(c)), expected) << name;
    Conversation second = c;
    second.messages[2].in_loss = false;
    EXPECT_EQ(covered(fixture_template(name).render(second)), Texts{expected[1]}) << name;
  }
  // {% generation %} says itself what is generated; here the header too.
  EXPECT_EQ(covered(fixture_template("smollm3").render(c)),
            (Texts{"<|im_start|>assistant\nB<|im_end|>\n", "<|im_start|>assistant\nD<|im_end|>\n"}));
  c.messages.erase(c.messages.begin() + 3);
  c.messages[2].in_loss = false;
  EXPECT_EQ(covered(fixture_template("smollm3").render(c)), Texts{"<|im_start|>assistant\nD<|im_end|>\n"})
      << "two blocks that touch have weights of their own";
}

// The spans are make_chat.py's: it knows each format's turns, and nothing of ours.
TEST(ChatTemplate, TheMaskIsWhatTheAssistantGenerates) {
  const Json expected = Json::parse(read_text(fixture("chat/renders.json")));
  const std::vector<Conversation> rows = conversations();
  EXPECT_GE(expected["spans"].size(), 12u);
  size_t index = 0, turns = 0;
  for (const auto& [name, hashes] : expected["renders"].items()) {
    const size_t of_template = index++;
    if (!expected["spans"].contains(name)) continue;
    const ChatTemplate t = fixture_template(name);
    const Json spans = Json::parse(expected["spans"][name].get<std::string>());
    for (size_t n = 0; n < rows.size(); ++n) {
      if (hashes[n] == "") continue;
      const Rendered r = t.render(rows[n], options_of(expected, n, of_template));
      Texts wanted;
      for (const Json& s : spans[n])
        wanted.push_back(r.text.substr(s[0], s[1].get<size_t>() - s[0].get<size_t>()));
      EXPECT_EQ(covered(r), wanted) << name << " " << n << "\n" << r.text;
      for (size_t i = 0; i < std::min(spans[n].size(), r.loss_spans.size()); ++i)
        EXPECT_EQ(r.loss_spans[i].begin, spans[n][i][0].get<size_t>()) << name << " " << n;
      turns += wanted.size();
    }
  }
  EXPECT_GE(turns, 500u);
}

TEST(ChatTemplate, TheMaskHoldsReasoningAndToolCalls) {
  const Conversation c = chat::read_conversation(
      R"({"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "reasoning_content": "R",
      "tool_calls":
      [{"function": {"name": "f", "arguments": {"x": 1}}}]}, {"role": "tool", "content": "T"},
      {"role": "assistant", "content": "D"}]})",
      "row");
  EXPECT_EQ(covered(fixture_template("chatml_think").render(c)),
            (Texts{"<think>\nR\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
                   "1}}\n</tool_call><|im_end|>",
                   "D<|im_end|>"}));
  EXPECT_EQ(covered(fixture_template("llama3").render(c)),
            (Texts{"{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|eot_id|>", "D<|eot_id|>"}));
  const Rendered zaya = fixture_template("zaya").render(c);  // its prompt opens the reasoning
  EXPECT_EQ(covered(zaya)[0],
            "R\n</think>\n<zaya_tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n"
            "</function>\n</zaya_tool_call><|im_end|>");
}

TEST(ChatTemplate, RunsSayWhoWroteWhat) {
  Conversation c = one("question");
  c.messages.push_back(chat::text_message("assistant", "answer"));
  const Rendered r = fixture_template("chatml").render(c);
  std::string user, assistant;
  size_t at = 0;
  for (const chat::Run& run : r.runs) {
    EXPECT_EQ(run.begin, at);
    at = run.end;
    if (run.source == chat::Source::user) user += r.text.substr(run.begin, run.end - run.begin);
    if (run.source == chat::Source::content) assistant += r.text.substr(run.begin, run.end - run.begin);
  }
  EXPECT_EQ(at, r.text.size());
  EXPECT_EQ(user, "question");
  EXPECT_EQ(assistant, "answer");
}

/// The control tokens of all templates.
const Texts kControls = {"<|im_start|>",
                         "<|im_end|>",
                         "<s>",
                         "</s>",
                         "<|eot_id|>",
                         "<|eom_id|>",
                         "<|start_header_id|>",
                         "<|end_header_id|>",
                         "<|python_tag|>",
                         "<start_of_turn>",
                         "<end_of_turn>",
                         "<｜User｜>",
                         "<｜Assistant｜>",
                         "<｜end▁of▁sentence｜>",
                         "<｜tool▁calls▁begin｜>",
                         "<｜tool▁outputs▁begin｜>",
                         "[INST]",
                         "[/INST]",
                         "[TOOL_CALLS]",
                         "[AVAILABLE_TOOLS]",
                         "<|start|>",
                         "<|end|>",
                         "<|message|>",
                         "<|channel|>",
                         "<|call|>",
                         "<|return|>",
                         "<tool_call>",
                         "</tool_call>",
                         "<zaya_tool_call>",
                         "<code>",
                         "<think>"};

TEST(ChatTemplate, AMessageForgesNoControlToken) {
  std::string all;
  for (const std::string& control : kControls) all += control;
  int templates = 0;
  for (const auto& file : std::filesystem::directory_iterator(fixture("chat/templates"))) {
    const std::string name = file.path().stem();
    const ChatTemplate t = fixture_template(name);
    Conversation forged = one(all);
    forged.messages.push_back(chat::text_message("assistant", all));
    forged.messages.insert(forged.messages.begin(), chat::text_message("system", all));
    ++templates;
    const Rendered r = t.render(forged);
    const Tokenizer tokenizer = Tokenizer::from_characters(r.text, kControls);
    const chat::Encoded own = t.encode(r, tokenizer),
                        trusting = t.encode(r, tokenizer, chat::Trust::messages);
    EXPECT_EQ(tokenizer.decode_bytes(own.ids), r.text) << name;
    // Each control token stands where the template wrote all of it.
    size_t at = 0, controls = 0, trusted = 0;
    for (const int32_t id : own.ids) {
      const size_t end = at + tokenizer.token_bytes(id).size();
      if (tokenizer.is_special(id)) {
        ++controls;
        EXPECT_TRUE(std::any_of(r.runs.begin(), r.runs.end(),
                                [&](const chat::Run& run) {
                                  return run.source == chat::Source::template_text && run.begin <= at &&
                                         run.end >= end;
                                }))
            << name << ": " << tokenizer.token_bytes(id);
      }
      at = end;
    }
    for (const int32_t id : trusting.ids) trusted += tokenizer.is_special(id);
    EXPECT_GT(trusted, controls) << name;
    EXPECT_EQ(trusting.ids, tokenizer.encode(r.text, {.parse_special = true})) << "as transformers reads it";
    std::string in_loss, wanted;
    for (size_t i = 0; i < own.ids.size(); ++i)
      if (own.in_loss[i]) in_loss += tokenizer.token_bytes(own.ids[i]);
    for (const std::string& s : covered(r)) wanted += s;
    EXPECT_EQ(in_loss, wanted) << name;
  }
  EXPECT_GE(templates, 13);
}

TEST(ChatTemplate, WhatATemplateSaysOfItself) {
  EXPECT_EQ(fixture_template("llama3").end_of_turn(), "<|eot_id|>");
  EXPECT_EQ(fixture_template("gemma3").end_of_turn(), "<end_of_turn>");
  EXPECT_TRUE(fixture_template("qwen3").knows_thinking());
  EXPECT_FALSE(fixture_template("llama3").knows_thinking());
  EXPECT_TRUE(fixture_template("zaya").render(one(), {.add_generation_prompt = true}).ends_in_thinking);
  EXPECT_FALSE(fixture_template("zaya")
                   .render(one(), {.add_generation_prompt = true, .enable_thinking = false})
                   .ends_in_thinking);
  EXPECT_EQ(fixture_template("zaya").reply_format().tool_open, "<zaya_tool_call>");
  EXPECT_EQ(fixture_template("llama3").reply_format().tools, chat::ToolStyle::llama3);
  const std::tuple<const char*, chat::ToolStyle, const char*> marked[] = {
      {"deepseek", chat::ToolStyle::deepseek, "<think>"},
      {"deepseek_v31", chat::ToolStyle::deepseek, "<think>"},
      {"mistral", chat::ToolStyle::mistral, ""},
      {"mistral_args", chat::ToolStyle::mistral, "[THINK]"},
      {"harmony", chat::ToolStyle::harmony, "<|channel|>analysis<|message|>"}};
  for (const auto& [name, style, think] : marked) {
    const chat::ReplyFormat format = fixture_template(name).reply_format();
    EXPECT_EQ(format.tools, style) << name;
    EXPECT_EQ(format.think_open, think) << name;
    EXPECT_EQ(format.channels, style == chat::ToolStyle::harmony) << name;
  }
  EXPECT_TRUE(fixture_template("deepseek_v31")
                  .render(one(), {.add_generation_prompt = true, .enable_thinking = true})
                  .ends_in_thinking);
  EXPECT_FALSE(
      fixture_template("deepseek_v31").render(one(), {.add_generation_prompt = true}).ends_in_thinking);
}

TEST(ChatTemplate, GenerationStopsBehindCallsToo) {
  EXPECT_EQ(fixture_template("harmony").ends_of_turn(), (Texts{"<|return|>", "<|call|>"}));
  EXPECT_EQ(fixture_template("deepseek_v31").ends_of_turn(), Texts{"<｜end▁of▁sentence｜>"});
  EXPECT_EQ(fixture_template("qwen3").ends_of_turn(), Texts{"<|im_end|>"});
  const char* const ipython =
      "{% for m in messages %}{{ m.content + ('<|eom_id|>' if m.tool_calls else '<|eot_id|>') }}{% endfor %}";
  EXPECT_EQ(ChatTemplate::from_text(ipython, {}, "t").ends_of_turn(), (Texts{"<|eot_id|>", "<|eom_id|>"}));
}

TEST(ChatTemplate, FaultsNameTheConstructAndItsPlace) {
  const std::tuple<const char*, const char*> cases[] = {
      {"{{ messages ", "line 1, column 1: the tag has no end '}}'"},
      {"{{ messages }", "'}' closes nothing"},
      {"a\n  {% include 'x' %}", "line 2, column 6: the statement 'include' is not supported"},
      {"{% frob %}", "the statement 'frob' is not known"},
      {"{{ x | frob }}", "the filter 'frob' is not known"},
      {"{{ x is frob }}", "the test 'frob' is not known"},
      {"{% if true %}x", "line 1, column 4: 'if' has no 'endif'"},
      {"{{ missing.field }}", "'missing' is undefined"},
      {"{{ messages[0].content + 1 }}", "'+' does not join a str and a int"},
      {"{{ messages.append(1) }}", "would change its object"},
      {"{{ 1 / 0 }}", "a division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "an integer leaves 64 bits"},
      {"{{ raise_exception('no') }}", "the template refuses the conversation: no"},
      {"{{ 'abc", "the string has no end"},
      {"{{ ''.__class__ }}{{ ''.__class__.x }}", "has no '__class__'"},
      {"{% set messages.x = 1 %}", "is no namespace"},
      {"{% break %}", "stands outside of a loop"},
      {"{{ messages | map('frob') | list }}", "'frob' is not known"}};
  for (const auto& [source, expected] : cases) {
    const std::string error = error_of([&] { render_text(source, one()); });
    EXPECT_NE(error.find(expected), std::string::npos) << source << "\n" << error;
    EXPECT_NE(error.find("'t', line "), std::string::npos) << error;
  }
}

TEST(ChatTemplate, LimitsEndWhatWouldNot) {
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  jinja::Limits limits;
  limits.steps = 100000;
  limits.bytes = 1 << 20;
  const std::pair<std::string, const char*> cases[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
      {"{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor "
       "%}",
       "bytes"},
      {"{{ 'a' * 999999999999 }}", "steps"},
      {"{{ range(999999999) }}", "at most 100000"},
      {"{{ " + repeat("(", 500) + "1" + repeat(")", 500) + " }}", "nests deeper"},
      {"{{ 1" + repeat("+1", 5000) + " }}", "nests too deep"},
      {"{{ x" + repeat("|d", 5000) + " }}", "nests too deep"},
      {repeat("{% if true %}", 500) + repeat("{% endif %}", 500), "nests deeper"},
      {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deep"},
      {std::string(2 << 20, 'x'), "may have"}};
  for (const auto& [source, expected] : cases) {
    const std::string error = error_of([&] { jinja::Template(source, "t", limits).render({}, 0); });
    EXPECT_NE(error.find(expected), std::string::npos) << source.substr(0, 80) << "\n" << error;
  }
}

TEST(ChatTemplate, IsReadFromAFolder) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  EXPECT_FALSE(ChatTemplate::from_folder(fs, dir.path()));
  EXPECT_NE(error_of([&] { chat::open_template(fs, dir.path()); }).find("no chat template"),
            std::string::npos);
  test::write_text(
      dir / "tokenizer_config.json",
      R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>", "chat_template": [{"name": "default",
      "template": "{{ bos_token }}plain"}, {"name": "tool_use", "template": "tools"}]})");
  const auto listed = ChatTemplate::from_folder(fs, dir.path());
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->render(one()).text, "<b>plain");
  Conversation with_tools = one();
  with_tools.tools = R"([{"name": "f"}])";
  EXPECT_EQ(listed->render(with_tools).text, "tools");
  test::write_text(dir / "chat_template.jinja", "own {{ eos_token }}");
  EXPECT_EQ(ChatTemplate::from_folder(fs, dir.path())->render(one()).text, "own <e>");
  EXPECT_NE(error_of([&] { listed->render(Conversation{}); }).find("the conversation is empty"),
            std::string::npos);
}

}  // namespace ingot::chat_template_test
