// Every number of a recipe has a range: what lies outside is refused at its key. So are sizes whose product
// could not be counted, before anything is allocated.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "base/clock.h"
#include "models/decoder.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/recipe.h"

namespace ingot::test::recipe_ranges_test {
namespace {

struct NumberKey {
  std::string path;
  Range range;
  bool integer;
};

/// All keys that hold numbers; of lists of sections the first element's.
struct Numbers : FieldVisitor<Numbers> {
  std::vector<NumberKey> found;
  std::string prefix;

  template <class T>
  void field(const ConfigKey& key, T& field) {
    add(prefix + key.name, key.range, field);
  }
  template <class T>
  void add(const std::string& path, const Range& range, T& value) {
    using namespace config_detail;
    if constexpr (is_optional<T>) {
      typename T::value_type inner{};
      add(path, range, inner);
    } else if constexpr (is_vector<T>) {
      typename T::value_type element{};
      add(path + ".0", range, element);
    } else if constexpr (Struct<T>) {
      const std::string outer = std::exchange(prefix, path + ".");
      value.visit(*this);
      prefix = outer;
    } else if constexpr (is_number<T>) {
      found.push_back({path, range, std::is_same_v<T, int64_t>});
    }
  }
};

std::vector<NumberKey> numbers_of_recipes() {
  Numbers numbers;
  Recipe recipe;
  recipe.visit(numbers);
  return numbers.found;
}

std::string message_of(const std::vector<std::string>& overrides, const std::string& toml = "") {
  try {
    const ConfigNode tree =
        parse_toml(toml + "\n[[data.sources]]\nname = \"a\"\npath = \"b\"\n", "recipe.toml");
    recipe_from_tree(tree, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void refuses(const std::vector<std::string>& overrides, const std::string& part) {
  const std::string message = message_of(overrides);
  EXPECT_NE(message.find(part), std::string::npos) << overrides[0] << ": " << message;
}

TEST(RecipeRanges, EveryNumberHasBothBounds) {
  const std::vector<NumberKey> keys = numbers_of_recipes();
  EXPECT_GT(keys.size(), 100u);
  for (const NumberKey& k : keys) {
    EXPECT_TRUE(std::isfinite(k.range.least) && std::isfinite(k.range.most) && k.range.least < k.range.most)
        << k.path << ": " << k.range.str();
  }
}

TEST(RecipeRanges, WhatIsOutsideIsRefusedAtItsKey) {
  for (const NumberKey& k : numbers_of_recipes()) {
    std::vector<std::string> values = {"nan", "inf", "-inf"};
    const bool any = k.integer && k.range.least == -0x1p63;
    if (k.integer && !any) {
      values = {"9223372036854775807", "-9223372036854775808"};
      values.push_back(fmt::format("{:.0f}", k.range.most + 2));  // a double even for 1e16
      values.push_back(fmt::format("{:.0f}", k.range.least - 1));
    }
    if (!k.integer) values.push_back(fmt::format("{}", k.range.least - 0.5));
    if (k.range.above) values.push_back(fmt::format("{}", k.range.least));
    if (k.range.below) values.push_back(fmt::format("{:.1f}", k.range.most));
    for (const std::string& value : values) {
      if (k.range.or_zero && value == "0") continue;
      const std::string argument = "--" + k.path + "=" + value, message = message_of({argument});
      EXPECT_NE(message.find(argument + ": " + k.path + ": "), std::string::npos)
          << argument << ": " << message;
      EXPECT_NE(message.find("found"), std::string::npos) << argument << ": " << message;
    }
  }
}

TEST(RecipeRanges, MessagesNameLineKeyBoundAndValue) {
  EXPECT_EQ(message_of({}, "[optimizer]\nclip = -1"),
            "recipe.toml:2: optimizer.clip: must not be negative, found -1");
  EXPECT_EQ(message_of({}, "[model]\nlayers = 1000000000"),
            "recipe.toml:2: model.layers: must be at most 10000, found 1000000000");
  EXPECT_EQ(message_of({}, "[[phases]]\nlr = inf"),
            "recipe.toml:2: phases.0.lr: must be at most 1e+38, found inf");
  EXPECT_NE(message_of({}, "[[phases]]\nlr = 1e999").find("recipe.toml:2"), std::string::npos);
  EXPECT_NE(message_of({}, "[model]\nwidth = 99999999999999999999").find("recipe.toml:2"), std::string::npos);
}

TEST(RecipeRanges, ProductsThatCannotBeCountedAreRefused) {
  refuses({"--phases.0.steps=1000000000000", "--phases.0.batch=1073741824"},
          "phases.0.steps: 1000000000000 steps of 1073741824 sequences of 256 tokens are more than 1e+16");
  refuses({"--phases.0.batches.0.batch=1073741824", "--phases.0.batches.0.tokens=1",
           "--phases.0.steps=1000000000000"},
          "more than 1e+16 tokens");
  refuses({"--parallel.data=1048576", "--parallel.tensor=1048576", "--parallel.pipeline=1048576",
           "--parallel.context=1048576"},
          "1048576 x 1048576 x 1048576 x 1048576 are more than 1048576 ranks");
  refuses({"--model.heads=65536", "--model.kv_heads=1", "--model.head_width=1048576"},
          "model.heads: 65536 heads of 1048576 channels");
  ModelConfig m;
  m.vocab = 300, m.width = 1 << 20, m.heads = 4, m.kv_heads = 4, m.layers = 10000;
  m.moe.experts = 1 << 12, m.moe.hidden = 1 << 20, m.moe.top_k = 1;
  try {
    const Decoder decoder(m);
    FAIL() << decoder.table().total();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the model has more than 7.20576e+16 parameters"),
              std::string::npos)
        << error.what();
  }
  m.moe.experts = 1 << 16, m.moe.hidden = 1 << 24;
  EXPECT_THROW(Decoder{m}, Error);
  EXPECT_EQ((Shape{int64_t{1} << 40, int64_t{1} << 40, 0}.numel()), 0);
  EXPECT_EQ((Shape{int64_t{1} << 28, int64_t{1} << 28}.numel()), int64_t{1} << 56);
  EXPECT_THROW((Shape{int64_t{1} << 29, int64_t{1} << 28}.numel()), Error);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}.numel()), Error);
}

/// These overflowed, never ended, or ended as an internal error.
TEST(RecipeRanges, HugeSizesEndAtOnceInThePlan) {
  const TempDir dir;
  write_text(dir / "recipe.toml",
             "[tokenizer]\nvocab = 260\n[[data.sources]]\nname = \"a\"\npath = \"a.txt\"\n");
  write_text(dir / "a.txt", "text");
  for (const char* value :
       {"model.width=4611686018427387904", "model.heads=2305843009213693952",
        "model.vocab=9223372036854775807", "model.moe.router_width=9223372036854775807",
        "phases.0.batch=4294967296", "model.context=9223372036854775807",
        "model.moe.experts=9223372036854775807", "model.head_width=4611686018427387904",
        "model.lora.rank=9223372036854775807", "model.mtp.depths=4294967296", "model.layers=1000000000",
        "model.value_embeddings=4611686018427387904", "model.width=1048576", "phases.0.batch=1073741824",
        "phases.0.min_lr_ratio=inf"}) {
    const double begin = monotonic_seconds();
    const ProcessResult r =
        run_process({INGOT_BINARY, "run", dir / "recipe.toml", "--plan",
                     "--data.sources.0.path=" + (dir / "a.txt"), std::string("--") + value});
    EXPECT_LE(r.exit_code, 1) << value << r.output;
    EXPECT_EQ(r.signal, 0) << value;
    EXPECT_EQ(r.output.find("internal error"), std::string::npos) << value << r.output;
    EXPECT_FALSE(std::regex_search(r.output, std::regex(" -[0-9.]+ [KMGTPE]iB"))) << value << r.output;
    EXPECT_LT(monotonic_seconds() - begin, 5) << value;
  }
}

}  // namespace
}  // namespace ingot::test::recipe_ranges_test
