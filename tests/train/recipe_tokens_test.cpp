// Special tokens and the pattern of digits by recipe.
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tokenizer/tokenizer_spec.h"
#include "train/prepare.h"

namespace ingot::test::recipe_tokens_test {

Recipe recipe_in(const TempDir& dir, const std::string& tokenizer) {
  write_text(dir / "text.txt", tiny_text(2000));
  write_text(dir / "recipe.toml",
             "[run]\nfolder = \"" + (dir / "run") + "\"\n[tokenizer]\n" + tokenizer + "[data]\nfolder = \"" +
                 (dir / "data") + "\"\n[[data.sources]]\nname = \"words\"\npath = \"" + (dir / "text.txt") +
                 "\"\ndocuments = \"blank_line\"\nvalidation_fraction = 0.1\n[samples]\nprompts = []\n");
  return load_recipe(dir / "recipe.toml", {});
}

TEST(RecipeTokens, ComeFirstAndAreSpecial) {
  const TempDir dir;
  const PreparedData data = prepare_data(
      real_file_system(),
      recipe_in(dir, "vocab = 300\npattern = \"digits\"\nspecial_tokens = [\"<think>\", \"</think>\"]\n"));
  const Tokenizer& t = data.tokenizer;
  EXPECT_EQ(t.special_id("<|endoftext|>"), 0);
  EXPECT_EQ(t.special_id("<think>"), 1);
  EXPECT_EQ(t.special_id("</think>"), 2);
  EXPECT_EQ(t.roles().eos, 0);
  EXPECT_EQ(t.encode("12", {.parse_special = true}).size(), 2u);
  EXPECT_EQ(t.encode("<think>", {.parse_special = true}), std::vector<int32_t>{1});
  EXPECT_GT(t.encode("<think>").size(), 1u);
}

TEST(RecipeTokens, APreparedFolderHasTheTokensThatItWasMadeWith) {
  const TempDir dir;
  prepare_data(real_file_system(), recipe_in(dir, "vocab = 300\nspecial_tokens = [\"<a>\"]\n"));
  EXPECT_NO_THROW(
      prepare_data(real_file_system(), recipe_in(dir, "vocab = 300\nspecial_tokens = [\"<a>\"]\n")));
  EXPECT_THROW(prepare_data(real_file_system(), recipe_in(dir, "vocab = 300\n")), Error);
}

TEST(RecipeTokens, MistakesAreNamed) {
  const auto refusal = [](const std::string& tokenizer) -> std::string {
    const TempDir dir;
    try {
      recipe_in(dir, tokenizer);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(refusal("special_tokens = [\"<a>\", \"<a>\"]\n").find("occurs twice"), std::string::npos);
  EXPECT_NE(refusal("special_tokens = [\"\"]\n").find("empty"), std::string::npos);
  EXPECT_NE(refusal("vocab = 257\nspecial_tokens = [\"<a>\"]\n").find("at least 258"), std::string::npos);
  EXPECT_NE(refusal("path = \"x\"\nspecial_tokens = [\"<a>\"]\n").find("ingot tokenizer add"),
            std::string::npos);
}

}  // namespace ingot::test::recipe_tokens_test
