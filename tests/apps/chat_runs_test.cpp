// `ingot chat`: no line ends the session, what ended an answer is said, notes stay out of a pipe, Ctrl-C ends
// the answer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "support/imported.h"

namespace ingot::test::chat_runs_test {

class ChatTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    generation_fixture(*dir_, "llama");
    ASSERT_EQ(shell(*dir_, "$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static ShellResult chat(const std::string& lines, const std::string& options = "") {
    write_text(*dir_ / "lines", lines);
    return shell(*dir_, "$INGOT chat $DIR/in " + options + " <$DIR/lines");
  }
  static inline std::unique_ptr<TempDir> dir_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ChatTest, CommandsAndNotesStayOutOfAPipe) {
  const ShellResult r =
      chat("/help\nthe river\n/seed 7\n/seed x\n/nonsense\n\n/reset\n//path\n/quit\nnever read\n",
           "--max-tokens 3");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  for (const char* part :
       {"the model continues it", "/reset", "(budget reached: 3 tokens", "(seed 7)",
        "/seed takes a whole number", "there is no command '/nonsense'", "(reset)\n(reset)"})
    EXPECT_TRUE(has(r.err, part)) << part << "\n" << r.err;
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 2) << "two answers: " << r.out;
  EXPECT_FALSE(has(r.out, "(")) << r.out;
  // The same seed gives the same answer after a reset, another seed another one.
  const std::string one = chat("the river\n", "--max-tokens 12").out;
  const std::string three =
      chat("the river\n/reset\nthe river\n/reset\n/seed 8\nthe river\n", "--max-tokens 12").out;
  EXPECT_TRUE(three.starts_with(one + one)) << three;
  EXPECT_NE(three, one + one + one);
}

TEST_F(ChatTest, NoLineEndsTheSession) {
  const ShellResult r =
      chat(std::string(5000, 'x') + "\n\xff\xfe not UTF-8 \x80\n" + std::string("nul\0byte", 8) +
               "\nthe <|eot_id|> is text\nthe <|eot_id|> again\n\x1b[31m\nlast",
           "--max-tokens 2");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(has(r.err, "(not added: the line has ")) << r.err;
  EXPECT_TRUE(has(r.err, "the model's context is 256")) << r.err;
  EXPECT_EQ(r.err.find("spells special tokens"), r.err.rfind("spells special tokens")) << "one warning";
  EXPECT_TRUE(has(r.err, "e.g. <|eot_id|>")) << r.err;
  size_t answers = 0;
  for (size_t at = 0; (at = r.err.find("(budget reached", at)) != std::string::npos; ++at) ++answers;
  EXPECT_GE(answers, 5u) << r.err;
}

TEST_F(ChatTest, CharactersThatTheVocabularyLacks) {
  const TempDir dir;
  write_text(dir / "text.txt", tiny_text(2000));
  write_text(dir / "recipe.toml", tiny_recipe(dir / "run", dir / "data", dir / "text.txt"));
  ASSERT_EQ(shell(dir, "$INGOT run $DIR/recipe.toml").exit_code, 0);
  write_text(dir / "lines", "the sea\nWhat is a Quark?\n\xff\nthe river\n");
  const ShellResult r = shell(dir, "$INGOT chat $DIR/run --max-tokens 4 <$DIR/lines");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(has(r.err, "(not added: character U+0057 is not in the character vocabulary")) << r.err;
  EXPECT_TRUE(has(r.err, "not valid UTF-8")) << r.err;
  EXPECT_EQ(shell(dir, "$INGOT chat $DIR/run </dev/null").exit_code, 0) << "a run folder as MODEL";
}

TEST_F(ChatTest, TheContextAndTheEndOfATextAreSaid) {
  const std::string line =
      "the river runs under a stone bridge and sea winds carry salt over green hills while kings sleep";
  const ShellResult full = chat(line + "\n" + line + "\n" + line + "\n" + line + "\n", "--max-tokens 1000");
  EXPECT_EQ(full.exit_code, 0) << full.err;
  EXPECT_TRUE(has(full.err, "(context full: ") || has(full.err, "(end of text)")) << full.err;
  // Prompts that a known end id ends, at once for the second line: the text has ended already.
  const auto cases = nlohmann::json::parse(read_text(fixture("generation/llama/generation.json")));
  for (const auto& c : cases) {
    if (c["ids"].back() < 301) continue;
    const ShellResult r = chat(c["prompt"].get<std::string>() + "\n", "--temperature 0 --max-tokens 250");
    EXPECT_TRUE(has(r.err, "(end of text)\n")) << r.err;
    const int64_t short_by_one = static_cast<int64_t>(c["ids"].size()) - 1;
    EXPECT_TRUE(has(chat(c["prompt"].get<std::string>() + "\n",
                         "--temperature 0 --max-tokens " + std::to_string(short_by_one))
                        .err,
                    "(budget reached"));
  }
}

