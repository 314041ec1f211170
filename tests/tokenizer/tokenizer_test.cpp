// Properties of the tokenizer that need no other library: round trips, streaming, roles, errors, limits.
#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file_system.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "support/support.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/nfc.h"
#include "tokenizer/piece_counter.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot::tokenizer_test {

using nlohmann::json;

const std::vector<std::string> kSpecial = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

std::string training_text() {
  return real_file_system().read(test::fixture("tokenizer/text.txt"));
}

Tokenizer train(const std::string& pattern, int32_t vocab_size = 500) {
  BpeTrainer trainer({.vocab_size = vocab_size, .pattern = pattern, .special_tokens = kSpecial});
  const std::string text = training_text();
  const std::string_view documents[] = {text};
  trainer.add(documents);
  return trainer.train();
}

/// Deterministic numbers for the tests that try many inputs.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed, RandomPurpose::test) {}
  size_t below(size_t n) { return static_cast<size_t>(random_.below(next_++, n)); }

 private:
  Random random_;
  uint64_t next_ = 0;
};

std::string random_bytes(Dice& dice, size_t size) {
  static const std::string_view kPieces[] = {" ",     "\n",       "\r\n",         "the",      "'s",
                                             "ß",     "日本",     "🙂",         "\xF0\x9F", "\xE6",
                                             "\xFF",  "\xC0\x80", "\xED\xA0\x80", "12345",    "<|endoftext|>",
                                             "<|im_", "\t"};
  std::string out;
  while (out.size() < size) {
    if (dice.below(3) == 0) {
      out.push_back(static_cast<char>(dice.below(256)));
    } else {
      out += kPieces[dice.below(std::size(kPieces))];
    }
  }
  return out;
}

using test::message_of;

TEST(Tokenizer, AnyBytesRoundTrip) {
  Dice dice(1);
  for (const char* pattern : {"gpt2", "llama3", "deepseek-v3", "o200k"}) {
    const Tokenizer tokenizer = train(pattern);
    for (int i = 0; i < 300; ++i) {
      const std::string text = random_bytes(dice, dice.below(200));
      const auto ids = tokenizer.encode(text);
      ASSERT_EQ(tokenizer.decode_bytes(ids), text) << pattern;
      ASSERT_EQ(tokenizer.decode_bytes(tokenizer.encode(text, {.parse_special = true})), text) << pattern;
      for (const int32_t id : ids) ASSERT_FALSE(tokenizer.is_special(id));
    }
  }
}

