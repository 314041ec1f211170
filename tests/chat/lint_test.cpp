// Lint finds each fault that is planted and nothing in clean rows; previews show the mask, and the difference
// of two templates.
#include "chat/lint.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "chat/preview.h"
#include "support/support.h"
#include "tokenizer/bpe_trainer.h"

namespace ingot::lint_test {

using chat::ChatTemplate;
using chat::Lint;
using chat::LintFault;
using chat::LintKind;

using Rows = std::vector<std::string>;

/// A byte-level tokenizer with ChatML's tokens, in which newlines join.
const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    BpeTrainOptions o;
    o.vocab_size = 264;
    o.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    BpeTrainer trainer(o);
    const std::string text = "a\n\nb\n\nc\n\n\nd the then they\n\nthere\n\n";
    const std::string_view view = text;
    trainer.add({&view, 1});
    return trainer.train();
  }();
  return made;
}

std::vector<LintFault> faults_of(const ChatTemplate& t, const Rows& rows) {
  Lint lint(t, tokenizer());
  int line = 0;
  for (const std::string& row : rows) lint.add(row, fmt::format("data.jsonl:{}", ++line));
  EXPECT_EQ(lint.rows(), line);
  return lint.finish();
}

std::string shown(const std::vector<LintFault>& faults) {
  std::string out;
  for (const LintFault& f : faults) out += fmt::format("{} {}: {}\n", name_of(f.kind), f.where, f.text);
  return out;
}

ChatTemplate of(const std::string& source) {
  return ChatTemplate::from_text(source, {}, "t");
}
/// ChatML whose assistant's turns are written by `assistant`, and which leaves out turns of one role.
ChatTemplate chatml(const std::string& assistant, const std::string& without = "nobody") {
  return of("{% for m in messages if m.role != '" + without +
            "' %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}" + assistant +
            "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
}
const char* const kPlainTurn = "{{ m.content + '<|im_end|>' }}";

std::string row(const std::string& user, const std::string& assistant, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": ")" + user +
         R"("}, {"role": "assistant", "content": ")" + assistant + "\"" + more + "}]}";
}

const std::string kTwoThoughts =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a",
    "reasoning_content": "first"}, {"role": "user", "content": "more"}, {"role": "assistant", "content": "b",
    "reasoning_content": "second"}]})";

TEST(Lint, CleanRowsHaveNoFault) {
  const Rows rows = {
      row("hi", "hello"), row("hi", "two\\nlines\\n"),
      row("think", "42", R"(, "reasoning_content": "6 x 7")"),
      R"({"messages": [{"role": "system", "content": "Be brief. /no_think"}, {"role": "user", "content": "q"},
      {"role": "assistant", "content": "Look.", "tool_calls": [{"function": {"name": "f", "arguments":
      {"x": [1.5, "é"]}}}]}, {"role": "tool", "content": "t"}, {"role": "assistant", "content": "end"}],
      "tools": [{"name": "f"}]})",
      R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant",
      "content": "a"}]})"};
  const ChatTemplate shipped = ChatTemplate::shipped("chatml-think");
  EXPECT_EQ(shown(faults_of(shipped, rows)), "");
  EXPECT_EQ(shown(faults_of(chatml(kPlainTurn), {row("hi", "hello")})), "");
  EXPECT_EQ(shown(faults_of(chatml("{% generation %}" + std::string(kPlainTurn) + "{% endgeneration %}"),
                            {row("a", "b")})),
            "");
}

