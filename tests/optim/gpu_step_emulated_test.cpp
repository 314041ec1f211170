// An update by the kernels of GPUs, emulated, has the bits of the CPU: norm, clip, AdamW and AdEMAMix, over
// tensors of none, one and several chunks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"
#include "device/gpu/emulator.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/gpu_step.h"

namespace ingot::test::gpu_step_emulated_test {

constexpr int64_t kCounts[] = {17, 0, 1, 16384, 5000, 40003};

/// Weights, gradients and moments of some tensors, after a few steps.
struct Updated {
  std::vector<std::vector<float>> values;
  std::vector<UpdateStat> stats;

  Updated(const UpdateKernels* kernels, bool mixing) {
    std::vector<ParamView> params;
    std::vector<AdamWTensor> tensors;
    values.resize(5 * std::size(kCounts));
    for (size_t t = 0; t < std::size(kCounts); ++t)
      for (size_t kind = 0; kind < 5; ++kind) {
        const Random random(7, RandomPurpose::test, 5 * t + kind);
        std::vector<float>& v = values[5 * t + kind];
        v.resize(static_cast<size_t>(kCounts[t]));
        for (size_t i = 0; i < v.size() && kind < 2; ++i)
          v[i] = static_cast<float>(random.normal(i)) * (kind == 0 ? 0.3f : 0.01f);
      }
    for (size_t t = 0; t < std::size(kCounts); ++t) {
      ParamView p;
      p.name = std::to_string(t), p.shape = {kCounts[t]};
      p.master = values[5 * t].data(), p.grad = values[5 * t + 1].data();
      params.push_back(p);
    }
    for (size_t t = 0; t < params.size(); ++t) {
      const auto moment = [&](size_t kind) { return StoredValues(values[5 * t + kind].data()); };
      tensors.push_back({&params[t], moment(2), moment(3), 3e-3, 0.1, mixing ? moment(4) : StoredValues()});
    }
    for (int64_t step = 1; step <= 3; ++step)
      stats = adamw_step(tensors, {}, step, 0.37, {.beta3 = 0.99, .alpha = 2, .warmup = 10}, kernels);
  }
};

class GpuStep : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { set_emulation({true, GetParam()}); }
  void TearDown() override { set_emulation({}); }
};

TEST_P(GpuStep, HasTheCpusUpdates) {
  for (const bool mixing : {false, true}) {
    const int64_t before = emulated_launches()["adamw"];
    const Updated cpu(nullptr, mixing);
    EXPECT_EQ(emulated_launches()["adamw"], before);
    const Updated emulated(&gpu_update_kernels(), mixing);
    EXPECT_EQ(emulated_launches()["adamw"], before + 3);
    EXPECT_EQ(emulated.values, cpu.values);
    ASSERT_EQ(emulated.stats.size(), cpu.stats.size());
    EXPECT_EQ(std::memcmp(emulated.stats.data(), cpu.stats.data(), cpu.stats.size() * sizeof(UpdateStat)), 0);
    EXPECT_GT(cpu.stats.back().update_rms, 0);
  }
}

TEST_P(GpuStep, HasTheCpusNormAndClips) {
  std::vector<std::vector<float>> grads;
  std::vector<ParamView> params;
  for (const int64_t count : kCounts) {
    const Random random(9, RandomPurpose::test, static_cast<uint64_t>(count));
    grads.emplace_back(static_cast<size_t>(count));
    for (size_t i = 0; i < grads.back().size(); ++i) grads.back()[i] = static_cast<float>(random.normal(i));
  }
  for (std::vector<float>& g : grads) {
    ParamView p;
    p.shape = {static_cast<int64_t>(g.size())}, p.grad = g.data();
    params.push_back(p);
  }
  for (const double scale : {1.0, 1.0 / 300, -0.1})
    for (const double most : {0.0, 1.0, 1e9}) {
      const GradNorm cpu = gradient_norm(params, scale);
      EXPECT_EQ(gpu_update_kernels().sum_squares(params), cpu.sum_squares);
      const ClipFactor clip = gpu_update_kernels().clip_factor(cpu.sum_squares, scale, most, 2.5);
      EXPECT_TRUE(clip.is_finite);
      EXPECT_EQ(clip.factor, clip_factor(cpu.norm, most));
      EXPECT_FALSE(gpu_update_kernels().clip_factor(cpu.sum_squares, scale, most, std::nan("")).is_finite);
    }
  grads.back()[39000] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(
      gpu_update_kernels().clip_factor(gpu_update_kernels().sum_squares(params), 1, 1, 2.5).is_finite);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GpuStep, ::testing::Values(1, 2, 3));

}  // namespace ingot::test::gpu_step_emulated_test
