// The speeds that a report prints, from plans of its layouts and one constant for each device and type.
#include "plan/published_speed.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace ingot::test::published_speed_test {

using namespace published;

/// One share for each device and type, fitted to its first row. The others are as far off as docs/plan.md
/// says.
TEST(PublishedSpeed, SpeedsOfTable11FollowFromOneShareEach) {
  std::map<std::string, double> residuals;
  for (const char* file : {"gb300-nvl72", "gb200-nvl72", "h100-ib"}) {
    const Cluster cluster = load_cluster(fmt::format("{}/clusters/{}.toml", INGOT_SOURCE_DIR, file));
    for (const Speed& s : speeds(cluster)) {
      EXPECT_GT(s.share, 0.2) << s.what;
      EXPECT_LT(s.share, 0.91) << s.what
                               << ": beside their bytes products reach no more (Smol Training Playbook)";
      if (s.fitted) {
        EXPECT_NEAR(s.residual(), 0, 2e-3) << s.what;
        // Of bf16 on H100 the file has measured points.
        const bool f8 = s.what.find(" f8,") != std::string::npos;
        EXPECT_NEAR(s.share, cluster.device.product_share.of(f8 ? "f8" : "bf16"), f8 ? 2e-3 : 0.02) << s.what;
      } else {
        residuals[s.what.substr(0, s.what.find(':'))] = s.residual();
      }
    }
  }
  EXPECT_NEAR(residuals.at("qwen3-235b f8, 256 x GB300"), -0.04, 0.01);
  EXPECT_NEAR(residuals.at("qwen3-235b f8, 256 x GB200"), -0.01, 0.01);
  EXPECT_NEAR(residuals.at("qwen3-235b f8, 128 x GB300"), -0.115, 0.01);
  EXPECT_NEAR(residuals.at("qwen3-235b bf16, 256 x GB200"), 0.05, 0.01);
  EXPECT_EQ(residuals.size(), 4u);
}

TEST(PublishedSpeed, SpeedsOfAnotherMachineAreRefused) {
  try {
    speeds(load_cluster(std::string(INGOT_SOURCE_DIR) + "/clusters/cpu-2core.toml"));
    FAIL() << "printed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("prints no speed on"), std::string::npos) << e.what();
  }
}

}  // namespace ingot::test::published_speed_test
