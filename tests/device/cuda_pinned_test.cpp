// Pinned memory of the host on a driver that is faked, whose copies from and to such memory happen when
// somebody waits: blocks are kept and reused, by several threads; uploads are staged until the GPU has read
// them, up to a bound; a driver that refuses to pin costs waits, not results.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/upload_staging.h"
#include "device/host_block.h"
#include "support/fake_cuda.h"
#include "support/support.h"

namespace ingot::test::cuda_pinned_test {

constexpr int64_t kPage = 4096;

class CudaPinnedMemory : public ::testing::Test {
 protected:
  CudaPinnedMemory() { fake_cuda().restart(); }
  ~CudaPinnedMemory() override { fake_cuda().restart(); }
  static std::unique_ptr<CudaDevice> device() {
    return make_cuda_device(cuda_driver::open_driver(kFakeCuda));
  }
  /// The driver pins so many bytes more.
  static void allow(int64_t bytes) { fake_cuda().lockable = fake_cuda().locked + static_cast<size_t>(bytes); }
  const cuda_driver::Driver driver_ = cuda_driver::open_driver(kFakeCuda);
};

/// Bytes of a device.
class Bytes {
 public:
  Bytes(Device& device, int64_t size) : device_(device), size_(size), data_(device.allocate(size)) {}
  ~Bytes() { device_.release(data_, size_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  /// From memory that is something else at once.
  void set(char value) const {
    std::vector<char> values(static_cast<size_t>(size_), value);
    device_.upload(data_, values.data(), size_);
    std::fill(values.begin(), values.end(), -1);
  }
  void begin_get(const HostBlock& to) const {
    device_.begin_download(to.data(), data_, size_, StreamRole::compute);
  }
  bool are(char value) const {
    std::vector<char> values(static_cast<size_t>(size_));
    device_.download(values.data(), data_, size_);
    return std::ranges::all_of(values, [&](char c) { return c == value; });
  }

 private:
  Device& device_;
  const int64_t size_;
  void* const data_;
};

TEST_F(CudaPinnedMemory, KeepsItsBlocks) {
  const size_t before = fake_cuda().locked;
  {
    PinnedMemory pinned(driver_.call, "a GPU");
    void* const block = pinned.take(5000);
    auto* const first = static_cast<char*>(block);
    EXPECT_TRUE(pinned.holds(block, 2 * kPage) && pinned.holds(first + kPage, kPage));
    EXPECT_FALSE(pinned.holds(block, 2 * kPage + 1) || pinned.holds(first - 1, 2));
    EXPECT_TRUE(pinned.give_back(block, 5000));
    EXPECT_EQ(pinned.take(8000), block) << "a copy that is a little larger";
    EXPECT_EQ(fake_cuda().pins, 1);
    void* const other = pinned.take(6000);
    EXPECT_NE(other, block) << "which is in use";
    EXPECT_NE(pinned.take(1), nullptr);
    EXPECT_EQ(fake_cuda().pins, 3);
    EXPECT_EQ(fake_cuda().locked, before + 5 * kPage);
    std::array<char, 64> own{};
    EXPECT_FALSE(pinned.give_back(own.data(), 64));
    EXPECT_EQ(pinned.pin(own.data(), 64), cuda_driver::kSuccess);
    EXPECT_TRUE(pinned.holds(own.data(), 64));
    EXPECT_NE(pinned.pin(own.data(), 64), cuda_driver::kSuccess) << "twice";
    EXPECT_EQ(pinned.unpin(own.data()), cuda_driver::kSuccess);
    EXPECT_FALSE(pinned.holds(own.data(), 64));
  }
  EXPECT_EQ(fake_cuda().locked, before);
}

TEST_F(CudaPinnedMemory, ServesSeveralThreads) {
  PinnedMemory pinned(driver_.call, "a GPU");
  constexpr int kThreads = 4;
  std::array<bool, kThreads> alone{};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        bool mine = true;
        for (int64_t i = 0; i < 300; ++i) {
          const int64_t bytes = 1 + i * 7919 % (4 * kPage);
          auto* const block = static_cast<char*>(pinned.take(bytes));
          std::fill_n(block, bytes, static_cast<char>(t));
          std::this_thread::yield();
          mine = mine && std::all_of(block, block + bytes, [&](char c) { return c == t; });
          pinned.give_back(block, bytes);
        }
        alone[static_cast<size_t>(t)] = mine;
      });
  }
  for (const bool each : alone) EXPECT_TRUE(each);
  EXPECT_LE(fake_cuda().pins, 3 * kThreads) << "blocks of 4, 8 and 16 KiB";
}

