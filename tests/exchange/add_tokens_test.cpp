// New special tokens for a model: rows, ids, files and the export; other values keep their bits.
#include "exchange/add_tokens.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/model_state.h"
#include "exchange/export.h"
#include "exchange/import.h"
#include "support/support.h"

namespace ingot::test::add_tokens_test {

std::vector<float> rows_of(const StoredModel& m, const std::string& name) {
  const Shape shape = m.reader.tensors().at(name).meta.shape;
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  m.reader.read(name, Region::whole(shape), DType::f32, values.data());
  return values;
}

TEST(AddTokens, RowsAreAddedExportedAndUsed) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  import_huggingface(fs, fixture("exchange/llama_text"), dir / "in");
  const StoredModel before = open_stored_model(fs, dir / "in");
  const AddedTokens added = add_special_tokens(fs, dir / "in", {"<think>", "</think>"}, dir / "out");
  EXPECT_EQ(added.ids, (std::vector<int32_t>{301, 302}));
  EXPECT_EQ(added.vocab_before, 301);
  EXPECT_EQ(added.vocab_after, 303);
  const StoredModel after = open_stored_model(fs, dir / "out");
  EXPECT_EQ(after.config.vocab, 303);
  const std::vector<float> was = rows_of(before, "embed.weight"), is = rows_of(after, "embed.weight");
  const size_t width = 32;
  ASSERT_EQ(is.size(), was.size() + 2 * width);
  EXPECT_TRUE(std::equal(was.begin(), was.end(), is.begin()));
  for (size_t i = 0; i < width; ++i) {
    double mean = 0;
    for (size_t r = 0; r < 301; ++r) mean += static_cast<double>(was[r * width + i]) / 301;
    for (const size_t row : {301, 302})
      EXPECT_NEAR(is[row * width + i], mean, std::abs(mean) / 250) << i;  // the model is bf16
  }
  const Tokenizer t = load_tokenizer(after);
  EXPECT_EQ(t.encode("a<think>", {.parse_special = true}).back(), 301);
  EXPECT_EQ(t.roles().eos, 300);
  export_huggingface(fs, after, dir / "hf", {});
  EXPECT_NE(read_text(dir / "hf/config.json").find("\"vocab_size\": 303"), std::string::npos);
  EXPECT_EQ(Tokenizer::load(dir / "hf").special_id("</think>"), 302);
  import_huggingface(fs, dir / "hf", dir / "again");
  EXPECT_EQ(rows_of(open_stored_model(fs, dir / "again"), "embed.weight"), is);
}

/// New tokens take the rows of a vocabulary that is padded: no shape changes.
TEST(AddTokens, PaddingIsUsedFirst) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  import_huggingface(fs, fixture("exchange/llama_text"), dir / "in");
  add_special_tokens(fs, dir / "in", {"<a>", "<b>"}, dir / "wider");
  export_huggingface(fs, open_stored_model(fs, dir / "wider"), dir / "hf", {});
  write_text(dir / "hf/tokenizer.json", read_text(fixture("exchange/llama_text/tokenizer.json")));
  import_huggingface(fs, dir / "hf", dir / "padded");  // 303 rows, 301 tokens
  const AddedTokens added = add_special_tokens(fs, dir / "padded", {"<c>"}, dir / "out");
  EXPECT_EQ(added.ids, std::vector<int32_t>{301});
  EXPECT_EQ(added.vocab_before, 303);
  EXPECT_EQ(added.vocab_after, 303);
  const std::vector<float> was = rows_of(open_stored_model(fs, dir / "padded"), "embed.weight"),
                           is = rows_of(open_stored_model(fs, dir / "out"), "embed.weight");
  EXPECT_EQ(is, was);  // the row was the mean before
  EXPECT_EQ(load_tokenizer(open_stored_model(fs, dir / "out")).special_id("<c>"), 301);
}

void expect_refusal(const std::function<void()>& act, const std::string& words) {
  try {
    act();
    ADD_FAILURE() << "nothing was refused: " << words;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST(AddTokens, RefusesWhatCannotBeDone) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  import_huggingface(fs, fixture("exchange/llama_text"), dir / "in");
  import_huggingface(fs, fixture("exchange/llama"), dir / "bare");
  expect_refusal([&] { add_special_tokens(fs, dir / "in", {"<|endoftext|>"}, dir / "out"); }, "already");
  expect_refusal([&] { add_special_tokens(fs, dir / "in", {""}, dir / "out"); }, "0 bytes");
  expect_refusal([&] { add_special_tokens(fs, dir / "in", {}, dir / "out"); }, "no token is named");
  expect_refusal([&] { add_special_tokens(fs, dir / "bare", {"<a>"}, dir / "out"); }, "without a tokenizer");
  EXPECT_FALSE(fs.exists(dir / "out"));
}

}  // namespace ingot::test::add_tokens_test