TEST(Tokenizer, StreamingGivesTheSameTextInWholeCharacters) {
  const Tokenizer tokenizer = train("gpt2");
  Dice dice(2);
  for (int i = 0; i < 300; ++i) {
    const auto ids = tokenizer.encode(random_bytes(dice, 60));
    StreamDecoder stream(tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_EQ(utf8::valid_prefix(piece), piece.size());
      joined += piece;
    }
    joined += stream.finish();
    ASSERT_EQ(joined, tokenizer.decode(ids));
  }
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(tokenizer.encode("\xF0\x9F")[0]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, LongPiecesAreNotQuadratic) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* pattern : {"gpt2", "llama3", "o200k", "nanochat"}) {
    const Tokenizer tokenizer = train(pattern, 300);
    for (const std::string unit : {"a", "A", " ", "=", "\n", "一", " \n", "\xFF"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      EXPECT_EQ(tokenizer.decode_bytes(tokenizer.encode(text)), text);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Tokenizer, TenMegabytesOfOneLetterTakeSeconds) {
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer = train("gpt2", 300);
  const std::string text(10'000'000, 'e');
  EXPECT_EQ(tokenizer.decode_bytes(tokenizer.encode(text)), text);
  BpeTrainer trainer({.vocab_size = 280});
  const std::string_view documents[] = {text};
  trainer.add(documents);
  EXPECT_EQ(trainer.train().vocab_size(), 280);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Recent pieces are looked up in a table, in which other pieces replace them.
TEST(Tokenizer, WhatWasSeenBeforeDoesNotMatter) {
  const Tokenizer warm = train("[^\\n]+|\\n+");
  Dice dice(6);
  const std::string text = training_text();
  for (int i = 0; i < 3000; ++i) {
    std::string piece = text.substr(dice.below(text.size() - 40), dice.below(20));
    if (dice.below(4) == 0) piece = std::string(dice.below(20), "ae\0"[dice.below(3)]);
    if (dice.below(4) == 0) piece += random_bytes(dice, 3);
    const auto ids = warm.encode(piece);
    EXPECT_EQ(warm.encode(piece), ids);
    if (i % 10 == 0) {
      EXPECT_EQ(Tokenizer::from_spec(warm.spec()).encode(piece), ids) << piece;
    }
  }
}

TEST(Tokenizer, HeapAndScanAgree) {
  const Tokenizer tokenizer = train("[^\\n]+|\\n+");  // whole lines are pieces: short and long ones
  Dice dice(3);
  const std::string text = training_text();
  for (int i = 0; i < 200; ++i) {
    const size_t at = dice.below(text.size() - 100);
    std::string line = text.substr(at, 30 + dice.below(30));
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (utf8::valid_prefix(line) != line.size()) continue;
    // Reference: merge the pair of lowest rank, leftmost first, from the bytes up.
    std::vector<int32_t> ids;
    for (const char c : line) ids.push_back(tokenizer.encode(std::string(1, c))[0]);
    const auto& spec = tokenizer.spec();
    for (;;) {
      size_t best_rank = spec.merges.size(), best_at = 0;
      for (size_t k = 0; k + 1 < ids.size(); ++k)
        for (size_t rank = 0; rank < best_rank; ++rank)
          if (spec.merges[rank][0] == ids[k] && spec.merges[rank][1] == ids[k + 1])
            best_rank = rank, best_at = k;
      if (best_rank == spec.merges.size()) break;
      const std::string joined = spec.vocabulary[static_cast<size_t>(ids[best_at])] +
                                 spec.vocabulary[static_cast<size_t>(ids[best_at + 1])];
      const auto it = std::find(spec.vocabulary.begin(), spec.vocabulary.end(), joined);
      ids[best_at] = static_cast<int32_t>(it - spec.vocabulary.begin());
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
    }
    ASSERT_EQ(tokenizer.encode(line), ids) << line;
  }
}

TEST(Tokenizer, BatchesAndThreadsAgree) {
  const Tokenizer tokenizer = train("llama3");
  Dice dice(4);
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i) texts.push_back(random_bytes(dice, dice.below(300)));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  std::vector<std::vector<int32_t>> expected;
  for (const auto& text : texts) expected.push_back(tokenizer.encode(text, {.add_eos = true}));
  for (const int threads : {1, 4}) {
    set_num_threads(threads);
    EXPECT_EQ(tokenizer.encode_batch(views, {.add_eos = true}), expected);
  }
  std::vector<std::jthread> callers;  // a Tokenizer may be used by any threads at once
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(tokenizer.encode(texts[i], {.add_eos = true}), expected[i]);
    });
}

TEST(Tokenizer, SavesAndLoadsTheSame) {
  const test::TempDir folder;
  const Tokenizer tokenizer = train("deepseek-v3");
  tokenizer.save(folder / "tok");
  tokenizer.save(folder / "one.json");
  for (const std::string& path : {folder / "tok", folder / "tok/tokenizer.json", folder / "one.json"}) {
    const Tokenizer loaded = Tokenizer::load(path);
    EXPECT_EQ(loaded.content_hash(), tokenizer.content_hash());
    EXPECT_TRUE(loaded.spec() == tokenizer.spec());
    EXPECT_EQ(loaded.roles().eos, tokenizer.special_id("<|endoftext|>"));
  }
  EXPECT_NE(train("deepseek-v3", 501).content_hash(), tokenizer.content_hash());
}

TEST(Tokenizer, RolesComeFromTheConfig) {
  const test::TempDir folder;
  train("gpt2").save(folder.path());
  auto& fs = real_file_system();
  const std::string config = folder / "tokenizer_config.json";
  write_file_atomically(fs, config,
                        R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": null, "unk_token": "x"})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.roles().eos, tokenizer.special_id("<|im_end|>"));
  EXPECT_FALSE(tokenizer.roles().bos);
  EXPECT_NE(message_of([&] { tokenizer.encode("a", {.add_bos = true}); }).find("begin-of-text"),
            std::string::npos);
  write_file_atomically(fs, config, R"({"eos_token": "<|nobody|>"})");
  EXPECT_NE(message_of([&] { Tokenizer::load(folder.path()); }).find("<|nobody|>"), std::string::npos);
  write_file_atomically(fs, config, "{");
  EXPECT_NE(message_of([&] { Tokenizer::load(folder.path()); }).find("tokenizer_config.json"),
            std::string::npos);
}

TEST(Tokenizer, CharactersLikeNanoGpt) {
  const std::vector<std::string> special = {"<|endoftext|>"};
  const Tokenizer tokenizer = Tokenizer::from_characters("hello\nwörld", special);
  EXPECT_EQ(tokenizer.vocab_size(), 10);  // \n d e h l o r w ö and the special token
  EXPECT_EQ(tokenizer.encode("\nhö"), (std::vector<int32_t>{0, 3, 8}));
  EXPECT_EQ(tokenizer.encode("he<|endoftext|>", {.parse_special = true}), (std::vector<int32_t>{3, 2, 9}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("wörld")), "wörld");
  EXPECT_NE(message_of([&] { tokenizer.encode("hexl"); }).find("U+0078"), std::string::npos);
  EXPECT_NE(message_of([&] { tokenizer.encode("he\xFF"); }).find("UTF-8"), std::string::npos);
  const test::TempDir folder;
  tokenizer.save(folder.path());
  EXPECT_TRUE(Tokenizer::load(folder.path()).spec() == tokenizer.spec());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(8), "ö");
}

