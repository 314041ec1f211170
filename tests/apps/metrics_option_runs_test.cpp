// `ingot run --metrics`: a run shows itself while it trains, on any number of ranks once, and says why where
// it cannot.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "support/http_client.h"
#include "support/prometheus_grammar.h"
#include "support/tiny_run.h"

namespace ingot::test::metrics_option_runs_test {
namespace {

class MetricsOption : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_ / "text.txt", tiny_text(4000));
    write_text(folder_ / "recipe.toml", tiny_recipe(folder_ / "run", folder_ / "data", folder_ / "text.txt"));
  }
  /// A run that would take long, its output in the file `out`.
  std::vector<std::string> command(const std::string& metrics) const {
    return {"/bin/sh", "-c",
            fmt::format("exec {} run {} --phases.0.steps=1000000 --checkpoint.every=20 --run.log_every=10 "
                        "--metrics {} >{} 2>&1",
                        INGOT_BINARY, folder_ / "recipe.toml", metrics, folder_ / "out")};
  }
  std::string output() const {
    return std::filesystem::exists(folder_ / "out") ? read_text(folder_ / "out") : "";
  }
  /// The port that the run serves at, once it does.
  uint16_t port() const {
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < 60) {
      if (const uint16_t found = metrics_port(output()); found != 0) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return 0;
  }
  TempDir folder_;
};

TEST_F(MetricsOption, ARunShowsItselfWhileItTrains) {
  Process run(command("0"));
  const uint16_t at = port();
  ASSERT_NE(at, 0) << output();
  PrometheusText page;
  const double begin = monotonic_seconds();
  const auto value = [&](const std::string& name) {
    const auto found = page.samples.find(name);
    return found == page.samples.end() ? -1 : found->second;
  };
  while (value("ingot_checkpoint_step") < 20 && monotonic_seconds() - begin < 60) {
    page = read_prometheus(http_get(at, "/metrics").body);
    ASSERT_EQ(page.problems, "");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GE(value("ingot_step"), 20);
  EXPECT_GT(value("ingot_loss"), 0);
  EXPECT_GT(value("ingot_tokens_total"), 0);
  EXPECT_GT(value("ingot_tokens_per_second"), 0);
  EXPECT_GT(value("ingot_mfu"), 0);
  EXPECT_GE(value("ingot_checkpoint_age_seconds"), 0);
  EXPECT_LT(value("ingot_checkpoint_age_seconds"), 60);
  EXPECT_LT(value("ingot_status_age_seconds"), 60);
  // The port is its own; another run is told before it begins.
  const ProcessResult other =
      run_process({INGOT_BINARY, "run", folder_ / "recipe.toml", "--run.folder=" + (folder_ / "other"),
                   "--metrics", fmt::format("127.0.0.1:{}", at)});
  EXPECT_EQ(other.exit_code, 1) << other.output;
  EXPECT_NE(other.output.find("metrics cannot be served at"), std::string::npos) << other.output;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other/metrics.jsonl"));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().exit_code, 130) << output();
}

TEST_F(MetricsOption, WhatIsNoAddressIsRefusedAtOnce) {
  for (const char* bad : {"nowhere", "host:99999", ""}) {
    const ProcessResult r = run_process({INGOT_BINARY, "run", folder_ / "recipe.toml", "--metrics", bad});
    EXPECT_EQ(r.exit_code, 2) << bad << r.output;
    EXPECT_NE(r.output.find("--metrics"), std::string::npos) << r.output;
  }
  const ProcessResult foreign =
      run_process({INGOT_BINARY, "run", folder_ / "recipe.toml", "--metrics", "192.0.2.1:9100"});
  EXPECT_EQ(foreign.exit_code, 1) << foreign.output;
  EXPECT_NE(foreign.output.find("an address of this machine"), std::string::npos) << foreign.output;
}

}  // namespace
}  // namespace ingot::test::metrics_option_runs_test
