// `ingot generate` and `ingot eval` of an import: the tokens around a text, special tokens in it, samples,
// stop strings, log-probabilities, numbers out of range, logits that are not finite, and what reaches a
// terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "support/imported.h"

namespace ingot::test::generate_runs_test {

using nlohmann::json;

class Generate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    generation_fixture(*dir_, "llama");
    ASSERT_EQ(sh("$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static ShellResult sh(const std::string& command) { return shell(*dir_, command); }
  /// The JSON of a generation of four greedy tokens.
  static json made(const std::string& more) {
    const ShellResult r = sh("$INGOT generate $DIR/in --max-tokens 4 --temperature 0 --json " + more);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.exit_code == 0 ? r.json() : json();
  }
  /// The command must fail with a message that has the parts.
  static void refuses(const std::string& command, const std::vector<std::string>& parts) {
    const ShellResult r = sh(command);
    EXPECT_GT(r.exit_code, 0) << command;
    EXPECT_NE(r.exit_code, 3) << r.err;
    for (const std::string& part : parts)
      EXPECT_NE((r.out + r.err).find(part), std::string::npos) << part << "\n" << r.err;
  }
  static inline std::unique_ptr<TempDir> dir_;
};

TEST_F(Generate, SaysWhatStandsAroundAText) {
  const json with = made("--prompt 'the river'"), without = made("--prompt 'the river' --no-begin-token");
  EXPECT_EQ(with["begin_token"], json({{"id", 300}, {"text", "<|begin_of_text|>"}}));
  EXPECT_EQ(with["end_tokens"].size(), 2u);
  EXPECT_EQ(with["end_tokens"][1]["id"], 302);
  EXPECT_EQ(with["prompt_ids"][0], 300);
  EXPECT_TRUE(without["begin_token"].is_null());
  std::vector<int32_t> rest = with["prompt_ids"];
  rest.erase(rest.begin());
  EXPECT_EQ(without["prompt_ids"], json(rest));
  // An empty prompt is the begin token alone; a model without one has nothing to start from.
  EXPECT_EQ(made("--prompt ''")["prompt_ids"], json({300}));
  refuses("$INGOT generate $DIR/in --prompt '' --no-begin-token", {"the prompt is empty"});
  // Without generation_config.json the end id of config.json counts.
  ASSERT_EQ(sh("rm $DIR/llama/generation_config.json && $INGOT import $DIR/llama $DIR/plain").exit_code, 0);
  const ShellResult plain = sh("$INGOT generate $DIR/plain --max-tokens 1 --json");
  EXPECT_EQ(plain.json()["end_tokens"].size(), 1u) << plain.out;
  ASSERT_EQ(
      sh("echo '{\"eos_token_id\": [301, \"x\"]}' >$DIR/plain/huggingface/generation_config.json").exit_code,
      0);
  refuses("$INGOT generate $DIR/plain", {"generation_config.json", "eos_token_id", "302", "x"});
}

TEST_F(Generate, SpecialTokensInAPromptAreTokensOnlyWhenAskedFor) {
  const std::string prompt = "--prompt '<|eot_id|>a<|eot_id|> and <|begin_of_text|>' ";
  const ShellResult plain = sh("$INGOT generate $DIR/in --max-tokens 1 --json " + prompt);
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.json()["special_tokens"], "text");
  EXPECT_NE(plain.err.find("warning: the prompt spells special tokens 3 times, e.g. <|begin_of_text|>;"),
            std::string::npos)
      << plain.err;
  EXPECT_NE(plain.err.find("--special"), std::string::npos);
  EXPECT_EQ(plain.err.find("warning"), plain.err.rfind("warning")) << "one warning";
  for (const int32_t id : plain.json()["prompt_ids"].get<std::vector<int32_t>>()) EXPECT_LE(id, 300);
  const ShellResult parsed = sh("$INGOT generate $DIR/in --max-tokens 1 --json --special " + prompt);
  EXPECT_EQ(parsed.err, "");
  EXPECT_EQ(parsed.json()["special_tokens"], "parse");
  const std::vector<int32_t> ids = parsed.json()["prompt_ids"];
  EXPECT_EQ(ids[1], 302);
  EXPECT_EQ(ids.back(), 300);
}

TEST_F(Generate, SamplesAreIndependentAndTheFirstIsTheOnlyOne) {
  const std::string command = "$INGOT generate $DIR/in --prompt 'the river runs' --max-tokens 12 --seed 5 ";
  const json three = sh(command + "-n 3 --json").json(), one = sh(command + "--json").json();
  ASSERT_EQ(three["samples"].size(), 3u);
  EXPECT_EQ(three["samples"][0], one["samples"][0]);
  EXPECT_NE(three["samples"][1]["ids"], three["samples"][0]["ids"]);
  EXPECT_NE(three["samples"][2]["ids"], three["samples"][1]["ids"]);
  const ShellResult text = sh(command + "-n 2 --quiet");
  EXPECT_EQ(text.out, "== sample 1 of 2\n" + one["samples"][0]["text"].get<std::string>() +
                          "\n\n== sample 2 of 2\n" + three["samples"][1]["text"].get<std::string>() + "\n");
}

TEST_F(Generate, APromptFromAFileOrStandardInput) {
  const json expected = made("--prompt 'the sea winds'");
  write_text(*dir_ / "prompt", "the sea winds\n");
  EXPECT_EQ(made("--prompt-file $DIR/prompt"), expected);
  EXPECT_EQ(made("--prompt-file - <$DIR/prompt"), expected);
  EXPECT_EQ(made("--prompt - <$DIR/prompt"), expected);
  refuses("$INGOT generate $DIR/in --prompt a --prompt-file $DIR/prompt", {"--prompt", "--prompt-file"});
  refuses("$INGOT generate $DIR/in --prompt-file $DIR/nowhere", {"nowhere"});
  EXPECT_EQ(sh("$INGOT generate --run $DIR/in --prompt 'the sea winds' --max-tokens 4 --temperature 0 --json")
                .json(),
            expected);
  refuses("$INGOT generate $DIR/in --run $DIR/in", {"named twice"});
  refuses("$INGOT generate", {"no model is named", "MODEL"});
}

TEST_F(Generate, StopsBeforeAString) {
  const std::string command =
      "$INGOT generate $DIR/in --prompt 'the river' --max-tokens 30 --temperature 0 --json ";
  const std::string whole = sh(command).json()["samples"][0]["text"];
  ASSERT_GT(whole.size(), 12u);
  const std::string stop = whole.substr(7, 3);
  write_text(*dir_ / "stop", stop);
  const json cut =
      sh("$INGOT generate --stop 'never in it' --stop \"$(cat $DIR/stop)\" " + command.substr(16)).json();
  EXPECT_EQ(cut["samples"][0]["text"], whole.substr(0, whole.find(stop)));
  EXPECT_EQ(cut["samples"][0]["ended_by"], "stop");
  refuses(command + "--stop ''", {"stop string is empty"});
}

TEST_F(Generate, LogProbabilities) {
  const json all = made("--prompt 'the river' --logprobs 3")["samples"][0];
  ASSERT_EQ(all["logprobs"].size(), all["ids"].size());
  for (size_t i = 0; i < all["ids"].size(); ++i) {
    const json& t = all["logprobs"][i];
    EXPECT_EQ(t["id"], all["ids"][i]);
    ASSERT_EQ(t["top"].size(), 3u);
    EXPECT_EQ(t["top"][0]["id"], t["id"]) << "greedy";
    EXPECT_EQ(t["top"][0]["logprob"], t["logprob"]);
    EXPECT_LT(t["logprob"].get<double>(), 0);
    EXPECT_GE(t["top"][0]["logprob"], t["top"][1]["logprob"]);
  }
  const ShellResult text = sh("$INGOT generate $DIR/in --quiet --max-tokens 2 --logprobs 0");
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\t'), 4) << text.out;
}

TEST_F(Generate, NumbersOutOfRangeAndAFullContext) {
  for (const char* bad :
       {"--max-tokens -1", "--max-tokens 0", "--temperature -1", "--temperature nan", "--top-p 1.5",
        "--top-p 0", "--top-k -2", "--min-p 2", "-n 0", "--logprobs -1", "--seed -1"})
    refuses(std::string("$INGOT generate $DIR/in ") + bad, {});
  const ShellResult full = sh("$INGOT generate $DIR/in --temperature 0 --max-tokens 1000 --prompt 'the'");
  EXPECT_EQ(full.exit_code, 0) << full.err;
  if (sh("$INGOT generate $DIR/in --temperature 0 --max-tokens 1000 --prompt 'the' --json")
          .json()["samples"][0]["ended_by"] == "context") {
    EXPECT_NE(full.err.find("context of 256 tokens is full"), std::string::npos) << full.err;
  }
  write_text(*dir_ / "long", std::string(3000, 'x'));
  refuses("$INGOT generate $DIR/in --prompt-file $DIR/long",
          {"the prompt has", "the model's context is 256"});
}

TEST_F(Generate, LogitsThatAreNotFiniteAreAnError) {
  const TempDir dir;
  fill_tensor(generation_fixture(dir, "llama"), "model.norm.weight", 3e38F);
  ASSERT_EQ(shell(dir, "$INGOT import $DIR/llama $DIR/in").exit_code, 0);
  write_text(dir / "text", "the river runs under a bridge\n");
  for (const char* command :
       {"generate $DIR/in", "generate $DIR/in --temperature 0", "chat $DIR/in <$DIR/text",
        "eval $DIR/in --text $DIR/text", "eval $DIR/in --json --text $DIR/text"}) {
    const ShellResult r = shell(dir, std::string("$INGOT ") + command);
    EXPECT_EQ(r.exit_code, 1) << command << "\n" << r.out << r.err;
    EXPECT_NE(r.err.find("error: "), std::string::npos) << command << r.err;
    EXPECT_NE(r.err.find("diverged"), std::string::npos) << r.err;
  }
}

/// What a terminal gets on standard output.
std::string on_terminal(const std::string& command, const std::string& folder) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_GE(master, 0);
  EXPECT_EQ(::grantpt(master) + ::unlockpt(master), 0);
  const std::string slave = ::ptsname(master);
  const int held = ::open(slave.c_str(), O_RDWR | O_NOCTTY);  // what is written stays readable
  EXPECT_EQ(run_process({"/bin/bash", "-c", command + ">" + slave},
                        {"INGOT=" INGOT_BINARY, "DIR=" + folder, "LC_ALL=C.UTF-8"})
                .exit_code,
            0);
  char buffer[4096];
  const ssize_t n = ::read(master, buffer, sizeof buffer);
  ::close(held);
  ::close(master);
  return {buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

TEST_F(Generate, ATerminalGetsNoControlCharacter) {
  const std::string command =
      "$INGOT generate $DIR/in --max-tokens 1 --temperature 0 --prompt $'a\\e[31mb\\u009bc' ";
  const std::string shown = on_terminal(command, dir_->path());
  EXPECT_NE(shown.find("a\\x1b[31mb\\u{9b}c"), std::string::npos) << shown;
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
  // What a report takes from files: here a path.
  const std::string link = dir_->path() +
                           "/a\xc2\x9b"
                           "b";
  std::filesystem::create_symlink("in", link);
  const std::string listed = on_terminal("$INGOT checkpoint show $DIR/a*b", dir_->path());
  EXPECT_NE(listed.find("/a\\u{9b}b"), std::string::npos) << listed;
  EXPECT_EQ(listed.find("\xc2\x9b"), std::string::npos) << listed;
  EXPECT_NE(sh(command).out.find("a\x1b[31mb"), std::string::npos) << "a pipe gets every byte";
  // Messages quote what they are given.
  const ShellResult r = sh("$INGOT generate $DIR/in --prompt-file $'no\\e[31mwhere'");
  EXPECT_EQ(r.err.find('\x1b'), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("no\\x1b[31mwhere"), std::string::npos) << r.err;
}

TEST_F(Generate, EvalScoresTextBehindTheBeginToken) {
  write_text(*dir_ / "text", "the river runs under a stone bridge and sea winds carry salt over green hills");
  const std::string eval = "$INGOT eval $DIR/in --json --text $DIR/text ";
  const json with = sh(eval).json(), without = sh(eval + "--no-begin-token").json();
  EXPECT_EQ(with["begin_token"]["id"], 300);
  const json a = with["results"][0], b = without["results"][0];
  EXPECT_EQ(a["tokens"], b["tokens"].get<int64_t>() + 1) << "its first token is predicted too";
  EXPECT_NE(a["loss"], b["loss"]);
  EXPECT_NEAR(a["perplexity"].get<double>(), std::exp(a["loss"].get<double>()), 1e-9);
  const double bits = a["loss"].get<double>() * a["tokens"].get<double>() / std::log(2.0) / 77;
  EXPECT_NEAR(a["bits_per_byte"].get<double>(), bits, 1e-9);
  EXPECT_EQ(sh("$INGOT eval $DIR/in --json --text - <$DIR/text").json()["results"][0]["loss"], a["loss"]);
  EXPECT_EQ(sh("$INGOT eval --run $DIR/in --json --text $DIR/text").json(), with);
  // Windows: each begins with the token, so none of them loses a target.
  EXPECT_EQ(sh(eval + "--sequence 5").json()["results"][0]["tokens"], a["tokens"]);
  write_text(*dir_ / "turn", "the river<|eot_id|>");
  const ShellResult spelled = sh("$INGOT eval $DIR/in --text $DIR/turn");
  EXPECT_NE(spelled.err.find("spells special tokens once, e.g. <|eot_id|>"), std::string::npos)
      << spelled.err;
  const json parsed = sh("$INGOT eval $DIR/in --json --special --text $DIR/turn").json();
  EXPECT_LT(parsed["results"][0]["tokens"], 9);
}

}  // namespace ingot::test::generate_runs_test