TEST(Tokenizer, ForeignIdsAreRefused) {
  const Tokenizer tokenizer = train("gpt2");
  for (const int32_t id : {-1, tokenizer.vocab_size(), 1 << 30})
    EXPECT_NE(message_of([&] { tokenizer.decode(std::vector<int32_t>{id}); }).find(std::to_string(id)),
              std::string::npos);
}

// Every setting that Ingot does not do is refused, and the message says which.
TEST(TokenizerJson, RefusesByName) {
  const json good = json::parse(write_tokenizer_json(train("llama3").spec()));
  ASSERT_NO_THROW(Tokenizer::from_json(good.dump()));
  const std::vector<std::pair<std::string, json>> edits = {
      {"/version", "2.0"},
      {"/truncation", json{{"max_length", 5}}},
      {"/padding", json{{"strategy", "BatchLongest"}}},
      {"/surprise", 1},
      {"/normalizer", json{{"type", "Lowercase"}}},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Shredded"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(unclosed"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"},
      {"/pre_tokenizer/pretokenizers/1", json{{"type", "Whitespace"}}},
      {"/post_processor", json{{"type", "BertProcessing"}}},
      {"/decoder", json{{"type", "Metaspace"}}},
      {"/decoder", nullptr},
      {"/model", 3},
      {"/model/type", "WordPiece"},
      {"/model/dropout", 0.1},
      {"/model/byte_fallback", "yes"},
      {"/model/end_of_word_suffix", "</w>"},
      {"/model/vocab/the", -1},
      {"/model/vocab/the", 1.5},
      {"/model/vocab/the", 1000000000},
      {"/model/vocab/the", 7},
      {"/model/merges/3", "onlyone"},
      {"/model/merges/3", json::array({"a", "nothing like it"})},
      {"/model/merges/3", json::array({"z", "~"})},
      {"/added_tokens/0/lstrip", "yes"},
      {"/added_tokens/0/id", 2},
      {"/added_tokens/0/content", ""},
  };
  for (const auto& [pointer, value] : edits) {
    json broken = good;
    broken[json::json_pointer(pointer)] = value;
    const std::string message = message_of([&] { Tokenizer::from_json(broken.dump(), "broken.json"); });
    EXPECT_NE(message.find("'broken.json': "), std::string::npos) << pointer << ": " << message;
    const size_t begin = pointer.rfind('/') + 1;
    std::string field = pointer.substr(begin);
    if (pointer.find("Regex") != std::string::npos) field = "pattern";
    if (std::isdigit(static_cast<unsigned char>(field[0]))) field = "[" + field + "]";
    EXPECT_NE(message.find(field), std::string::npos) << pointer << ": " << message;
  }
  json mixed = good;  // bytes by a pre-tokenizer, and by tokens of their own
  mixed["model"]["byte_fallback"] = true;
  EXPECT_NE(message_of([&] { Tokenizer::from_json(mixed.dump()); }).find("\"ByteLevel\""), std::string::npos);
  json no_byte = good;
  no_byte["model"]["vocab"].erase("a");
  no_byte["model"]["merges"] = json::array();
  EXPECT_NE(message_of([&] { Tokenizer::from_json(no_byte.dump()); }).find("0x61"), std::string::npos);
}

TEST(TokenizerJson, ReadsOldMerges) {
  json file = json::parse(write_tokenizer_json(train("gpt2").spec()));
  const std::string expected = Tokenizer::from_json(file.dump()).content_hash();
  for (json& m : file["model"]["merges"]) m = m[0].get<std::string>() + " " + m[1].get<std::string>();
  EXPECT_EQ(Tokenizer::from_json(file.dump()).content_hash(), expected);
}

