// `ingot data lint` and `ingot data preview`: rows, templates and tokenizers as a person names them, exit
// codes, JSON, and colours in terminals only.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "support/imported.h"
#include "tokenizer/tokenizer.h"

namespace ingot::test::data_command_runs_test {

constexpr const char* kRows =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
    "\"yo\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi <|im_end|>\"}, {\"role\": \"assistant\", "
    "\"content\": \"yo\"}]}\n";

class DataCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(dir_ / "chat.jsonl", kRows);
    write_text(dir_ / "clean.jsonl", std::string(kRows).substr(0, std::string(kRows).find('\n') + 1));
    write_text(dir_ / "other.jinja",
               "{% for m in messages %}{{ m.role + '> ' + m.content + '<|im_end|>\n' }}{% endfor %}"
               "{% if add_generation_prompt %}{{ 'assistant> ' }}{% endif %}");
    const std::vector<std::string> specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    Tokenizer::from_characters("abcdefghijklmnopqrstuvwxyz <>|_\n", specials).save(dir_ / "tokens");
  }
  ShellResult sh(const std::string& command) { return shell(dir_, "$INGOT data " + command); }
  TempDir dir_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(DataCommand, LintSaysWhatItFinds) {
  const std::string with = " --chat-template chatml-think --tokenizer $DIR/tokens";
  const ShellResult found = sh("lint $DIR/chat.jsonl" + with);
  EXPECT_EQ(found.exit_code, 1) << found.err;
  EXPECT_TRUE(has(found.out, "control_text: 1 case; ")) << found.out;
  EXPECT_TRUE(has(found.out, "chat.jsonl:2: a message spells <|im_end|>\n2 rows, 1 fault\n")) << found.out;
  const auto j = sh("lint $DIR/chat.jsonl --json" + with).json();
  EXPECT_EQ(j["rows"], 2);
  EXPECT_EQ(j["faults"][0]["kind"], "control_text");
  EXPECT_TRUE(has(j["faults"][0]["where"], "chat.jsonl:2"));
  const ShellResult clean = sh("lint $DIR/clean.jsonl" + with);
  EXPECT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  EXPECT_EQ(clean.out, "1 row, no fault\n");
  write_text(dir_ / "tokens/chat_template.jinja", read_text(dir_ / "other.jinja"));
  EXPECT_TRUE(has(sh("lint $DIR/chat.jsonl --chat-template $DIR/tokens").out, "a message spells <|im_end|>"))
      << "a folder brings its tokenizer";
  const ShellResult without = sh("lint $DIR/chat.jsonl --chat-template chatml-think");
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_TRUE(has(without.out, "2 rows, no fault; ids are not compared, since no tokenizer is named"));
}

TEST_F(DataCommand, PreviewMarksTheMask) {
  const std::string text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n⟦yo<|im_end|>⟧\n";
  const ShellResult one = sh("preview $DIR/chat.jsonl --chat-template chatml-think --rows 1");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.out, "== " + dir_ / "chat.jsonl:1\n" + text);
  const auto j =
      sh("preview $DIR/chat.jsonl --chat-template chatml-think --tokenizer $DIR/tokens --from 2 --json")
          .json();
  ASSERT_EQ(j.size(), 1u);
  EXPECT_TRUE(has(j[0]["where"], "chat.jsonl:2"));
  const std::string rendered = j[0]["text"];
  const auto span = j[0]["loss_spans"][0];
  EXPECT_EQ(rendered.substr(span[0], span[1].get<size_t>() - span[0].get<size_t>()), "yo<|im_end|>");
  EXPECT_EQ(j[0]["ids"].size(), j[0]["in_loss"].size());
  EXPECT_EQ(j[0]["runs"][0]["source"], "template");
  const ShellResult tokens =
      sh("preview $DIR/clean.jsonl --chat-template chatml-think --tokenizer $DIR/tokens");
  EXPECT_TRUE(has(tokens.out, " tokens, 3 in the loss\n")) << tokens.out;
}

