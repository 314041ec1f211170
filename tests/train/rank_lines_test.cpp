// Lines of ranks.jsonl, and the fuzzer of these lines on its corpus, in every build.
#include "train/rank_lines.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/corpus.h"
#include "support/support.h"

#define LLVMFuzzerTestOneInput rank_line_input
#include "fuzz/rank_line_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::rank_lines_test {

TEST(RankLines, AreReadAsTheyWereWritten) {
  const RankTimes times{
      .step = 20, .steps = 10, .busy = {1.25, 2.5}, .waited = {1.3, 0.05}, .data_wait = {0, 0.001}};
  EXPECT_EQ(to_json_line(times),
            R"({"step":20,"steps":10,"busy":[1.25,2.5],"waited":[1.3,0.05],"data_wait":[0.0,0.001]})");
  EXPECT_EQ(parse_rank_times(to_json_line(times), "here"), times);
  for (const char* bad :
       {"", "[1]", "{}", R"({"step":1,"steps":1,"busy":[1],"waited":[1]})",
        R"({"step":0,"steps":0,"busy":[1],"waited":[1],"data_wait":[0]})",
        R"({"step":1,"steps":2,"busy":[1],"waited":[1],"data_wait":[0]})",
        R"({"step":18446744073709551615,"steps":1,"busy":[1],"waited":[1],"data_wait":[0]})",
        R"({"step":1.5,"steps":1,"busy":[1],"waited":[1],"data_wait":[0]})",
        R"({"step":1,"steps":1,"busy":[],"waited":[],"data_wait":[]})",
        R"({"step":1,"steps":1,"busy":[1,2],"waited":[1],"data_wait":[0]})",
        R"({"step":1,"steps":1,"busy":[-1],"waited":[1],"data_wait":[0]})",
        R"({"step":1,"steps":1,"busy":["1"],"waited":[1],"data_wait":[0]})",
        R"({"step":1,"steps":1,"busy":[[[1]]],"waited":[1],"data_wait":[0]})"})
    EXPECT_THROW(parse_rank_times(bad, "here"), Error) << bad;
}

TEST(RankLines, OfAFileDamagedOnesAreLeftOut) {
  const Quiet quiet;
  const TempDir folder;
  const std::string path = folder / kRanksFile;
  EXPECT_TRUE(read_rank_times(real_file_system(), path).empty());
  const RankTimes one{.step = 1, .steps = 1, .busy = {1}, .waited = {0}, .data_wait = {0}};
  RankTimes two = one;
  two.step = 2;
  write_text(path, to_json_line(one) + "\nnonsense\n" + to_json_line(two) + "\n{\"step\":3,\"st");
  EXPECT_EQ(read_rank_times(real_file_system(), path), (std::vector<RankTimes>{one, two}));
}

TEST(RankLines, TheFuzzersCorpusIsRefusedOrReadAsWritten) {
  EXPECT_EQ(replay_corpus("rank_line", rank_line_input, 300), 7);
}

}  // namespace ingot::test::rank_lines_test