TEST(TokenizerJson, DamageIsAnErrorOrAWorkingTokenizer) {
  const std::string good = write_tokenizer_json(train("llama3", 270).spec());
  Dice dice(5);
  int errors = 0;
  for (int i = 0; i < 400; ++i) {
    std::string bad = good;
    if (i < 60) bad.resize(dice.below(good.size()));
    for (size_t k = dice.below(3) + (i >= 60); k > 0 && !bad.empty(); --k) {
      const size_t at = dice.below(bad.size());
      static constexpr std::string_view kBytes = "0129\"\\{}[],:-+.aeu \x80";
      bad[at] = kBytes[dice.below(kBytes.size())];
    }
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(bad);
      tokenizer.decode_bytes(tokenizer.encode("The printer's 123 lines\n\n ok"));
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()), "");
      ++errors;
    }
  }
  EXPECT_GT(errors, 60);
}

TEST(TokenizerRegex, SaysWhatItCannotRead) {
  EXPECT_EQ(to_pcre2_dialect(R"(\s+[^\s\p{L}]\S)"),
            R"([\t-\r\x{85}\p{Z}]+[^\t-\r\x{85}\p{Z}\p{L}][^\t-\r\x{85}\p{Z}])");
  for (const char* pattern : {"\\h", "[\\S]", "[a[b]]", "[a&&b]", "\\p{N}{1,3}+", "(*ANYCRLF)a", "a{,3}",
                              "(?m:a)", "\\", "(", "\\b", "(?R)", "\\1", "\\C", "\\K", ""})
    EXPECT_THROW(Regex{pattern}, Error) << pattern;
}

TEST(TokenizerRegex, HostilePatternsEnd) {
  const std::string text(20'000, 'a');
  for (const char* pattern :
       {"(a+)+b", "(a|a)*b", "(a|aa)+$b", "a*a*a*a*b", "(?:(?:a{1,50}){1,50}){1,50}b", "(?=(a+a+)+b)"}) {
    RegexScratch scratch;
    scratch.begin_text(text.size());
    const auto start = std::chrono::steady_clock::now();
    try {
      const Regex regex{pattern};
      Regex::Match match;
      for (size_t at = 0; at < text.size(); ++at) regex.match_at(text, at, scratch, match);
    } catch (const Error&) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15)) << pattern;
  }
}

