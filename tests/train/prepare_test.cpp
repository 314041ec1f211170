// A data folder that was prepared with another tokenizer, text or options than the recipe says is refused,
// and each difference is named; text may be gone.
#include "train/prepare.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::prepare_test {

namespace stdfs = std::filesystem;

class Prepare : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(dir_ / "text.txt", tiny_text(2000));
    write_text(dir_ / "more.txt", tiny_text(300, 2));
    write_text(dir_ / "recipe.toml",
               "[run]\nfolder = \"" + (dir_ / "run") + "\"\n[tokenizer]\nvocab = 300\n[data]\nfolder = \"" +
                   (dir_ / "data") + "\"\n[[data.sources]]\nname = \"words\"\npath = \"" +
                   (dir_ / "text.txt") +
                   "\"\ndocuments = \"blank_line\"\nvalidation_fraction = 0.1\n[samples]\nprompts = []\n");
  }
  PreparedData prepare(const std::vector<std::string>& overrides = {}) {
    return prepare_data(real_file_system(), load_recipe(dir_ / "recipe.toml", overrides));
  }
  std::string refusal(const std::vector<std::string>& overrides = {}) {
    try {
      prepare(overrides);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint();
    }
    return "nothing was refused";
  }
  void expect_refused(const std::vector<std::string>& overrides, const std::vector<std::string>& parts) {
    const std::string found = refusal(overrides);
    for (const std::string& part : parts) EXPECT_NE(found.find(part), found.npos) << part << "\n" << found;
  }
  TempDir dir_;
};

TEST_F(Prepare, EveryKindOfMismatchIsNamed) {
  EXPECT_EQ(prepare().vocab, 300);
  EXPECT_EQ(prepare().vocab, 300);
  const std::string way_out = "--data.folder=";
  expect_refused({"--tokenizer.vocab=280"},
                 {"tokenizer.vocab: 300; the recipe says 280", way_out, "--tokenizer.path="});
  expect_refused({"--tokenizer.vocab=320"}, {"tokenizer.vocab: 300; the recipe says 320"});
  expect_refused({"--tokenizer.kind=characters"},
                 {"tokenizer.kind: bpe; the recipe says characters", way_out});
  expect_refused({"--tokenizer.pattern=llama3"}, {"tokenizer.pattern: gpt2; the recipe says llama3"});
  expect_refused({"--data.sources.0.validation_fraction=0.2"}, {"validation 0.1", "validation 0.2", way_out});
  expect_refused({"--data.sources.0.documents=whole_file"}, {"documents"});
  expect_refused({"--data.end_of_text=false"}, {"end-of-text token"});
  expect_refused({"--data.end_of_text_first=true"},
                 {"end-of-text token ends documents; the recipe says begins"});
  expect_refused({"--data.sources.0.path=" + (dir_ / "more.txt")}, {"text: ", "more.txt' is new"});
  expect_refused({"--data.sources.0.path=" + (dir_ / "nowhere.txt")}, {"nowhere.txt"});
  expect_refused({"--data.sources.1.name=more", "--data.sources.1.path=" + (dir_ / "more.txt")},
                 {"text: without source 'more'"});
  // With the tokenizer's path the person says which one is meant.
  const std::string own = "--tokenizer.path=" + (dir_ / "data/tokenizer");
  EXPECT_EQ(prepare({own, "--tokenizer.vocab=280"}).vocab, 300);
  EXPECT_EQ(prepare({"--data.folder=" + (dir_ / "new"), "--tokenizer.vocab=280"}).vocab, 280);
  expect_refused({"--tokenizer.path=" + (dir_ / "new/tokenizer")},
                 {"tokenizer: ", "300 tokens", "280 tokens"});
}

TEST_F(Prepare, ADataFolderOfAnEarlierVersionIsComparedByItsTokenizer) {
  prepare();
  stdfs::remove(dir_ / "data/tokenizer/trained_from.json");
  EXPECT_EQ(prepare().vocab, 300);
  expect_refused({"--tokenizer.vocab=280"}, {"tokenizer.vocab: 300; the recipe says 280"});
  expect_refused({"--tokenizer.kind=characters"}, {"tokenizer.kind"});
  expect_refused({"--tokenizer.pattern=llama3"}, {"tokenizer.pattern"});
}

TEST_F(Prepare, TextMayBeGoneButNotChanged) {
  const std::string hash = prepare().sources[0].train()->content_hash();
  stdfs::rename(dir_ / "text.txt", dir_ / "kept");
  EXPECT_EQ(prepare().sources[0].train()->content_hash(), hash);
  write_text(dir_ / "text.txt", tiny_text(1999));
  expect_refused({}, {"text: ", "text.txt' has changed"});
}

}  // namespace ingot::test::prepare_test
