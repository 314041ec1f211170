// SequenceStore: what is appended is what is read, forks are independent, rollback and limits.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "ops/sequence/sequence_store.h"

namespace ingot::test::sequence_store_quick_test {

constexpr int64_t kLayers = 3, kHeads = 2, kWidth = 4, kConv = 12, kDelayed = 4;
constexpr int64_t kRow = kConv + 2 * kDelayed;  // packed [q | k | v]: H = 1, G = 2

SequenceLayout layout(DType type, bool conv, int64_t rollback = 0) {
  return {kLayers, kHeads, kWidth, type, conv ? kConv : 0, conv ? kDelayed : 0, rollback};
}

float value_at(int64_t layer, int64_t token, int64_t column, int64_t variant) {
  return static_cast<float>((variant * 31 + layer) * 1000 + token % 97 * 20 + column % 20);
}

/// Appends tokens `at` .. `at + rows` to every layer.
void append(SequenceState& s, int64_t rows, int64_t variant = 0) {
  const int64_t at = s.tokens();
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float> packed(static_cast<size_t>(rows * kRow));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < kRow; ++c)
        packed[static_cast<size_t>(r * kRow + c)] = value_at(layer, at + r, c, variant);
    const Tensor t = Tensor::of(packed.data(), {rows, kRow});
    if (s.layout().has_conv()) s.append_conv(layer, at, t);
    s.append_kv(layer, at, t);
  }
}

void expect_tokens(const SequenceState& s, int64_t begin, int64_t end, int64_t variant) {
  for (int64_t layer = 0; layer < kLayers; ++layer)
    for (int64_t t = begin; t < end; ++t)
      for (int64_t i = 0; i < kHeads * kWidth; ++i) {
        const int64_t at = (i / kWidth * 64 + t % 64) * kWidth + i % kWidth;
        const int64_t turned = i / kWidth * 64 * kWidth + i % kWidth * 64 + t % 64;
        ASSERT_EQ(static_cast<const float*>(s.keys(layer, t / 64))[turned],
                  value_at(layer, t, kRow - 2 * kHeads * kWidth + i, variant));
        ASSERT_EQ(static_cast<const float*>(s.values(layer, t / 64))[at],
                  value_at(layer, t, kRow - kHeads * kWidth + i, variant));
      }
}

void expect_conv(const SequenceState& s, int64_t variant) {
  for (int64_t layer = 0; layer < kLayers; ++layer)
    for (const int64_t t : {s.tokens() - 1, s.tokens() - 2}) {
      const auto* row = static_cast<const float*>(s.conv_row(layer, t));
      for (int64_t c = 0; c < kConv; ++c) ASSERT_EQ(row[c], t < 0 ? 0 : value_at(layer, t, c, variant)) << t;
      for (int64_t c = 0; c < kDelayed; ++c)
        ASSERT_EQ(row[kConv + c], t < 0 ? 0 : value_at(layer, t, kRow - kDelayed + c, variant)) << t;
    }
}

TEST(SequenceStore, KeepsWhatIsAppended) {
  for (const bool conv : {false, true}) {
    SequenceStore store(layout(DType::f32, conv), 100);
    SequenceState s = store.create();
    if (conv) expect_conv(s, 0);
    for (const int64_t rows : {1, 1, 1, 5, 64, 0, 120, 8}) {
      append(s, rows);
      if (conv) expect_conv(s, 0);
    }
    EXPECT_EQ(s.tokens(), 200);
    EXPECT_EQ(store.pages_in_use(), 4);
    EXPECT_EQ(store.bytes(), 4 * store.page_bytes());
    EXPECT_EQ(store.page_bytes(),
              kLayers * (2 * 64 * kHeads * kWidth + (conv ? 2 * (kConv + kDelayed) : 0)) * 4);
    EXPECT_GE(s.bytes(), store.bytes());
    expect_tokens(s, 0, 200, 0);
  }
}

TEST(SequenceStore, ForksShareFullPagesAndGrowApart) {
  SequenceStore store(layout(DType::f32, true), 100);
  SequenceState a = store.create();
  append(a, 70);
  SequenceState b = a.fork(), snapshot = a.fork();
  EXPECT_EQ(store.pages_in_use(), 2);
  append(a, 10, 0);
  EXPECT_EQ(store.pages_in_use(), 3) << "the half-full page is copied, the full one shared";
  append(b, 10, 1);
  EXPECT_EQ(store.pages_in_use(), 4);
  expect_tokens(a, 0, 80, 0);
  expect_tokens(b, 0, 70, 0);
  expect_tokens(b, 70, 80, 1);
  expect_conv(a, 0);
  expect_conv(b, 1);
  expect_conv(snapshot, 0);
  b = snapshot.fork();  // restore
  EXPECT_EQ(b.tokens(), 70);
  expect_tokens(b, 0, 70, 0);
  expect_conv(b, 0);
  a = store.create();
  EXPECT_EQ(store.pages_in_use(), 2);
}