TEST(Lint, EachFaultThatIsPlantedIsFound) {
  const ChatTemplate think = ChatTemplate::shipped("chatml-think"), plain = chatml(kPlainTurn);
  struct Case {
    LintKind kind;
    ChatTemplate chat_template;
    Rows rows;
    std::string text;
  };
  const std::string generation = "{% generation %}", end = "{% endgeneration %}";
  const Case cases[] = {
      {LintKind::unreadable, think, {row("a", "b"), R"({"messages": []})"}, "the list is empty"},
      {LintKind::unreadable, think, {"{"}, "no valid JSON"},
      {LintKind::null_field,
       think,
       {row("a", "b", R"(, "reasoning_content": null)"), row("c", "d", R"(, "reasoning_content": null)")},
       "'messages[].reasoning_content' is null wherever it stands: 2 of 2 times in 2 rows"},
      {LintKind::refused, chatml("{{ raise_exception('no') }}"), {row("a", "b")}, "refuses the conversation"},
      {LintKind::system_absent,
       chatml(kPlainTurn, "system"),
       {R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"},
       {"role": "assistant", "content": "a"}]})"},
       "messages[0] of the system is not in the text: 'Be brief.'"},
      {LintKind::message_absent,
       chatml(kPlainTurn, "tool"),
       {R"({"messages": [{"role": "user", "content": "q"}, {"role": "tool", "content": "lost"},
       {"role": "assistant", "content": "a"}]})"},
       "messages[1] of the tool is not in the text: 'lost'"},
      {LintKind::reasoning_dropped, think, {kTwoThoughts}, "the reasoning of messages[1] is not in the text"},
      {LintKind::empty_mask,
       think,
       {R"({"messages": [{"role": "user", "content": "q"}]})"},
       "the assistant says nothing"},
      {LintKind::empty_mask, think, {row("a", "b", R"(, "weight": 0)")}, "nothing that the assistant wrote"},
      {LintKind::mask_covers_other,
       of("{% generation %}{% for m in messages %}{{ m.content + '<|im_end|>' }}{% endfor "
          "%}{% endgeneration %}"),
       {row("question", "answer")},
       "the mask holds what the user wrote: 'question'"},
      {LintKind::mask_misses,
       chatml("{{ m.content[:3] }}" + generation + "{{ m.content[3:] + '<|im_end|>' }}" + end),
       {row("a", "answer")},
       "is not in the loss: 'ans"},
      {LintKind::no_end,
       chatml(generation + "{{ m.content }}" + end + "{{ '<|im_end|>' }}"),
       {row("a", "answer")},
       "ends with 'answer', without the end of the turn"},
      {LintKind::not_read_back,
       think,
       {row("a", R"(<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>)")},
       "messages[1] would be read back as 'call: f {};"},
      {LintKind::not_read_back, think, {row("a", "<think>hm</think>b")}, "reasoning: hm"},
      {LintKind::control_text, think, {row("a <|im_end|>", "b")}, "a message spells <|im_end|>"},
      {LintKind::control_text, plain, {row("a", "b <|im_start|>")}, "a message spells <|im_start|>"}};
  std::vector<bool> planted(enum_count<LintKind>, false);
  for (const Case& c : cases) {
    const std::vector<LintFault> found = faults_of(c.chat_template, c.rows);
    planted[static_cast<size_t>(c.kind)] = true;
    ASSERT_FALSE(found.empty()) << name_of(c.kind) << ": " << c.rows.back();
    for (const LintFault& f : found) {
      // A mask that the template writes in the wrong place has other consequences too.
      const bool follows = c.kind == LintKind::mask_misses && f.kind == LintKind::not_read_back;
      EXPECT_TRUE(f.kind == c.kind || follows ||
                  (c.kind == LintKind::mask_covers_other && f.kind == LintKind::not_read_back))
          << name_of(c.kind) << "\n"
          << shown(found);
      if (f.kind == c.kind) {
        EXPECT_NE(f.text.find(c.text), std::string::npos) << shown(found);
        EXPECT_EQ(f.where.empty(), c.kind == LintKind::null_field);
      }
    }
    EXPECT_EQ(std::count_if(found.begin(), found.end(), [&](const LintFault& f) { return f.kind == c.kind; }),
              1)
        << shown(found);
    EXPECT_FALSE(chat::advice(c.kind).empty());
  }
  EXPECT_EQ(std::count(planted.begin(), planted.end(), false), 0) << "a kind without a case";
}

// Generation begins behind the prompt, so no token joins the two in training; the text as a whole has one.
TEST(Lint, TokensThatWouldJoinPromptAndReplyAreCounted) {
  Lint lint(chatml(kPlainTurn), tokenizer());
  lint.add(row("a", "\\n\\nb"), "x:1");
  lint.add(row("a", "b"), "x:2");
  EXPECT_EQ(shown(lint.finish()), "");
  EXPECT_EQ(lint.other_borders(), 1);
}

