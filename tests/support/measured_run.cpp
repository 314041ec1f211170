// See measured_run.h.
#include "support/measured_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "support/process_memory.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {
namespace {

constexpr const char* kRecipe = "INGOT_TEST_RECIPE";
constexpr const char* kMark = "MEASURED ";

double mib(int64_t bytes) {
  return static_cast<double>(bytes) * 0x1p-20;
}

}  // namespace

void run_measured() {
  const char* recipe = std::getenv(kRecipe);
  if (recipe == nullptr) GTEST_SKIP() << "started by measure_run()";
  const int64_t level = status_bytes("VmRSS");
  Trainer trainer(real_file_system(), load_recipe(recipe, {}), StartMode::resume_or_start);
  std::printf("%s\n", trainer.plan().text.c_str());
  trainer.run();
  std::printf("%s%lld %lld %lld %lld\n", kMark, static_cast<long long>(trainer.plan().predicted_bytes),
              static_cast<long long>(trainer.plan().source_bytes),
              static_cast<long long>(status_bytes("VmHWM") - level),
              static_cast<long long>(trainer.model().bytes()));
}

MeasuredRun measure_run(const std::string& recipe_path, const std::string& suite) {
  const ProcessResult r = run_process(
      {"/proc/self/exe", "--gtest_filter=" + suite + ".DISABLED_Run", "--gtest_also_run_disabled_tests"},
      {std::string(kRecipe) + "=" + recipe_path});
  MeasuredRun run{.output = r.output};
  EXPECT_EQ(r.exit_code, 0) << r.output;
  const size_t at = r.output.find(kMark);
  if (at == std::string::npos) {
    ADD_FAILURE() << "nothing was measured\n" << r.output;
    return run;
  }
  std::istringstream(r.output.substr(at + std::string(kMark).size())) >> run.predicted >> run.sampling >>
      run.measured >> run.weights;
  return run;
}

void expect_as_predicted(const MeasuredRun& run) {
  const double predicted = mib(run.predicted), measured = mib(run.measured);
  std::printf("predicted %.1f MiB, measured %.1f MiB (%+.2f %%), weights %.1f MiB, sampling %.1f MiB\n",
              predicted, measured, 100 * (measured / predicted - 1), mib(run.weights), mib(run.sampling));
  EXPECT_GT(measured, 0);
  EXPECT_NEAR(predicted, measured, std::max(64.0, 0.05 * measured)) << run.output;
}

}  // namespace ingot::test