TEST_F(DataCommand, PreviewComparesTwoTemplates) {
  const ShellResult r =
      sh("preview $DIR/clean.jsonl --chat-template chatml-think --against $DIR/other.jinja");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(has(r.out, "-<|im_start|>user\n")) << r.out;
  EXPECT_TRUE(has(r.out, "+user> hi<|im_end|>\n")) << r.out;
  EXPECT_TRUE(has(r.out, "0 of 1 row are equal in chatml-think.jinja (-) and ")) << r.out;
  EXPECT_TRUE(has(r.out, "== the templates\n-generation prompt: <|im_start|>assistant\\n\n")) << r.out;
  const ShellResult same = sh("preview $DIR/chat.jsonl --chat-template chatml-think --against chatml-think");
  EXPECT_TRUE(has(same.out, "(equal)\n")) << same.out;
  EXPECT_FALSE(has(same.out, "== the templates")) << same.out;
  EXPECT_TRUE(has(same.out, "2 of 2 rows are equal")) << same.out;
  EXPECT_EQ(sh("preview $DIR/chat.jsonl --chat-template chatml-think --against chatml-think --json")
                .json()[0]["equal"],
            true);
}

TEST_F(DataCommand, ColoursAreForTerminals) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(master, 0);
  ASSERT_EQ(::grantpt(master) + ::unlockpt(master), 0);
  const std::string slave = ::ptsname(master);
  const int held = ::open(slave.c_str(), O_RDWR | O_NOCTTY);
  const std::string command = "preview $DIR/clean.jsonl --chat-template chatml-think ";
  ASSERT_EQ(sh(command + ">" + slave).exit_code, 0);
  char buffer[4096];
  const ssize_t n = ::read(master, buffer, sizeof buffer);
  ASSERT_GT(n, 0);
  const std::string shown(buffer, static_cast<size_t>(n));
  EXPECT_TRUE(has(shown, "\x1b[32myo\x1b[0m")) << shown;
  ::close(held);
  ::close(master);
  EXPECT_FALSE(has(sh(command).out, "\x1b"));
}

TEST_F(DataCommand, WhatIsMissingIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"lint $DIR/chat.jsonl", "no chat template is named"},
      {"lint --chat-template chatml-think", "needs the argument 'files'"},
      {"preview $DIR/nowhere.jsonl --chat-template chatml-think", "nowhere.jsonl"},
      {"preview $DIR/chat.jsonl --chat-template $DIR/tokens", "has no chat template"},
      {"preview $DIR/chat.jsonl --chat-template chatml-think --from 9", "there is no row 9"},
      {"preview $DIR/other.jinja --chat-template chatml-think", "plain text"},
      {"", "needs the argument 'recipe'"}};
  for (const auto& [command, text] : cases) {
    const ShellResult r = sh(command);
    EXPECT_NE(r.exit_code, 0) << command;
    EXPECT_TRUE(has(r.err, text)) << command << "\n" << r.err;
  }
}

// The model's own template and tokenizer, as finetune takes them.
TEST_F(DataCommand, AModelBringsItsTemplate) {
  generation_fixture(dir_, "llama");
  ASSERT_EQ(shell(dir_, "$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  EXPECT_TRUE(has(sh("lint $DIR/chat.jsonl --model $DIR/in").err, "has no chat template"));
  const ShellResult named = sh("preview $DIR/clean.jsonl --model $DIR/in --chat-template chatml-think");
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_TRUE(has(named.out, " in the loss\n")) << named.out;
  write_text(dir_ / "in/huggingface/chat_template.jinja", read_text(dir_ / "other.jinja"));
  const ShellResult own = sh("preview $DIR/clean.jsonl --model $DIR/in");
  EXPECT_TRUE(has(own.out, "assistant> ⟦yo<|im_end|>⟧")) << own.out << own.err;
}

}  // namespace ingot::test::data_command_runs_test
