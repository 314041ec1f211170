// data/rows, packing: what a batch row says about its documents, targets and masks.
#include "data/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/packing.h"
#include "support/data_support.h"

namespace ingot::data::rows_test {

using Ints = std::vector<int32_t>;
constexpr int32_t E = 256;

class RowsTest : public testing::Test {
 protected:
  // Stream: a b c E d E e f g h i E  (tokens 0 .. 11)
  void SetUp() override { split_ = test::make_split(dir_, "rows", {"abc", "d", "efghi"}, true, 5); }
  Batch window(int64_t first, int64_t length, const RowOptions& options) const {
    Batch batch = make_batch(1, length);
    append_window(*split_, first, options, {}, batch);
    return batch;
  }
  test::TempDir dir_;
  std::shared_ptr<const TokenSplit> split_;
};

TEST_F(RowsTest, DocumentMaskResetsAndMasks) {
  const Batch b = window(1, 8, {});
  EXPECT_EQ(b.tokens, (Ints{'b', 'c', E, 'd', E, 'e', 'f', 'g'}));
  EXPECT_EQ(b.targets, (Ints{'c', E, -1, E, -1, 'f', 'g', 'h'}));
  EXPECT_EQ(b.positions, (Ints{0, 1, 2, 0, 1, 0, 1, 2}));
  EXPECT_EQ(b.spans, (std::vector<Span>{{0, 3}, {3, 5}, {5, 8}}));
  EXPECT_EQ(b.pieces, (std::vector<DocumentPiece>{{0, 3, 0}, {3, 5, 1}, {5, 8, 2}}));
  EXPECT_EQ(b.valid_targets, 6);
  EXPECT_EQ(b.origins[0].first_token, 1);
}

TEST_F(RowsTest, PlainWindowPredictsEveryToken) {
  RowOptions plain;
  plain.document_mask = false;
  Batch b = window(1, 8, plain);
  EXPECT_EQ(b.targets, (Ints{'c', E, 'd', E, 'e', 'f', 'g', 'h'}));
  EXPECT_EQ(b.positions, (Ints{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(b.spans, (std::vector<Span>{{0, 8}}));
  EXPECT_EQ(b.pieces.size(), 3u);
  plain.mask_document_start = true;
  EXPECT_EQ(window(1, 8, plain).valid_targets, 6);
  RowOptions unmasked;
  unmasked.mask_document_start = false;
  b = window(1, 8, unmasked);
  EXPECT_EQ(b.valid_targets, 8);
  EXPECT_EQ(b.spans.size(), 3u);
}

TEST_F(RowsTest, BoundaryAtTheEndOfTheRow) {
  const Batch b = window(0, 4, {});  // a b c E | d: the target of E is another document's start
  EXPECT_EQ(b.targets, (Ints{'b', 'c', E, -1}));
  EXPECT_EQ(b.spans, (std::vector<Span>{{0, 4}}));
}

TEST_F(RowsTest, RowsFollowOneAnotherAndEndsArePadded) {
  Batch b = make_batch(2, 4);
  append_window(*split_, 0, {}, {}, b);
  append_window(*split_, 9, {}, {}, b);  // i E are inputs and target; the rest is padding
  EXPECT_EQ(b.tokens, (Ints{'a', 'b', 'c', E, 'h', 'i', 0, 0}));
  EXPECT_EQ(b.targets, (Ints{'b', 'c', E, -1, 'i', E, -1, -1}));
  EXPECT_EQ(b.spans, (std::vector<Span>{{0, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(b.pieces.back(), (DocumentPiece{6, 8, -1}));
  EXPECT_EQ(b.positions, (Ints{0, 1, 2, 3, 0, 1, 0, 1}));
}

TEST_F(RowsTest, WholeDocumentsSideBySide) {
  Batch b = make_batch(1, 10);
  const std::vector<int64_t> documents = {2, 1};
  append_documents(*split_, documents, {}, {}, b);
  EXPECT_EQ(b.tokens, (Ints{'e', 'f', 'g', 'h', 'i', E, 'd', E, 0, 0}));
  EXPECT_EQ(b.targets, (Ints{'f', 'g', 'h', 'i', E, -1, E, -1, -1, -1}));
  EXPECT_EQ(b.positions, (Ints{0, 1, 2, 3, 4, 5, 0, 1, 0, 1}));
  EXPECT_EQ(b.spans, (std::vector<Span>{{0, 6}, {6, 8}, {8, 10}}));
  EXPECT_EQ(b.valid_targets, 6);
  RowOptions plain;
  plain.document_mask = false;
  Batch p = make_batch(1, 10);
  append_documents(*split_, documents, plain, {}, p);
  EXPECT_EQ(p.targets, (Ints{'f', 'g', 'h', 'i', E, 'd', E, -1, -1, -1}));
  EXPECT_EQ(p.spans, (std::vector<Span>{{0, 8}, {8, 10}}));
}

/// Rows with prompts: ab>cd, >e (no prompt), f>g.
class PromptTest : public testing::Test {
 protected:
  void SetUp() override {
    test::write_text(dir_ / "p.jsonl",
                     "{\"q\":\"ab\",\"a\":\"cd\"}\n{\"q\":\"\",\"a\":\"e\"}\n{\"q\":\"f\",\"a\":\"g\"}\n");
    options_.name = "p";
    options_.inputs = {dir_ / "p.jsonl"};
    options_.source.field = "a";
    options_.source.prompt_field = "q";
    options_.validation_fraction = 0;
    options_.shard_tokens = 6;  // two shards
  }
  std::shared_ptr<const TokenSplit> split() {
    tokenize(real_file_system(), dir_ / "set", options_, test::byte_tokenizer());
    return Dataset::open(real_file_system(), dir_ / "set", {true, {}}).train();
  }
  test::TempDir dir_;
  TokenizeOptions options_;
};

TEST_F(PromptTest, OnlyCompletionsAreTargets) {
  const auto s = split();  // a b c d E | e E | f g E
  EXPECT_EQ(s->text_bytes(), 4);
  Batch b = make_batch(1, 12);
  append_documents(*s, std::vector<int64_t>{0, 2, 1}, {}, {}, b);
  EXPECT_EQ(b.tokens, (Ints{'a', 'b', 'c', 'd', E, 'f', 'g', E, 'e', E, 0, 0}));
  EXPECT_EQ(b.targets, (Ints{-1, 'c', 'd', E, -1, 'g', E, -1, E, -1, -1, -1}));
  EXPECT_EQ(b.spans, (std::vector<Span>{{0, 5}, {5, 8}, {8, 10}, {10, 12}}));
  EXPECT_EQ(b.valid_targets, 6);
  Batch w = make_batch(1, 9);
  append_window(*s, 0, {}, {}, w);
  EXPECT_EQ(w.targets, (Ints{-1, 'c', 'd', E, -1, E, -1, 'g', E}));
  RowOptions plain;
  plain.document_mask = false;  // one text: an answer without a prompt is a target, a prompt never
  Batch p = make_batch(1, 9);
  append_window(*s, 0, plain, {}, p);
  EXPECT_EQ(p.targets, (Ints{-1, 'c', 'd', E, 'e', E, -1, 'g', E}));
  for (const RowOptions& o : {RowOptions{}, plain}) {
    const ValidationPass pass(s, 4, o);
    EXPECT_EQ(pass.batch(0, pass.windows()).valid_targets, pass.targets());
  }
}

TEST_F(PromptTest, DamageAndNonsenseAreRefused) {
  split();
  const auto message = [&](const std::string& row) {
    test::write_text(dir_ / "p.jsonl", row + "\n");
    try {
      tokenize(real_file_system(), dir_ / "bad", options_, test::byte_tokenizer());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message("{\"q\":\"ab\",\"a\":\"\"}").find("p.jsonl:1: nothing follows the prompt"),
            std::string::npos);
  EXPECT_NE(message("{\"a\":\"x\"}").find("no field 'q'"), std::string::npos);
  options_.validation = ValidationSplit::tail;
  options_.validation_fraction = 0.5;
  EXPECT_NE(message("{\"q\":\"ab\",\"a\":\"c\"}").find("between its prompt and its answer"),
            std::string::npos);
  options_.validation_fraction = 0;
  options_.inputs = {dir_ / "plain.txt"};
  test::write_text(dir_ / "plain.txt", "text");
  EXPECT_NE(message("").find("plain text"), std::string::npos);
  const std::string manifest = real_file_system().read(dir_ / "set/manifest.json");
  EXPECT_NE(manifest.find("\"prompts\": true"), std::string::npos);
  std::string all = manifest;
  all.replace(all.find(" \"prompts\": true,"), std::string(" \"prompts\": true,").size(), "");
  test::write_text(dir_ / "set/manifest.json", all);
  EXPECT_THROW(Dataset::open(real_file_system(), dir_ / "set", {}), Error);
}

TEST_F(RowsTest, ValidationPassCoversEveryTargetOnce) {
  for (const bool masked : {false, true})
    for (const int64_t S : {1, 3, 4, 11, 100}) {
      RowOptions options;
      options.document_mask = masked;
      const ValidationPass pass(split_, S, options);
      Ints seen;
      int64_t valid = 0;
      for (int64_t w = 0; w < pass.windows(); w += 2) {
        const Batch b = pass.batch(w, 2);
        valid += b.valid_targets;
        for (const int32_t t : b.targets)
          if (t != kMasked) seen.push_back(t);
      }
      EXPECT_EQ(valid, pass.targets());
      EXPECT_EQ(pass.targets(), masked ? 9 : 11);
      if (!masked) {
        EXPECT_EQ(seen, (Ints{'b', 'c', E, 'd', E, 'e', 'f', 'g', 'h', 'i', E}));
      }
      EXPECT_EQ(pass.text_bytes(), 9);
    }
}

TEST_F(RowsTest, Diversity) {
  Batch b = make_batch(2, 4);
  append_window(*split_, 2, {}, {0, 0, 0, 0, 0}, b);
  append_window(*split_, 9, {}, {1, 1, 0, 0, 0}, b);
  const BatchDiversity d = diversity(b);
  EXPECT_EQ(d.documents, 3);
  EXPECT_DOUBLE_EQ(d.largest_share, 2.0 / 6);
  EXPECT_EQ(d.rows_per_source, (std::vector<int64_t>{1, 1}));
  b.spans = {{0, 1}, {1, 4}, {4, 8}};
  EXPECT_DOUBLE_EQ(diversity(b).span_tokens, (1 * 1 + 3 * 3 + 4 * 4) / 8.0);
}

/// The fewest rows, by trying everything: examples one by one into every open row or a new one.
int64_t optimal_rows(const std::vector<int64_t>& lengths, size_t next, std::vector<int64_t>& used,
                     int64_t capacity, int64_t best) {
  if (static_cast<int64_t>(used.size()) >= best) return best;
  if (next == lengths.size()) return static_cast<int64_t>(used.size());
  for (size_t r = 0; r < used.size(); ++r) {
    if (used[r] + lengths[next] > capacity) continue;
    used[r] += lengths[next];
    best = optimal_rows(lengths, next + 1, used, capacity, best);
    used[r] -= lengths[next];
  }
  used.push_back(lengths[next]);
  best = optimal_rows(lengths, next + 1, used, capacity, best);
  used.pop_back();
  return best;
}

TEST(Packing, SmallCasesAgainstTheOptimum) {
  const Random random(2, RandomPurpose::test);
  int64_t rows = 0;
  int64_t optimum = 0;
  for (uint64_t round = 0; round < 200; ++round) {
    std::vector<int64_t> lengths(8);
    for (size_t i = 0; i < lengths.size(); ++i)
      lengths[i] = 1 + static_cast<int64_t>(random.below(round * 8 + i, 10));
    const PackedRows packed = pack_best_fit(lengths, 10, false);
    std::vector<int64_t> used;
    const int64_t best = optimal_rows(lengths, 0, used, 10, 9);
    EXPECT_LE(packed.rows(), best + 1);
    rows += packed.rows();
    optimum += best;
  }
  EXPECT_LE(static_cast<double>(rows), 1.02 * static_cast<double>(optimum));
}

TEST(Packing, EveryExampleOnceAndNoneCut) {
  const Random random(4, RandomPurpose::test);
  std::vector<int64_t> lengths(3000);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int64_t>(random.below(i, 1200));
  const PackedRows packed = pack_best_fit(lengths, 1000, true);
  std::set<int64_t> seen;
  int64_t used = 0;
  for (int64_t r = 0; r < packed.rows(); ++r) {
    int64_t sum = 0;
    for (const int64_t e : packed.row(r)) {
      EXPECT_TRUE(seen.insert(e).second);
      sum += lengths[static_cast<size_t>(e)];
    }
    EXPECT_LE(sum, 1000);
    EXPECT_GT(sum, 0);
    used += sum;
  }
  const auto kept =
      std::count_if(lengths.begin(), lengths.end(), [](int64_t l) { return l >= 1 && l <= 1000; });
  EXPECT_EQ(static_cast<int64_t>(seen.size()), kept);
  EXPECT_EQ(packed.dropped,
            std::count_if(lengths.begin(), lengths.end(), [](int64_t l) { return l > 1000; }));
  EXPECT_GT(static_cast<double>(used), 0.96 * 1000 * static_cast<double>(packed.rows()));
  EXPECT_THROW(pack_best_fit(lengths, 1000, false), Error);
  EXPECT_EQ(pack_best_fit({}, 10, false).rows(), 0);
}

TEST(Packing, LargeWindowsPackManyExamplesQuickly) {
  const Random random(6, RandomPurpose::test);
  std::vector<int64_t> lengths(300000);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const double u = random.uniform(i);
    lengths[i] = 1 + static_cast<int64_t>(131071 * u * u * u * u);
  }
  const double begin = monotonic_seconds();
  const PackedRows packed = pack_best_fit(lengths, 131072, false);
  const double seconds = monotonic_seconds() - begin;
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const double fill = static_cast<double>(total) / (131072.0 * static_cast<double>(packed.rows()));
  RecordProperty("seconds", std::to_string(seconds));
  RecordProperty("fill", std::to_string(fill));
  EXPECT_GT(fill, 0.99);
  EXPECT_LT(seconds, 2.0) << "300,000 examples took 0.05 s when this was written";
}

}  // namespace ingot::data::rows_test