TEST(SequenceStore, RollsBack) {
  SequenceStore plain(layout(DType::f32, false), 100);
  SequenceState s = plain.create();
  append(s, 150);
  s.rollback(66);
  EXPECT_EQ(plain.pages_in_use(), 2);
  append(s, 100, 1);
  expect_tokens(s, 0, 66, 0);
  expect_tokens(s, 66, 166, 1);
  s.rollback(0);
  EXPECT_EQ(plain.pages_in_use(), 0);

  SequenceStore with_conv(layout(DType::f32, true, 5), 100);
  SequenceState c = with_conv.create();
  append(c, 20);
  c.rollback(15);
  expect_conv(c, 0);
  EXPECT_NO_THROW(append(c, 3));
  SequenceState kept = c.fork();
  append(c, 6);
  EXPECT_THROW(c.rollback(18), Error);
  EXPECT_EQ(c.tokens(), 24);
  c = kept.fork();
  EXPECT_EQ(c.tokens(), 18);
  expect_conv(c, 0);
  c.rollback(0);
  expect_conv(c, 0);
  append(c, 1);
  expect_conv(c, 0);
}

TEST(SequenceStore, RollbackDoesNotDisturbAFork) {
  SequenceStore store(layout(DType::f32, false), 100);
  SequenceState a = store.create();
  append(a, 130);
  const SequenceState b = a.fork();
  a.rollback(3);
  append(a, 140, 1);
  expect_tokens(b, 0, 130, 0);
  expect_tokens(a, 0, 3, 0);
  expect_tokens(a, 3, 143, 1);
}

TEST(SequenceStore, FullPagesBeginOtherSequences) {
  for (const bool conv : {false, true})
    for (const int64_t chunk : {1, 7, 63, 64, 65, 150}) {
      SequenceStore store(layout(DType::f32, conv), 20);
      SequenceState a = store.create();
      while (a.tokens() < 150) append(a, std::min(chunk, 150 - a.tokens()));
      const std::vector<SequenceState::Page> pages = {a.full_page(0), a.full_page(1)};
      EXPECT_THROW(a.full_page(2), InternalError);
      for (const size_t count : {1, 2}) {
        SequenceState b = store.create();
        b.adopt(std::span(pages).first(count));
        const auto tokens = static_cast<int64_t>(count) * 64;
        EXPECT_EQ(b.tokens(), tokens);
        if (conv) expect_conv(b, 0);
        EXPECT_EQ(b.pages_to_reserve(70), 2);
        append(b, 70);
        expect_tokens(b, 0, tokens + 70, 0);
        if (conv) expect_conv(b, 0);
      }
      EXPECT_EQ(store.pages_in_use(), 3);
    }
}

TEST(SequenceStore, AFullPoolIsAnErrorThatChangesNothing) {
  SequenceStore store(layout(DType::f32, true), 3);
  SequenceState a = store.create(), b = store.create();
  append(a, 64);
  append(b, 60);
  EXPECT_THROW(b.reserve(64 * 2), Error);
  EXPECT_EQ(store.pages_in_use(), 2);
  EXPECT_EQ(b.tokens(), 60);
  try {
    append(b, 200);
    FAIL() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("limit is 3"), std::string::npos) << e.what();
    EXPECT_FALSE(e.hint().empty());
  }
  expect_tokens(b, 0, 60, 0);
  expect_conv(b, 0);
  append(b, 4);
  a = store.create();
  EXPECT_NO_THROW(b.reserve(64 * 2));
  SequenceStore nothing(layout(DType::f32, false), 0);
  SequenceState s = nothing.create();
  EXPECT_NO_THROW(s.reserve(0));
  EXPECT_THROW(s.reserve(1), Error);
}

TEST(SequenceStore, PagesOutliveTheStore) {
  std::optional<SequenceState> s;
  {
    SequenceStore store(layout(DType::f32, true), 3);
    s = store.create();
    append(*s, 65);
  }
  expect_tokens(*s, 0, 65, 0);
}

TEST(SequenceStore, MisuseIsCaught) {
  SequenceStore store(layout(DType::bf16, false), 3);
  SequenceState s = store.create();
  std::vector<float> row(kRow);
  const Tensor t = Tensor::of(row.data(), {1, kRow});
  EXPECT_THROW(s.append_kv(0, 0, t), InternalError) << "wrong type";
  EXPECT_THROW(s.append_conv(0, 0, t), InternalError) << "no convolution state";
  EXPECT_THROW(s.rollback(1), InternalError);
  EXPECT_THROW(SequenceStore(layout(DType::i32, false), 3), InternalError);
}

}  // namespace ingot::test::sequence_store_quick_test