TEST(TokenizerText, Utf8IsStrict) {
  for (const std::string bad : {"\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xE2\x82", "\xFE"})
    EXPECT_EQ(utf8::valid_prefix("ab" + bad), 2u);
  EXPECT_EQ(utf8::repair("a\xF0\x9F\x99z\xE2\x28"), "a\uFFFDz\uFFFD(");
  EXPECT_EQ(utf8::repair("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
}

TEST(TokenizerText, FormC) {
  EXPECT_FALSE(nfc::normalize("plain café"));
  EXPECT_EQ(nfc::normalize("e\u0301"), "é");
  EXPECT_EQ(nfc::normalize("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc::normalize("\u012b\u0323"),
            "\u1ecb\u0304");  // a mark goes below the one of the composed letter
  EXPECT_EQ(nfc::normalize("\u1100\u1161\u11a8"), "각");
  EXPECT_EQ(nfc::normalize("\u0958\u212b"), "\u0915\u093c\u00c5");
  // Marks of Unicode 14, 13 and 11, and a pair of 13: the tokenizers library leaves them as they are.
  for (const std::string kept :
       {"\u0301\u0899a", "\U00016ff0\u0334a", "\U0001145e\u0323", "\U00011935\U00011930"})
    EXPECT_EQ(nfc::normalize(kept).value_or(kept), kept);
  EXPECT_EQ(nfc::normalize("\U0001e944\u0323"), "\u0323\U0001e944") << "a mark of Unicode 9";
}

// The pieces are those of the tokenizers library: ByteLevel's pattern, and Split.
TEST(TokenizerText, CharactersNewerThanThePatternEngine) {
  const auto pieces = [](std::string_view pattern, std::string_view text) {
    TokenizerSpec spec;
    set_pattern(spec, pattern);
    RegexScratch scratch;
    scratch.begin_text(text.size());
    std::vector<std::string> out;
    PreTokenizer(spec).split(text, scratch, [&](std::string_view piece) { out.emplace_back(piece); });
    return out;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(
      pieces("gpt2", " \"\u1c8a\", a\U00016d43\U00016d71\U0001fae9! \U0002ebf0\u1c8b"),
      (Pieces{" \"", "\u1c8a", "\",", " a\U00016d43", "\U00016d71", "\U0001fae9!", " \U0002ebf0", "\u1c8b"}));
  EXPECT_EQ(pieces("\\p{Lu}|\\p{Han}", "a\u1c89\u1c8a\U0002ebf0"),
            (Pieces{"a", "\u1c89", "\u1c8a", "\U0002ebf0"}));
  EXPECT_EQ(pieces("\u1c8a", "\uff5a\u1c8a\uff5a"), (Pieces{"\uff5a", "\u1c8a", "\uff5a"}))
      << "a pattern that spells one";
}

TEST(TokenizerTrain, RefusesWhatCannotWork) {
  EXPECT_NE(message_of([] { BpeTrainer({.vocab_size = 100}); }).find("256"), std::string::npos);
  EXPECT_NE(message_of([] { BpeTrainer({.special_tokens = {"a", "a"}}); }).find("'a'"), std::string::npos);
  EXPECT_NE(message_of([] {
              BpeTrainer({.special_tokens = {"<x>", "<x>"}});
            }).find("twice"),
            std::string::npos);
  EXPECT_NE(message_of([] { BpeTrainer({.pattern = "("}); }).find("compile"), std::string::npos);
  EXPECT_NE(message_of([] { BpeTrainer({}).train(); }).find("no text"), std::string::npos);
}

TEST(TokenizerTrain, OrderOfDocumentsDoesNotMatter) {
  const std::string text = training_text();
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  const auto learn = [&] {
    BpeTrainer trainer({.vocab_size = 600});
    for (const auto& line : lines) trainer.add({&line, 1});
    return trainer.train().content_hash();
  };
  const std::string expected = learn();
  std::reverse(lines.begin(), lines.end());
  EXPECT_EQ(learn(), expected);
}

TEST(TokenizerTrain, PiecesAreCountedExactly) {
  Dice dice(7);
  PieceCounter counter;
  std::map<std::string, int64_t> expected;
  for (int i = 0; i < 20'000; ++i) {
    std::string piece(dice.below(20), 'a');
    for (char& c : piece) c = static_cast<char>(dice.below(3));
    const auto count = static_cast<int64_t>(1 + dice.below(3));
    counter.add(piece, count);
    expected[piece] += count;
  }
  std::map<std::string, int64_t> counted;
  counter.for_each(
      [&](std::string_view piece, int64_t count) { EXPECT_TRUE(counted.emplace(piece, count).second); });
  EXPECT_EQ(counted, expected);
  EXPECT_EQ(counter.size(), expected.size());
}

TEST(TokenizerTrain, ReportsProgress) {
  std::vector<int32_t> seen;
  const std::string text = training_text();
  const std::string_view documents[] = {text};
  BpeTrainer trainer(
      {.vocab_size = 500, .progress = [&](int32_t tokens, int32_t) { seen.push_back(tokens); }});
  trainer.add(documents);
  trainer.train();
  ASSERT_GE(seen.size(), 3u);
  EXPECT_EQ(seen.back(), 500);
}

TEST(Tokenizer, ATokenOfAByteIsTwoHexadecimalDigits) {
  EXPECT_EQ(fallback_byte("<0x00>"), 0);
  EXPECT_EQ(fallback_byte("<0xFF>"), 255);
  // The second wrote before llama.cpp's table of bytes (its pull request 25969), the third ended the program.
  for (const char* other : {"<0xff>", "<0x-1>", "<0xZZ>", "<0x+1>", "<0x 1>", "<0x100>", "<0x1>", "0x00", ""})
    EXPECT_EQ(fallback_byte(other), -1) << other;
}

TEST(Tokenizer, SpecialTokensCountInTheirRangesOnly) {
  const Tokenizer tokenizer = train("gpt2");
  const int32_t end = *tokenizer.special_id("<|im_end|>");
  const std::string text = "a<|im_end|>b<|im_end|>c<|im_end|>";
  const auto count = [&](std::vector<SpecialRange> ranges) {
    const auto ids = tokenizer.encode(text, {.parse_special = true, .special_ranges = &ranges});
    EXPECT_EQ(tokenizer.decode_bytes(ids), text);
    return std::count(ids.begin(), ids.end(), end);
  };
  EXPECT_EQ(count({}), 0);
  EXPECT_EQ(count({{0, text.size()}}), 3);
  EXPECT_EQ(count({{13, text.size()}}), 1) << "the second begins one byte before the range";
  EXPECT_EQ(count({{1, 11}, {12, 22}}), 2);
  std::vector<SpecialRange> all = {{0, text.size()}};
  EXPECT_EQ(tokenizer.encode(text, {.parse_special = false, .special_ranges = &all}), tokenizer.encode(text));
}

}  // namespace ingot::tokenizer_test
