// Tokenizers over characters against Hugging Face's library, SentencePiece models against its own, added
// tokens that strip white space: fixtures of tools/oracle/character_tokenizers.py. Ids are equal, not close;
// any bytes come back.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "support/support.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::test::character_tokenizers_oracle_test {

using nlohmann::json;

std::string read(const std::string& name) {
  return real_file_system().read(fixture("tokenizer/" + name));
}

std::string ids_hash(std::span<const int32_t> ids) {
  uint64_t h = 0;
  for (const int32_t id : ids) h = h * 1000003 + static_cast<uint64_t>(id) + 1;
  return fmt::format("{:016x}", h);
}

/// Whether a text comes back as it is from a tokenizer of these rules.
bool comes_back(const TokenizerSpec& spec, std::string_view text) {
  const bool takes_space =
      spec.spaces == SpaceRule::metaspace_first || spec.spaces == SpaceRule::metaspace_always;
  return text.find(kSpaceMark) == std::string_view::npos && !(takes_space && text.starts_with(' '));
}

class CharacterTokenizers : public testing::TestWithParam<const char*> {
 protected:
  const json fixture_ = json::parse(read(std::string(GetParam()) + ".json"));
  const Tokenizer tokenizer_ = Tokenizer::from_json(fixture_["tokenizer"].dump());
};

