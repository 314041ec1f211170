// A libcuda.so.1 without a GPU: the driver's functions that src/device/cuda/driver.h uses, on memory that the
// host can touch while work of a stream runs only, with kernels that are host code (the emulator's). Work
// runs late, when somebody waits for it, and a copy from pinned memory reads it then; an address that was not
// allocated, and a failure, are errors as a driver has them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ingot::test {

constexpr const char* kFakeCuda = INGOT_BUILD_DIR "/tests/libingot_fake_cuda.so";
constexpr const char* kOldCuda = INGOT_BUILD_DIR "/tests/libingot_old_cuda.so";  ///< which lacks a function

/// What the driver is like, and what it has seen; changed between calls.
struct FakeCuda {
  int version = 13000, start = 0, devices = 1, compute_major = 9, compute_minor = 0;
  size_t memory = size_t{4} << 30;  ///< of the GPU
  size_t lockable = ~size_t{0};     ///< bytes of the host that it pins
  int good_launches = -1;           ///< the kernel after so many fails when it runs; -1: none does

  int launches = 0;  ///< that have run
  size_t used = 0;   ///< bytes that are allocated
  size_t most_used = 0;
  size_t blocks = 0;        ///< allocations that live
  size_t locked = 0;        ///< bytes of the host that are pinned
  int pins = 0;             ///< calls that have pinned memory of the host
  int pageable_copies = 0;  ///< between the GPU and memory of the host that is not pinned
  bool has_failed = false;  ///< every call since then has returned the failure

  /// As it is at first, but for memory that is in use.
  void restart() { *this = {.used = used, .blocks = blocks, .locked = locked}; }
};

/// Of the library that is open in this process.
FakeCuda& fake_cuda();

constexpr const char* kFakeCublasLt = INGOT_BUILD_DIR "/tests/libingot_fake_cublaslt.so";
constexpr const char* kOldCublasLt = INGOT_BUILD_DIR "/tests/libingot_old_cublaslt.so";  ///< as kOldCuda

/// A cuBLASLt for the faked driver. It suggests an algorithm that splits k, one that reduces in place, one
/// that it does not support, and then, where it has any, those that may be taken: the first multiplies by one
/// chain over ascending k, the second over descending k where there are several rows.
struct FakeCublasLt {
  size_t version = 130100;
  int start = 0;             ///< status of cublasLtCreate
  int refuses = 0;           ///< status of cublasLtMatmul
  uint64_t fewest_rows = 0;  ///< that an algorithm takes
  bool only_splits = false;
  bool keeps_rows = true;  ///< has the first of those that may be taken
  uint32_t alignment = 2;  ///< of operands, at least, for which it has algorithms

  int handles = 0, objects = 0;  ///< that live
  int products = 0;              ///< that have been asked for
};
FakeCublasLt& fake_cublaslt();

}  // namespace ingot::test
