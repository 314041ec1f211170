// The fuzzer of a run's lines about rollouts on its corpus, and on bytes of it that were changed, in every
// build.
#include <gtest/gtest.h>

#include "support/corpus.h"

#define LLVMFuzzerTestOneInput rollout_line_input
#include "fuzz/rollout_line_fuzz.cpp"
#undef LLVMFuzzerTestOneInput

namespace ingot::test::rollout_corpus_test {

TEST(RolloutCorpus, LinesAreReadOrRefused) {
  EXPECT_GE(replay_corpus("rollout_line", rollout_line_input, 200), 8);
}

}  // namespace ingot::test::rollout_corpus_test