TEST_P(CharacterTokenizers, EncodesAndDecodesAlike) {
  for (const json& c : fixture_["cases"]) {
    const auto text = c["text"].get<std::string>();
    const auto expected = c["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_.encode(text, {.parse_special = true}), expected) << text;
    EXPECT_EQ(tokenizer_.decode(expected), c["decoded"].get<std::string>()) << text;
    const auto plain = c.contains("plain") ? c["plain"].get<std::vector<int32_t>>() : expected;
    EXPECT_EQ(tokenizer_.encode(text), plain) << text;
  }
  EXPECT_EQ(ids_hash(tokenizer_.encode(read("unicode.txt"))), fixture_["unicode"].get<std::string>());
}

TEST_P(CharacterTokenizers, WritesWhatItReads) {
  const Tokenizer again = Tokenizer::from_json(write_tokenizer_json(tokenizer_.spec()));
  EXPECT_EQ(again.spec(), tokenizer_.spec());
  EXPECT_EQ(again.content_hash(), tokenizer_.content_hash());
}

TEST_P(CharacterTokenizers, AnyBytesComeBack) {
  if (std::string(GetParam()) == "strips") GTEST_SKIP() << "its added tokens take white space";
  for (uint64_t n = 0; n < 400; ++n) {
    const Random random(n, RandomPurpose::test, 7);
    std::string bytes;
    for (uint64_t i = 0; i < random.bits(0) % 200; ++i) {
      const uint32_t kind = random.bits(2 * i + 1) % 4, value = random.bits(2 * i + 2);
      if (kind == 0)
        bytes += static_cast<char>(value);
      else if (kind == 1)
        utf8::append(bytes, value % 0xD800);
      else
        bytes += kind == 2 ? ' ' : static_cast<char>('a' + value % 26);
    }
    if (!comes_back(tokenizer_.spec(), bytes)) continue;
    EXPECT_EQ(tokenizer_.decode_bytes(tokenizer_.encode(bytes)), bytes) << n;
  }
}

/// The cut between characters that no token joins, and the look-up of short pieces, change nothing.
TEST_P(CharacterTokenizers, LongTextsAreThoseOfTheirTokens) {
  const std::string text =
      read("text.txt") + std::string(3000, ' ') + std::string(3000, 'a') + read("text.txt");
  EXPECT_EQ(tokenizer_.decode_bytes(tokenizer_.encode(text)), text);
  EXPECT_EQ(tokenizer_.encode(text), tokenizer_.encode(text));
}

INSTANTIATE_TEST_SUITE_P(All, CharacterTokenizers,
                         testing::Values("gemma", "llama2", "metaspace_first", "metaspace_always",
                                         "metaspace_never", "unigram", "strips"),
                         [](const auto& info) { return std::string(info.param); });

/// "8", "88" and "88", "8" have equal scores but for the last place of what stands before them. The ids are
/// those of tokenizers 0.23.3.
TEST(UnigramTies, FallAsInTheTokenizersLibrary) {
  const Tokenizer t = Tokenizer::from_json(json::parse(read("unigram.json"))["tokenizer"].dump());
  EXPECT_EQ(t.encode("5488816.3530"),
            (std::vector<int32_t>{260, 330, 294, 533, 468, 476, 373, 261, 360, 330, 360, 268}));
}

class SentencePieceModels : public testing::TestWithParam<const char*> {};

TEST_P(SentencePieceModels, EncodeAsTheirLibraryDoes) {
  const std::string name = GetParam();
  const Tokenizer t = Tokenizer::from_sentencepiece(read("sentencepiece/" + name + ".model"));
  for (const json& c : json::parse(read("sentencepiece/" + name + ".json"))["cases"]) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(t.encode(text), c["ids"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(t.decode_bytes(t.encode(text)), text);
  }
  const Tokenizer json_form = Tokenizer::from_json(write_tokenizer_json(t.spec()));
  EXPECT_EQ(json_form.content_hash(), t.content_hash());
  EXPECT_EQ(t.begin_token(), t.special_id("<s>"));
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceModels, testing::Values("bpe", "bpe_plain", "unigram"),
                         [](const auto& info) { return std::string(info.param); });

std::string refusal(const std::string& bytes) {
  try {
    Tokenizer::from_sentencepiece(bytes, "m.model");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(SentencePieceFiles, OtherKindsAreRefusedByName) {
  // A later field of a protocol buffer wins over an earlier one.
  const std::string good = read("sentencepiece/bpe.model");
  EXPECT_EQ(refusal(good), "");
  const auto with = [&](std::string_view more) { return refusal(good + std::string(more)); };
  EXPECT_NE(with("\x12\x02\x18\x03").find("the model type is word"), std::string::npos);
  EXPECT_NE(with("\x12\x02\x18\x04").find("the model type is char"), std::string::npos);
  EXPECT_NE(with(std::string_view("\x12\x03\x98\x02\x00", 5)).find("byte_fallback is false"),
            std::string::npos);
  EXPECT_NE(with("\x1a\x08\x0a\x03xyz\x12\x01m").find("normalised by the rule 'xyz'"), std::string::npos);
  EXPECT_NE(with("\x1a\x02\x20\x01").find("remove_extra_whitespaces"), std::string::npos);
}

/// Every prefix of a file and every flipped byte: an Error or a tokenizer, never a crash.
TEST(SentencePieceFiles, DamageIsAnError) {
  const std::string good = read("sentencepiece/unigram.model");
  for (size_t n = 0; n < good.size(); n += 37)
    EXPECT_NE(refusal(good.substr(0, n)), "") << n;  // what is asked for stands last
  for (size_t at = 0; at < good.size(); at += 23) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0xFF);
    refusal(bad);
  }
  EXPECT_NE(refusal("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f").find("are left"), std::string::npos);
  EXPECT_NE(refusal("").find("no pieces"), std::string::npos);
}

TEST(SentencePieceFiles, AFolderMayHoldTokenizerModelAlone) {
  const TempDir dir;
  write_text(dir / "tokenizer.model", read("sentencepiece/bpe.model"));
  write_text(dir / "tokenizer_config.json",
             R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false})");
  const Tokenizer t = Tokenizer::load(dir.path());
  EXPECT_EQ(t.roles().eos, t.special_id("</s>"));
  EXPECT_FALSE(t.begin_token().has_value());
}

}  // namespace ingot::test::character_tokenizers_oracle_test
