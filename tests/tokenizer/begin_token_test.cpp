// What a tokenizer's files put before a text, and special tokens that a text spells.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/support.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::test::begin_token_test {

using nlohmann::json;

/// The fixture's tokenizer with another tokenizer_config.json.
Tokenizer with_config(const TempDir& dir, const json& config) {
  write_text(dir / "tokenizer.json", read_text(fixture("generation/llama/tokenizer.json")));
  write_text(dir / "tokenizer_config.json", config.dump());
  return Tokenizer::load(dir.path());
}

TEST(BeginToken, ComesFromTheTemplateOrTheConfig) {
  const TempDir dir;
  const json names = {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|end_of_text|>"}};
  const auto begin = [&](json more) {
    json config = names;
    config.update(more);
    return with_config(dir, config).begin_token();
  };
  EXPECT_EQ(begin(json::object()), 300) << "the template's";
  EXPECT_EQ(begin({{"add_bos_token", true}}), 300);
  EXPECT_EQ(begin({{"add_bos_token", false}}), std::nullopt);
  EXPECT_EQ(begin({{"add_eos_token", false}}), std::nullopt)
      << "transformers makes the template anew from both";
  EXPECT_EQ(begin({{"add_bos_token", true}, {"bos_token", "<|eot_id|>"}}), 302);
  EXPECT_EQ(begin({{"add_bos_token", true}, {"bos_token", nullptr}}), std::nullopt);
  EXPECT_THROW(begin({{"add_bos_token", "yes"}}), Error);
  // Saved and read again it says the same.
  for (const json& more : {json::object(), json{{"add_bos_token", false}},
                           json{{"add_bos_token", true}, {"bos_token", "<|eot_id|>"}}}) {
    json config = names;
    config.update(more);
    const Tokenizer t = with_config(dir, config);
    t.save(dir / "saved");
    EXPECT_EQ(Tokenizer::load(dir / "saved").begin_token(), t.begin_token()) << more;
  }
  // A tokenizer without a template begins nothing, whatever its tokens are called.
  TokenizerSpec spec = with_config(dir, names).spec();
  spec.template_bos = -1;
  EXPECT_EQ(Tokenizer::from_spec(spec).begin_token(), std::nullopt);
  EXPECT_EQ(Tokenizer::from_spec(spec).roles().bos, 300);
}

TEST(BeginToken, SpelledSpecialTokensAreCounted) {
  const Tokenizer t = Tokenizer::load(fixture("generation/llama"));
  const std::vector<std::string_view> texts(50, "a <|eot_id|> b <|eot_id|><|end_of_text|> <|eot_i");
  SpelledSpecials spelled;
  const auto ids = t.encode_batch(texts, {.spelled = &spelled});
  EXPECT_EQ(ids.front(), t.encode(texts.front())) << "counting changes nothing";
  EXPECT_EQ(spelled.count(), 150);
  const std::string warning = spelled.warning(t, "the text", "--special");
  EXPECT_NE(warning.find("150 times, e.g. <|end_of_text|>"), std::string::npos) << warning;
  EXPECT_NE(warning.find("--special"), std::string::npos);
  SpelledSpecials parsed;
  t.encode_batch(texts, {.parse_special = true, .spelled = &parsed});
  EXPECT_EQ(parsed.count(), 0);
  EXPECT_EQ(parsed.warning(t, "the text", "--special"), "");
}

}  // namespace ingot::test::begin_token_test
