// See slurm_run.h.
#include "slurm_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <regex>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "comm/threads.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test {

const std::vector<std::string> kSlurmOptions = {
    "--phases.0.batch=8", "--phases.0.micro_batch=1", "--phases.0.steps=1200", "--phases.1.batch=8",
    "--phases.1.micro_batch=2", "--parallel.expert=2", "--parallel.shard=optimizer", "--checkpoint.every=100",
    "--evaluation.every=1000",
    // Four ranks share fewer cores with other tests, so a slow rank is no finding.
    "--samples.every=1000", "--parallel.slowest_rank=0"};

std::string slurm(const std::string& command) {
  const auto r = run_process({"/bin/sh", "-c", command});
  EXPECT_EQ(r.exit_code, 0) << command << "\n" << r.output;
  return r.output;
}

std::string slurm_recipe(const TempDir& folder) {
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(folder / "recipe.toml", tiny_recipe(folder / "run", folder / "data", folder / "text.txt"));
  return folder / "recipe.toml";
}

std::string undisturbed_run() {
  static const TempDir folder;
  if (!std::filesystem::exists(folder / "run")) {
    const Recipe r = load_recipe(slurm_recipe(folder), kSlurmOptions);
    log::set_level(log::Level::error);
    run_ranks(4, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer(real_file_system(), r, StartMode::resume_or_start, &self).run();
    });
    log::set_level(log::Level::info);
  }
  return folder / "run";
}

bool comes(const std::function<bool()>& there) {
  constexpr double kLongest = 600;
  for (const double begin = monotonic_seconds(); !there();) {
    if (monotonic_seconds() - begin > kLongest) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

int64_t interrupted_at(const std::string& log) {
  std::smatch found;
  return std::regex_search(log, found, std::regex("interrupted at step (\\d+), saved")) ? std::stoll(found[1])
                                                                                        : 0;
}

}  // namespace ingot::test
