// The first step of a run, as its observer sees it and as `ingot debug dump` writes it: what tests compare
// bit for bit.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "support/support.h"
#include "train/dump.h"
#include "train/trainer.h"

namespace ingot::test {

/// Watches a run: bytes of every tensor of the first micro-batch of the first step that run() makes, and
/// forward executions by op. Stops the run after `steps`.
class FirstStep final : public RunObserver {
 public:
  explicit FirstStep(int64_t steps = 1) : steps_(steps) {}
  void enters(StepPart part) override {
    if (part == StepPart::records && --steps_ == 0) Trainer::interrupt();
  }
  void ran(const OpRun& run) override { calls[run.op.name] += run.direction == Direction::forward; }
  void tensor(const std::string& name, const Tensor& t) override {
    tensors.try_emplace(name, static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
  }
  std::map<std::string, std::string> tensors;
  std::map<std::string, int64_t> calls;

 private:
  int64_t steps_;
};

/// Runs quietly, with any kernels, in a folder of its own.
class FirstStepTest : public ::testing::Test {
 protected:
  FirstStepTest() : before_(log::level()) {
    log::set_level(log::Level::silent);
    set_kernel_policy(KernelPolicy::any);
  }
  ~FirstStepTest() override {
    log::set_level(before_);
    set_kernel_policy(KernelPolicy::strict);
  }

  /// The dump of the next step, by tensor.
  std::map<std::string, std::string> dumped(const Recipe& r) const {
    dump_step(real_file_system(), r, folder_ / "dump.safetensors");
    const SafetensorsFile file(real_file_system(), folder_ / "dump.safetensors");
    std::map<std::string, std::string> tensors;
    for (const SafetensorsEntry& e : file.entries()) {
      const auto data = file.data(e);
      tensors[e.name].assign(reinterpret_cast<const char*>(data.data()), data.size());
    }
    return tensors;
  }
  /// The tensors of the trainer's next step; it makes `steps`.
  static std::map<std::string, std::string> trained(const Recipe& r, int64_t steps) {
    FirstStep first(steps);
    Trainer trainer(real_file_system(), r, StartMode::resume_or_start);
    trainer.observe(&first);
    trainer.run();
    return first.tensors;
  }
  /// The dump is the next step of the run, of which `steps` are made. Returns the dump.
  std::map<std::string, std::string> expect_the_runs_step(const Recipe& r, int64_t steps,
                                                          const std::string& what) const {
    const auto dump = dumped(r), run = trained(r, steps);
    EXPECT_GT(dump.size(), 10u) << what;
    EXPECT_EQ(dump.size(), run.size()) << what;
    for (const auto& [name, bytes] : run) {
      const auto it = dump.find(name);
      EXPECT_TRUE(it != dump.end() && it->second == bytes) << what << ": " << name;
    }
    return dump;
  }

  TempDir folder_;

 private:
  log::Level before_;
};

}  // namespace ingot::test
