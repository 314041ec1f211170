// `ingot guard --metrics`: what a guard shows of itself, its job and its books, while the job runs and while
// a person is asked; and that a job outlives its guard without holding the guard's port.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "support/http_client.h"
#include "support/prometheus_grammar.h"
#include "support/tiny_run.h"

namespace ingot::test::metrics_test {
namespace {

class GuardMetricsPage : public ::testing::Test {
 protected:
  static constexpr double kLongest = 60;  ///< seconds of a wait

  /// A guard of a job that is the shell script `script`, in which $RUN is the run's folder; its output is in
  /// the file `out`.
  std::vector<std::string> guard(const std::string& script, const std::string& metrics = "0") {
    write_text(folder_ / "job.sh",
               fmt::format("RUN={}\nSTART=$INGOT_GUARD_START\n{}\n", folder_ / "run", script));
    write_text(folder_ / "job.toml",
               fmt::format("run = \"{}\"\nrules = \"{}/recipes/guard-rules.toml\"\npoll = 0.02\n"
                           "burn_in = [\"true\"]\ncommand = [\"sh\", \"{}\"]\n",
                           folder_ / "run", INGOT_SOURCE_DIR, folder_ / "job.sh"));
    return {"/bin/sh", "-c",
            fmt::format("exec {} guard {} --metrics {} >{} 2>&1", INGOT_BINARY, folder_ / "job.toml", metrics,
                        folder_ / "out")};
  }
  std::string output() const {
    return std::filesystem::exists(folder_ / "out") ? read_text(folder_ / "out") : "";
  }
  bool wait_for(const std::function<bool()>& there) const {
    const double begin = monotonic_seconds();
    while (!there()) {
      if (monotonic_seconds() - begin > kLongest) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }
  uint16_t port() const {
    uint16_t found = 0;
    wait_for([&] { return (found = metrics_port(output())) != 0; });
    return found;
  }
  /// Scrapes until the sample has the value; its page, which is empty where it never has.
  std::map<std::string, double> page_with(uint16_t port, const std::string& sample, double value) const {
    PrometheusText page;
    const bool found = wait_for([&] {
      page = read_prometheus(http_get(port, "/metrics").body);
      EXPECT_EQ(page.problems, "");
      const auto at = page.samples.find(sample);
      return at != page.samples.end() && at->second == value;
    });
    EXPECT_TRUE(found) << sample << "\n" << output();
    return found ? page.samples : std::map<std::string, double>();
  }
  TempDir folder_;
};

TEST_F(GuardMetricsPage, ShowsJobBooksAndQuestions) {
  Process process(guard(R"(mkdir -p $RUN/status
if [ $START = 1 ]; then
  say='{"format": 1, "start": 1, "rank": 0, "host": "h", "start_step": 0, "step": 7}'
  echo "$say" >$RUN/status/rank-0.json
  until [ -f $RUN/on ]; do sleep 0.02; done
fi
echo "{\"format\": 1, \"start\": $START, \"kind\": \"config\"}" >$RUN/failure.json
exit 2)"));
  const uint16_t at = port();
  ASSERT_NE(at, 0) << output();
  const auto running = page_with(at, "ingot_guard_job{state=\"running\"}", 1);
  ASSERT_FALSE(running.empty());
  EXPECT_EQ(running.at("ingot_guard_restarts_total"), 0);
  EXPECT_EQ(page_with(at, "ingot_guard_step", 7).at("ingot_guard_lost_steps_total"), 0);
  write_text(folder_ / "run/on", "");
  const auto asking = page_with(at, "ingot_guard_state{state=\"asking\"}", 1);
  ASSERT_FALSE(asking.empty());
  EXPECT_EQ(asking.at("ingot_guard_questions_total"), 1);
  EXPECT_EQ(asking.at("ingot_guard_decisions_total{rule=\"configuration\"}"), 1);
  EXPECT_EQ(asking.at("ingot_guard_decisions_total{rule=\"first start\"}"), 1);
  EXPECT_EQ(asking.at("ingot_guard_job{state=\"ended\"}"), 1);
  EXPECT_EQ(asking.at("ingot_guard_state{state=\"watching\"}"), 0);
  EXPECT_GE(asking.at("ingot_guard_goodput_ratio"), 0);
  EXPECT_LT(asking.at("ingot_guard_look_age_seconds"), kLongest);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 130);
}

TEST_F(GuardMetricsPage, TheNextGuardServesAtTheSamePortWhileTheJobLives) {
  const std::string script = "until [ -f $RUN/on -o ! -d $RUN ]; do sleep 0.02; done\nexit 0";
  std::string at;
  {
    Process first(guard(script));
    at = std::to_string(port());
    ASSERT_NE(at, "0") << output();
    ASSERT_TRUE(wait_for([&] { return std::filesystem::exists(folder_ / "run/guard/job-1.log"); }));
    first.signal(SIGKILL);
    first.wait();
  }
  Process second(guard(script, at));
  EXPECT_FALSE(
      page_with(static_cast<uint16_t>(std::stoi(at)), "ingot_guard_decisions_total{rule=\"first start\"}", 1)
          .empty())
      << "what the guard before counted, counts";
  write_text(folder_ / "run/on", "");
  EXPECT_EQ(second.wait().exit_code, 0) << output();
}

}  // namespace
}  // namespace ingot::test::metrics_test