// GPT-OSS's tool turns repeat the name of the called tool.
TEST(Lint, WhatALaterTurnRepeatsIsNoPartOfTheReply) {
  const ChatTemplate t = of(test::read_text(test::fixture("chat/templates/harmony.jinja")));
  const std::vector<LintFault> found = faults_of(
      t, {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [{"function":
      {"name": "look", "arguments": {"x": 1}}}]}, {"role": "tool", "content": "t"},
      {"role": "tool", "content": "u"}, {"role": "assistant", "content": "a"}]})"});
  EXPECT_EQ(shown(found), "");
}

TEST(Lint, WithoutATokenizerIdsAreNotCompared) {
  Lint lint(ChatTemplate::shipped("chatml-think"), std::nullopt);
  lint.add(row("a <|im_end|>", "b"), "x:1");
  EXPECT_EQ(shown(lint.finish()), "");
}

TEST(Preview, ShowsWhatIsInTheLoss) {
  const ChatTemplate t = chatml(kPlainTurn);
  const auto c = chat::read_conversation(row("a\\u001b[31m", "b"), "x");
  const chat::Rendered r = t.render(c);
  EXPECT_EQ(chat::preview(r, chat::Shown::marks),
            "<|im_start|>user\na\x1b[31m<|im_end|>\n<|im_start|>assistant\n⟦b<|im_end|>⟧\n");
  const std::string colours = chat::preview(r, chat::Shown::colour);
  EXPECT_NE(colours.find("\x1b[32mb\x1b[0m\x1b[32m<|im_end|>\x1b[0m"), std::string::npos) << colours;
  EXPECT_NE(colours.find("a\\x1b[31m"), std::string::npos) << "a message recolours nothing: " << colours;
}

TEST(Preview, DifferencesOfTwoTemplates) {
  const auto c = chat::read_conversation(row("a", "b"), "x");
  const chat::Rendered first = chatml(kPlainTurn).render(c);
  EXPECT_EQ(chat::difference(first, first, chat::Shown::marks), "");
  const chat::Rendered second = chatml("{{ 'so: ' + m.content + '<|im_end|>' }}").render(c);
  EXPECT_EQ(chat::difference(first, second, chat::Shown::marks),
            " <|im_start|>user\n a<|im_end|>\n <|im_start|>assistant\n-⟦b<|im_end|>⟧\n+⟦so: b<|im_end|>⟧\n");
  const chat::Rendered mask =
      chatml("{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>' }}").render(c);
  EXPECT_EQ(mask.text, first.text);
  EXPECT_NE(chat::difference(first, mask, chat::Shown::marks).find("-⟦b<|im_end|>⟧\n+⟦b⟧<|im_end|>\n"),
            std::string::npos)
      << "equal text under another mask is a difference";
  chat::Rendered cut = first;
  cut.text.pop_back();
  cut.loss_spans.clear();
  EXPECT_NE(chat::difference(cut, first, chat::Shown::marks).find("\\ (no newline at the end)"),
            std::string::npos);
}

TEST(Preview, TemplatesDifferBeyondTheirRows) {
  const ChatTemplate think = ChatTemplate::shipped("chatml-think"), plain = chatml(kPlainTurn);
  EXPECT_EQ(chat::description(think),
            "generation prompt: <|im_start|>assistant\\n\n"
            "generation prompt without thinking: <|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n\n"
            "end of a turn: <|im_end|>\ntool calls: hermes\n");
  EXPECT_EQ(chat::difference(think, think, chat::Shown::marks), "");
  EXPECT_EQ(chat::difference(plain, think, chat::Shown::marks),
            " generation prompt: <|im_start|>assistant\\n\n"
            "-generation prompt without thinking: <|im_start|>assistant\\n\n"
            "+generation prompt without thinking: <|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n\n"
            " end of a turn: <|im_end|>\n-tool calls: none\n+tool calls: hermes\n");
}

// Long texts without a line in common cost no quadratic table.
TEST(Preview, LongDifferencesEnd) {
  chat::Rendered a, b;
  for (int i = 0; i < 20000; ++i) {
    a.text += fmt::format("a{}\n", i);
    b.text += fmt::format("b{}\n", i);
  }
  a.text = "same\n" + a.text + "end\n";
  b.text = "same\n" + b.text + "end\n";
  const std::string d = chat::difference(a, b, chat::Shown::marks);
  EXPECT_TRUE(d.starts_with(" same\n-a0\n"));
  EXPECT_TRUE(d.ends_with("+b19999\n end\n"));
}

}  // namespace ingot::lint_test
