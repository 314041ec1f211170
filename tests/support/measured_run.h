// A training run in a process of its own, so that nothing but the trainer moves the peak of memory.
#pragma once
#include <cstdint>
#include <string>

namespace ingot::test {

struct MeasuredRun {
  int64_t predicted = 0;  ///< bytes, by the run's plan
  int64_t sampling = 0;   ///< of these, those of what its batches come from: an engine, a reference
  int64_t measured = 0;   ///< peak of the resident bytes above what the process had before
  int64_t weights = 0;    ///< bytes of the model
  std::string output;     ///< of the process
};

/// The child's side, the body of a test `<suite>.DISABLED_Run`: runs the recipe of measure_run(), which alone
/// starts it.
void run_measured();
/// Starts this program again with only `<suite>.DISABLED_Run`, on the recipe in this file. Fails the test and
/// returns zeros where the run does.
MeasuredRun measure_run(const std::string& recipe_path, const std::string& suite);
/// The prediction is right within 5 % or 64 MiB: the pages that allocators keep. Prints both.
void expect_as_predicted(const MeasuredRun& run);

}  // namespace ingot::test
