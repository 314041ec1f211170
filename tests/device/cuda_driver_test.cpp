// The host's side of the device cuda, on a driver that is faked: what the messages say where there is no GPU,
// where the driver is old or lacks a function, and where the GPU has no memory or a kernel fails.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "device/cuda/kernel_images.h"
#include "device/simd/gpu_array.h"
#include "support/fake_cuda.h"
#include "support/support.h"

namespace ingot::test::cuda_driver_test {

using cuda_driver::open_driver;

/// A driver as it is at first, before and after each test.
class CudaDriver : public ::testing::Test {
 protected:
  CudaDriver() { fake_cuda().restart(); }
  ~CudaDriver() override { fake_cuda().restart(); }
  static std::string refusal(const std::string& library = kFakeCuda) {
    return message_of([&] { open_driver(library); });
  }
  static std::unique_ptr<CudaDevice> device() { return make_cuda_device(open_driver(kFakeCuda)); }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
};

TEST_F(CudaDriver, SaysWhatIsMissing) {
  EXPECT_EQ(refusal(), "");
  const std::string absent = refusal("libcuda-which-nobody-has.so.1");
  EXPECT_TRUE(has(absent, "no driver of an NVIDIA GPU") && has(absent, "libcuda-which-nobody-has.so.1") &&
              has(absent, "leave --device out"))
      << absent;
  const std::string lacks = refusal(kOldCuda);
  EXPECT_TRUE(has(lacks, "lacks the function cuGraphLaunch") && has(lacks, "CUDA 12.0 or later")) << lacks;
  fake_cuda().version = 11040;
  EXPECT_TRUE(has(refusal(), "the driver is of CUDA 11.4, and this program needs 12.0 or later"))
      << refusal();
  fake_cuda().version = 13000, fake_cuda().devices = 0;
  EXPECT_TRUE(has(refusal(), "the driver finds no GPU") && has(refusal(), "nvidia-smi")) << refusal();
  fake_cuda().devices = 1, fake_cuda().start = 719;
  EXPECT_TRUE(has(refusal(), "cannot start: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure"))
      << refusal();
}

TEST_F(CudaDriver, DescribesMatricesForTheirTiles) {
  const auto gpu = device();
  EXPECT_EQ(gpu->compute_capability(), 90);
  EXPECT_EQ(gpu->multiprocessors(), 3);
  constexpr int64_t kBytes = 4096;
  void* const memory = gpu->allocate(kBytes);
  TiledMatrices m{.first = memory, .columns = 40, .rows = 5, .count = 2, .row_stride = 48};
  m.matrix_stride = 240, m.tile_rows = 64;
  const TensorMap map = gpu->tensor_map(m);
  const std::array<uint64_t, 9> expected = {
      reinterpret_cast<uintptr_t>(memory), 40, 5, 2, 96, 480, 64, 64, 1};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(map.words[i], expected[i]) << i;
  m.row_stride = 41;
  EXPECT_TRUE(has(message_of([&] { gpu->tensor_map(m); }), "the map of a tensor"));
  gpu->release(memory, kBytes);
}

TEST_F(CudaDriver, KnowsTheGpu) {
  fake_cuda().compute_major = 8, fake_cuda().compute_minor = 6;
  const cuda_driver::Driver driver = open_driver(kFakeCuda);
  EXPECT_EQ(driver.name, "a faked GPU");
  EXPECT_EQ(driver.architecture(), "sm_86");
  EXPECT_EQ(driver.version_text(), "13.0");
  cuda_driver::Driver real = driver;
  real.call.launch_host_code = nullptr;
#ifndef INGOT_WITH_CUDA
  const std::string without = message_of([&] { make_cuda_device(real); });
  EXPECT_TRUE(has(without, "this program has no kernels for it (a faked GPU)") &&
              has(without, "-DINGOT_CUDA=ON"))
      << without;
#endif
}

TEST_F(CudaDriver, KnowsWhichKernelsTheGpuTakes) {
  const std::string built = "sm_80 sm_90a sm_100";
  for (const int compute : {80, 86, 89, 90, 100, 103})
    EXPECT_TRUE(cuda_driver::serve(built, compute)) << compute;
  for (const int compute : {70, 75, 120}) EXPECT_FALSE(cuda_driver::serve(built, compute)) << compute;
  EXPECT_FALSE(cuda_driver::serve("", 90));
}

TEST_F(CudaDriver, CountsMemoryAndSaysWhenThereIsNone) {
  const auto gpu = device();
  const size_t before = fake_cuda().used;
  void* const memory = gpu->allocate(1000);
  void* const borrowed = gpu->borrow(500);
  EXPECT_EQ(fake_cuda().used, before + 1500);
  gpu->give_back(borrowed);
  gpu->release(memory, 1000);
  EXPECT_EQ(fake_cuda().used, before);
  fake_cuda().memory = before + (1 << 20);
  const std::string full = message_of([&] { gpu->allocate(3 << 20); });
  EXPECT_TRUE(has(full, "device 'cuda' (a faked GPU): out of memory: 3.0 MiB were asked for, 1.0 of ") &&
              has(full, "smaller micro-batch"))
      << full;
  EXPECT_TRUE(has(message_of([&] { gpu->borrow(3 << 20); }), "out of memory"));
  EXPECT_EQ(gpu->counters().allocations, 1);
}

TEST_F(CudaDriver, NamesTheKernelAfterWhichTheGpuFailed) {
  const auto gpu = device();
  constexpr int64_t kCount = 64;
  auto* const x = static_cast<float*>(gpu->allocate(kCount * 4));
  const auto copy = [&] {
    const LaunchOn on(gpu.get());
    INGOT_GPU_CALL(launch_array_copy)({}, {x, DType::f32, x, DType::f32, kCount, false});
  };
  fake_cuda().good_launches = fake_cuda().launches + 1;
  copy();
  copy();  // asked for; it fails when it runs
  const std::string failed = message_of([&] { gpu->synchronize(gpu->record(StreamRole::compute)); });
  EXPECT_TRUE(has(failed, "its work failed: CUDA_ERROR_LAUNCH_FAILED (719)") &&
              has(failed, "the newest kernel that was asked for is 'array_copy'") &&
              has(failed, "the run resumes from the last one"))
      << failed;
  EXPECT_NE(message_of([&] { copy(); }), "") << "and so does every later call";
  gpu->release(x, kCount * 4);  // but those of destructors
}

TEST_F(CudaDriver, RefusesMemoryThatIsNotItsOwn) {
  const auto gpu = device();
  void* const memory = gpu->allocate(64);
  std::array<char, 128> here{};
  EXPECT_NE(message_of([&] { gpu->upload(memory, here.data(), 65); }), "");
  EXPECT_NE(message_of([&] { gpu->download(here.data(), here.data(), 8); }), "");
  gpu->release(memory, 64);
}

}  // namespace ingot::test::cuda_driver_test