TEST_F(ChatTest, ThinkAndNoThinkAreCommands) {
  EXPECT_TRUE(has(chat("/think\n").err, "(the model's chat format has no thinking)"));
  const TempDir dir;
  std::filesystem::copy(fixture("generation/chat"), dir / "hf");
  const auto talk = [&](const std::string& lines, const std::string& options = "") {
    write_text(dir / "lines", lines);
    return shell(dir, "$INGOT chat $DIR/hf --temperature 0 --max-tokens 60 " + options + " <$DIR/lines");
  };
  // What the model was trained to think, and with the thinking closed in the prompt none.
  const ShellResult on = talk("/think\nIs 7 odd?\n"), off = talk("/no_think\nIs 7 odd?\n");
  EXPECT_TRUE(has(on.err, "(thinking on)\n(thinking) 7 = 2 x 3 + 1")) << on.err;
  EXPECT_EQ(on.out, "Yes, it is.\n");
  EXPECT_TRUE(has(off.err, "(thinking off)\n")) << off.err;
  EXPECT_FALSE(has(off.err, "(thinking) ")) << off.err;
  EXPECT_EQ(talk("/think off\nIs 7 odd?\n").out, off.out);
  const ShellResult few = talk("/think 2\nIs 7 odd?\n/think many\n");
  EXPECT_TRUE(has(few.err, "(thinking on, at most 2 tokens)\n(thinking) 7")) << few.err;
  EXPECT_FALSE(has(few.err, "7 = 2 x 3")) << few.err;
  EXPECT_TRUE(has(few.err, "(/think takes on, off or a number of tokens")) << few.err;
  write_text(dir / "fixed.jinja",
             "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
             "{% endfor %}{{ '<|im_start|>assistant\n<think>\n' }}");
  EXPECT_TRUE(has(talk("/no_think\n", "--chat-template $DIR/fixed.jinja").err,
                  "(the chat template has no switch for thinking; /think N limits it)"));
}

/// Waits until a file holds `part`; false after a minute.
bool appears(const std::string& path, const std::string& part) {
  for (int i = 0; i < 6000; ++i) {
    if (::access(path.c_str(), R_OK) == 0 && has(read_text(path), part)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(ChatTest, CtrlCEndsTheAnswerAndNotTheProgram) {
  const TempDir dir;
  ASSERT_EQ(shell(dir, "$INGOT model gpt-10m --random=$DIR/big").exit_code, 0);
  ASSERT_EQ(::mkfifo((dir / "in").c_str(), 0600), 0);
  Process p({"/bin/bash", "-c",
             "exec $INGOT chat $DIR/big --tokenizer " + fixture("generation/llama") +
                 " --temperature 0 --max-tokens 1000 <$DIR/in >$DIR/out 2>$DIR/err"},
            {"INGOT=" INGOT_BINARY, "DIR=" + dir.path()});
  const int in = ::open((dir / "in").c_str(), O_WRONLY);
  const auto type = [&](const std::string& text) {
    ASSERT_EQ(::write(in, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  type("the river\n");
  const auto written = [&] {
    std::error_code none;
    const auto size = std::filesystem::file_size(dir / "out", none);
    return !none && size > 2;
  };
  for (int i = 0; i < 6000 && !written(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(p.running());
  p.signal(SIGINT);
  EXPECT_TRUE(appears(dir / "err", "(interrupted)"));
  type("/seed 3\n");
  EXPECT_TRUE(appears(dir / "err", "(seed 3)"));
  type("/quit\n");
  const ProcessResult r = p.wait();
  EXPECT_EQ(r.exit_code, 0) << read_text(dir / "err");
  ::close(in);
}

}  // namespace ingot::test::chat_runs_test
