// mpirun's own notices are explained in a line, errors of ranks are shown once, the rest passes unchanged.
#include "comm/mpirun_messages.h"

#include <gtest/gtest.h>

namespace ingot::mpirun_messages_test {

constexpr const char* kFrame = "--------------------------------------------------------------------------\n";

std::string shown(const std::string& text, size_t piece) {
  std::string all;
  MpirunMessages messages([&](std::string_view part) { all += part; });
  for (size_t i = 0; i < text.size(); i += piece) messages.take(std::string_view(text).substr(i, piece));
  messages.finish();
  return all;
}

TEST(MpirunMessages, NoticesAreExplained) {
  const std::string slots = std::string(kFrame) +
                            "There are not enough slots available in the system to satisfy the 4\n"
                            "slots that were requested by the application:\n\n  build/ingot\n\nEither ...\n" +
                            kFrame;
  const std::string root = std::string(kFrame) +
                           "mpirun has detected an attempt to run as root.\n\nRunning as root is *strongly* "
                           "discouraged ...\n" +
                           kFrame;
  const std::string ended =
      std::string(kFrame) +
      "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per "
      "user-direction, the job has been aborted.\n" +
      kFrame;
  const std::string other = std::string(kFrame) + "A disk has melted.\n" + kFrame;
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}}) {
    EXPECT_NE(shown(slots, piece).find("fewer slots"), std::string::npos);
    EXPECT_NE(shown(slots, piece).find("--oversubscribe before --"), std::string::npos);
    EXPECT_EQ(shown(slots, piece).find("Either"), std::string::npos);
    EXPECT_NE(shown(root, piece).find("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"), std::string::npos);
    EXPECT_EQ(shown(ended, piece), "");
    EXPECT_EQ(shown(other, piece), other);
    EXPECT_EQ(shown("step 1\n" + ended + "step 2\nno end", piece), "step 1\nstep 2\nno end");
  }
  EXPECT_EQ(shown(std::string(kFrame) + "cut", 3), std::string(kFrame) + "cut");
}

TEST(MpirunMessages, ErrorsOfRanksAreShownOnce) {
  const std::string error = "error: 2 errors in the configuration:\n  a.toml:1: x\n  a.toml:2: y\nhint: z\n";
  EXPECT_EQ(shown("step 1\nstep 1\n" + error + error + error, 5), "step 1\nstep 1\n" + error);
  EXPECT_EQ(shown("error on rank 0: full\nerror on rank 12: full\nerror on rank 2: empty\n", 100),
            "error on rank 0: full\nerror on rank 2: empty\n");
}

}  // namespace ingot::mpirun_messages_test