TEST_F(CudaPinnedMemory, DoesWithoutWhereTheDriverRefuses) {
  const TempDir folder;
  ASSERT_TRUE(log::keep_in(folder / "log"));
  PinnedMemory pinned(driver_.call, "a GPU");
  allow(2 * kPage);
  EXPECT_EQ(pinned.take(4 * kPage), nullptr);
  EXPECT_NE(pinned.take(2 * kPage), nullptr) << "smaller ones may be granted";
  EXPECT_EQ(pinned.take(kPage), nullptr);
  allow(1 << 20);
  EXPECT_EQ(pinned.take(kPage), nullptr) << "what was refused is not asked for again";
  allow(0);
  const auto gpu = device();
  const Bytes bytes(*gpu, 100);
  bytes.set(7);
  {
    const HostBlock block(*gpu, 100);
    bytes.begin_get(block);
    gpu->synchronize(gpu->record(StreamRole::compute));
    EXPECT_EQ(static_cast<char*>(block.data())[99], 7);
  }
  EXPECT_EQ(gpu->counters().pageable_copies, 2);
  EXPECT_EQ(fake_cuda().pageable_copies, 2);
  log::keep_in("");
  const std::string text = read_text(folder / "log");
  const std::string says =
      "device 'cuda' (a GPU): the driver refuses to pin 16 KiB of the host's memory: "
      "CUDA_ERROR_OUT_OF_MEMORY (2)";
  EXPECT_NE(text.find(says), std::string::npos) << text;
  EXPECT_EQ(text.find("(a GPU)", text.find(says) + says.size()), std::string::npos) << "once: " << text;
  EXPECT_NE(text.find("(a faked GPU): the driver refuses to pin 4 KiB"), std::string::npos) << text;
}

TEST_F(CudaPinnedMemory, KeepsUploadsUntilTheGpuHasReadThem) {
  const auto gpu = device();
  const Bytes a(*gpu, 100), b(*gpu, 100), c(*gpu, 100);
  const DeviceEvent before = gpu->record(StreamRole::compute);
  a.set(1);
  const DeviceEvent between = gpu->record(StreamRole::compute);
  b.set(2);
  gpu->synchronize(before);
  gpu->synchronize(gpu->record(StreamRole::copy_in));
  EXPECT_EQ(fake_cuda().pins, 2);
  c.set(3);
  EXPECT_EQ(fake_cuda().pins, 3) << "the others are on their way";
  gpu->synchronize(between);
  a.set(4);
  EXPECT_EQ(fake_cuda().pins, 3) << "the first one's block is free";
  b.set(5);
  EXPECT_EQ(fake_cuda().pins, 4);
  EXPECT_TRUE(a.are(4) && b.are(5) && c.are(3));
  for (const char value : {6, 7}) {
    a.set(value), b.set(value), c.set(value);
    EXPECT_TRUE(a.are(value) && b.are(value) && c.are(value));
  }
  EXPECT_EQ(fake_cuda().pins, 4);
  EXPECT_EQ(gpu->counters().pageable_copies, 9) << "to memory of this test's own";
}

TEST_F(CudaPinnedMemory, BoundsWhatIsOnItsWay) {
  PinnedMemory pinned(driver_.call, "a GPU");
  UploadStaging staging(pinned);
  constexpr int64_t kLargest = UploadStaging::kLargest, kCount = UploadStaging::kMost / kLargest;
  const std::vector<char> bytes(kLargest + 1);
  const size_t before = fake_cuda().locked;
  for (int64_t i = 0; i < kCount; ++i) EXPECT_NE(staging.stage(bytes.data(), kLargest), nullptr);
  EXPECT_EQ(fake_cuda().locked - before, static_cast<size_t>(UploadStaging::kMost));
  EXPECT_EQ(staging.stage(bytes.data(), 100), nullptr) << "one too many";
  staging.passed(staging.now());
  EXPECT_NE(staging.stage(bytes.data(), 100), nullptr);
  EXPECT_EQ(staging.stage(bytes.data(), kLargest + 1), nullptr) << "too large";
  const auto gpu = device();
  const Bytes large(*gpu, kLargest + 1);
  large.set(3);
  EXPECT_EQ(gpu->counters().pageable_copies, 1);
  EXPECT_TRUE(large.are(3));
}

TEST_F(CudaPinnedMemory, StagesUploadsOfSeveralThreads) {
  const auto gpu = device();
  constexpr int kThreads = 4;
  std::array<int, kThreads> wrong{};
  const auto upload_and_read = [&] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        constexpr int64_t kSize = 1000;
        const Bytes bytes(*gpu, kSize);
        for (int i = 0; i < 40; ++i) {
          const auto value = static_cast<char>(1 + t * 20 + i % 17);
          const HostBlock block(*gpu, kSize);
          for (char other = 0; other < 3; ++other) bytes.set(other);
          bytes.set(value);
          bytes.begin_get(block);
          gpu->synchronize(gpu->record(StreamRole::compute));
          const auto* const first = static_cast<const char*>(block.data());
          if (!std::all_of(first, first + kSize, [&](char c) { return c == value; }))
            ++wrong[static_cast<size_t>(t)];
        }
      });
  };
  upload_and_read();
  for (const int each : wrong) EXPECT_EQ(each, 0);
  EXPECT_EQ(gpu->counters().pageable_copies, 0);
  EXPECT_LE(fake_cuda().pins, 5 * kThreads) << "four uploads and a download each";
}

}  // namespace ingot::test::cuda_pinned_test
