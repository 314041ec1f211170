// `ingot tokenizer train | encode | decode | info`: files, standard streams, special tokens, JSON, bad input.
#include <gtest/gtest.h>

#include "support/imported.h"
#include "tokenizer/tokenizer.h"

namespace ingot::test::tokenizer_command_runs_test {

using nlohmann::json;

class TokenizerCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(dir_ / "text.txt", tiny_text(3000));
    write_text(dir_ / "rows.jsonl", "{\"text\": \"zebra zebra zebra\"}\n{\"text\": \"quartz\"}\n");
  }
  ShellResult sh(const std::string& command) const { return shell(dir_, "$INGOT tokenizer " + command); }
  void refuses(const std::string& command, const std::vector<std::string>& parts) const {
    const ShellResult r = sh(command);
    EXPECT_GT(r.exit_code, 0) << command;
    EXPECT_NE(r.exit_code, 3) << r.err;
    for (const std::string& p : parts) EXPECT_NE(r.err.find(p), std::string::npos) << p << "\n" << r.err;
  }
  TempDir dir_;
};

TEST_F(TokenizerCommand, TrainEncodeDecode) {
  const ShellResult trained =
      sh("train $DIR/text.txt $DIR/rows.jsonl --vocab 300 --pattern llama3 --special-token '<|end|>' "
         "--special-token '<|turn|>' "
         "--out $DIR/tok --json");
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.json()["tokens"], 300);
  const Tokenizer t = Tokenizer::load(dir_ / "tok");
  EXPECT_EQ(trained.json()["hash"], t.content_hash());
  EXPECT_EQ(t.special_id("<|turn|>"), 1);
  refuses("train $DIR/text.txt --out $DIR/tok", {"already holds a tokenizer"});

  const std::string text = "the river <|turn|> runs\n\xff\x01";
  write_text(dir_ / "some", text);
  const ShellResult plain = sh("encode $DIR/tok --file $DIR/some --ids");
  EXPECT_NE(plain.err.find("spells special tokens once, e.g. <|turn|>"), std::string::npos) << plain.err;
  EXPECT_EQ(sh("encode $DIR/tok - --ids <$DIR/some").out, plain.out);
  const ShellResult special = sh("encode $DIR/tok --file $DIR/some --special --json");
  EXPECT_EQ(special.json()["ids"], json(t.encode(text, {.parse_special = true})));
  EXPECT_EQ(special.json()["tokens"].size(), special.json()["ids"].size());
  // Back again, byte for byte, from every form.
  for (const char* form : {"--ids", "--ids --special", "--json"})
    EXPECT_EQ(sh(std::string("encode $DIR/tok --file $DIR/some ") + form +
                 " 2>/dev/null | $INGOT tokenizer decode $DIR/tok -")
                  .out,
              text)
        << form;
  EXPECT_EQ(sh("decode $DIR/tok 0 1").out, "<|end|><|turn|>");
  EXPECT_EQ(sh("decode $DIR/tok '[0, 1]' --json").json()["text"], "<|end|><|turn|>");
  EXPECT_EQ(sh("encode $DIR/tok '<|end|>' --special").out, "0\t<|end|>\n");
  refuses("decode $DIR/tok 0 x1", {"'x1' is no token id"});
  refuses("decode $DIR/tok 300", {"300", "vocabulary of 300"});
  refuses("decode $DIR/tok 99999999999999", {"is no token id"});
  refuses("encode $DIR/tok text --file $DIR/some", {"--file"});
  refuses("encode $DIR/nowhere text", {"nowhere"});
}

TEST_F(TokenizerCommand, FromStandardInputAndOfCharacters) {
  ASSERT_EQ(sh("train - --vocab 270 --out $DIR/a.json <$DIR/text.txt").exit_code, 0);
  ASSERT_EQ(sh("train $DIR/text.txt --vocab 270 --out $DIR/b.json").exit_code, 0);
  EXPECT_EQ(read_text(dir_ / "a.json"), read_text(dir_ / "b.json"));
  ASSERT_EQ(sh("train $DIR/text.txt --kind characters --special-token '' --out $DIR/c").exit_code, 0);
  EXPECT_EQ(Tokenizer::load(dir_ / "c").special_id("<|endoftext|>"), std::nullopt);
  refuses("encode $DIR/c QUARTZ", {"character U+0051"});
  refuses("train $DIR/text.txt --kind words --out $DIR/d", {"words", "characters"});
  refuses("train $DIR/nowhere.txt --out $DIR/d", {"nowhere.txt"});
  refuses("train $DIR/text.txt --vocab 10 --out $DIR/d", {});
  refuses("train $DIR/text.txt --vocab 256 --out $DIR/d", {"256"});
  refuses("train $DIR/text.txt", {"--out"});
}

TEST_F(TokenizerCommand, InfoSaysWhatStandsAroundText) {
  const std::string folder = fixture("generation/llama");
  const json info = sh("info " + folder + " --json").json();
  EXPECT_EQ(info["tokens"], 303);
  EXPECT_EQ(info["begin_token"]["text"], "<|begin_of_text|>");
  EXPECT_EQ(info["eos"]["id"], 301);
  EXPECT_EQ(info["special_tokens"].size(), 3u);
  EXPECT_EQ(info["hash"], Tokenizer::load(folder).content_hash());
  const std::string text = sh("info " + folder).out;
  EXPECT_NE(text.find("begins texts with 300 <|begin_of_text|>\n"), std::string::npos) << text;
  EXPECT_EQ(sh("encode " + folder + " a --begin-token --ids").out,
            "300 " + sh("encode " + folder + " a --ids").out);
}

}  // namespace ingot::test::tokenizer_command_runs_test
