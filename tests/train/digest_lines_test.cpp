// Digests of memory, lines of digests.jsonl and what their comparison concludes; and the fuzzer of these
// lines on its corpus, in every build.
#include "train/digest_lines.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/digest.h"
#include "base/philox.h"
#include "support/corpus.h"
#include "support/other_threads.h"
#include "support/support.h"

#define LLVMFuzzerTestOneInput digest_line_input
#include "fuzz/digest_line_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::digest_lines_test {
namespace {

using Ranks = std::vector<int>;

uint64_t digest_of(const std::vector<uint8_t>& bytes, uint64_t key = 1) {
  Digest d;
  d.add(bytes.data(), static_cast<int64_t>(bytes.size()), key);
  return d.value();
}

TEST(Digest, SeesEveryBitAndNeitherThreadsNorTheOrderOfPieces) {
  std::vector<uint8_t> bytes((1 << 20) + 13);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const uint64_t whole = digest_of(bytes);
  EXPECT_NE(whole, digest_of(bytes, 2)) << "the key counts";
  {
    const OtherThreads others;
    EXPECT_EQ(digest_of(bytes), whole);
  }
  const Random random(1, RandomPurpose::test, 70);
  for (uint64_t i = 0; i < 200; ++i) {
    const size_t at = random.below(2 * i, bytes.size());
    const auto bit = static_cast<uint8_t>(1U << random.below(2 * i + 1, 8));
    bytes[at] ^= bit;
    EXPECT_NE(digest_of(bytes), whole) << at;
    bytes[at] ^= bit;
  }
  Digest left, right;
  left.add("abc", 3, 7), left.add("de", 2, 8);
  right.add("de", 2, 8), right.add("abc", 3, 7);
  EXPECT_EQ(left.value(), right.value());
  EXPECT_EQ(digest_of({}), 0U);
}

/// Digests of ranks of which each holds `held` of every kind.
StepDigests holding(const std::vector<uint64_t>& held) {
  StepDigests d{.step = 8};
  for (const uint64_t h : held) d.copies.emplace_back().fill(h);
  return d;
}

std::array<std::vector<int>, kCopyKinds> groups(const Ranks& of_rank) {
  std::array<std::vector<int>, kCopyKinds> all;
  all.fill(of_rank);
  return all;
}

TEST(DigestLines, AreReadAsTheyWereWritten) {
  const DigestStart start{12, 3, "abc", "data 3", "[run]\nseed = 1\n"};
  EXPECT_EQ(std::get<DigestStart>(parse_digest_line(to_json_line(start), "here")), start);
  StepDigests step = holding({1, 2, UINT64_MAX});
  EXPECT_EQ(std::get<StepDigests>(parse_digest_line(to_json_line(step), "here")), step);
  step.gradients = {0, UINT64_MAX, 3};
  EXPECT_EQ(std::get<StepDigests>(parse_digest_line(to_json_line(step), "here")), step);
  step.copies.clear();
  EXPECT_EQ(to_json_line(step),
            R"({"step":8,"gradients":["0000000000000000","ffffffffffffffff","0000000000000003"]})");
  for (const char* bad :
       {"", "{}", "[1]", R"({"step":1})", R"({"step":0,"gradients":["0000000000000000"]})",
        R"({"step":1,"gradients":[]})", R"({"step":1,"gradients":["0"]})", R"({"step":1,"gradients":[1]})",
        R"({"step":1,"gradients":["000000000000000G"]})", R"({"step":18446744073709551615,"gradients":[]})",
        R"({"step":1,"copies":{"weights":["0000000000000000"]}})", R"({"step":1,"start":{"ranks":0}})",
        R"({"step":1,"gradients":[[[[[[["0"]]]]]]]})"})
    EXPECT_THROW(parse_digest_line(bad, "here"), Error) << bad;
}

TEST(DigestLines, OfAFileAStepHasTheStartBeforeIt) {
  const TempDir folder;
  const std::string path = folder / "digests.jsonl";
  EXPECT_TRUE(read_digests(real_file_system(), path).steps.empty());
  DigestStart first{0, 1, "a", "", ""}, second{1, 1, "b", "", ""};
  StepDigests one{.step = 1, .gradients = {5}, .copies = {}}, two{.step = 2, .gradients = {6}, .copies = {}};
  write_text(path, to_json_line(first) + "\n" + to_json_line(one) + "\nnonsense\n" + to_json_line(second) +
                       "\n" + to_json_line(two) + "\n{\"step\":3,\"grad");
  const RecordedDigests read = read_digests(real_file_system(), path);
  ASSERT_EQ(read.steps.size(), 2U);
  EXPECT_EQ(read.starts.at(read.start_of.at(1)), first);
  EXPECT_EQ(read.starts.at(read.start_of.at(2)), second);
  EXPECT_EQ(read.steps.at(2), two);
}

TEST(DigestLines, ADifferenceNamesKindAndRanks) {
  StepDigests then = holding({1, 1, 1}), now = then;
  then.gradients = {1, 2, 3}, now.gradients = {1, 2, 3};
  EXPECT_FALSE(difference(then, now));
  now.copies[2][static_cast<size_t>(CopyKind::state)] = 9;
  EXPECT_EQ(difference(then, now)->what, "state");
  EXPECT_EQ(difference(then, now)->ranks, Ranks{2});
  now.gradients = {9, 2, 9};
  EXPECT_EQ(difference(then, now)->what, "gradients");
  EXPECT_EQ(difference(then, now)->ranks, (Ranks{0, 2}));
  now.gradients.clear();
  EXPECT_EQ(difference(then, now)->what, "state") << "what only one of them has is not compared";
}

TEST(DigestLines, AMajorityNamesItsMinority) {
  EXPECT_FALSE(find_disagreement(holding({4, 4, 4}), groups({0, 0, 0})));
  EXPECT_FALSE(find_disagreement(holding({4, 5, 6}), groups({0, 1, 2}))) << "nobody holds a copy";
  const auto of = [](const std::vector<uint64_t>& held, const Ranks& in) {
    return find_disagreement(holding(held), groups(in)).value();
  };
  EXPECT_EQ(of({4, 9, 4}, {0, 0, 0}).ranks, Ranks{1});
  EXPECT_TRUE(of({4, 9, 4}, {0, 0, 0}).named);
  EXPECT_EQ(of({4, 9, 4}, {0, 0, 0}).copies, 3);
  EXPECT_EQ(of({4, 9, 4, 8, 4}, {0, 0, 0, 0, 0}).ranks, (Ranks{1, 3}));
  EXPECT_EQ(of({4, 9}, {0, 0}).ranks, (Ranks{0, 1}));
  EXPECT_FALSE(of({4, 9}, {0, 0}).named);
  EXPECT_EQ(of({4, 9, 4, 9}, {0, 0, 0, 0}).ranks, (Ranks{0, 1, 2, 3})) << "a tie names all";
  EXPECT_EQ(of({1, 2, 1, 3}, {0, 1, 0, 1}).ranks, (Ranks{1, 3})) << "only the group that differs";
}

TEST(DigestLines, AMajorityExplainsTiesAndAPairALargerTie) {
  // Ranks 0 and 1 hold copies of their state, all four hold the same weights; rank 1 fails in both.
  StepDigests d = holding({1, 1, 1, 1});
  auto in = groups({0, 0, 0, 0});
  in[static_cast<size_t>(CopyKind::state)] = {0, 0, 1, 1};
  const auto at = [&](size_t rank, CopyKind kind) -> uint64_t& {
    return d.copies[rank][static_cast<size_t>(kind)];
  };
  at(1, CopyKind::state) = 7;
  EXPECT_EQ(find_disagreement(d, in)->ranks, (Ranks{0, 1}));
  at(1, CopyKind::weights) = 7;
  EXPECT_EQ(find_disagreement(d, in)->ranks, Ranks{1});
  EXPECT_EQ(find_disagreement(d, in)->kinds, (std::vector{CopyKind::weights, CopyKind::state}));
  at(3, CopyKind::weights) = 7;
  EXPECT_EQ(find_disagreement(d, in)->ranks, (Ranks{0, 1}));
  EXPECT_EQ(find_disagreement(d, in)->copies, 2);
}

TEST(DigestLines, AMomentNamesTheRankWhoseMatrixItChanged) {
  // Ranks 0 and 2, 1 and 3 hold copies of a shard. A moment of rank 3 changed, and Muon took it to rank 2.
  StepDigests d = holding({1, 1, 7, 7});
  for (auto& kinds : d.copies) kinds[static_cast<size_t>(CopyKind::common)] = 1;
  auto in = groups({0, 1, 0, 1});
  in[static_cast<size_t>(CopyKind::weights)] = {0, 0, 0, 0};
  EXPECT_EQ(find_disagreement(d, in)->ranks, (Ranks{0, 1, 2, 3}));
  d.moments = {{1, 0}, {2, 0}, {1, 0}, {9, 0}};
  EXPECT_EQ(find_disagreement(d, in)->ranks, (Ranks{1, 3}));
  EXPECT_EQ(find_disagreement(d, in)->copies, 2);
  d.moments = {{0, 1}, {0, 2}, {0, 9}, {0, 2}};
  EXPECT_EQ(find_disagreement(d, in)->ranks, (Ranks{0, 2})) << "of experts";
  d.moments = {{1, 0}, {2, 0}, {1, 0}, {2, 0}};
  EXPECT_EQ(find_disagreement(d, in)->ranks, (Ranks{0, 1, 2, 3})) << "no moment differs";
}

TEST(DigestLines, SharesThatOthersMakeNameTheirMaker) {
  using Shares = std::vector<ShareDigest>;
  const Shares two{{0, 0, 7}, {1, 1, 8}, {0, 1, 8}, {1, 0, 7}};
  EXPECT_FALSE(find_disagreement(two));
  const auto with = [](Shares shares, int maker, int owner) {
    for (ShareDigest& s : shares)
      if (s.maker == maker && s.owner == owner) s.digest = 99;
    return find_disagreement(shares).value();
  };
  EXPECT_EQ(with(two, 0, 1).ranks, (Ranks{0, 1}));
  EXPECT_FALSE(with(two, 0, 1).named);
  Shares three;
  for (int further = 0; further < 3; ++further)
    for (int r = 0; r < 3; ++r)
      three.push_back({r, (r + further) % 3, static_cast<uint64_t>((r + further) % 3)});
  EXPECT_FALSE(find_disagreement(three));
  for (int owner = 0; owner < 3; ++owner) {
    EXPECT_EQ(with(three, 2, owner).ranks, Ranks{2});
    EXPECT_TRUE(with(three, 2, owner).named);
    EXPECT_EQ(with(three, 2, owner).copies, 3);
  }
  for (ShareDigest& s : three)
    if (s.maker == 1) s.digest += 50;
  EXPECT_EQ(find_disagreement(three)->ranks, Ranks{1}) << "all that one rank made is wrong";
  EXPECT_EQ(find_disagreement(Shares{{0, 0, 1}, {0, 0, 2}})->ranks, Ranks{0}) << "a rank alone";
}

TEST(DigestLines, OfTheCorpusAreReadOrRefused) {
  EXPECT_GE(replay_corpus("digest_line", digest_line_input, 200), 5);
}

}  // namespace
}  // namespace ingot::test::digest_lines_test
