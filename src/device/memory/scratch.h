// Scratch memory of kernels, per thread. It only grows: after the first calls of a size nothing is allocated.
#pragma once
#include <cstdint>

namespace ingot {

/// One slot for each use that can nest: a kernel may hold several at once.
enum class ScratchSlot { gemm_a, gemm_b, gemm_c, gemm_c_rows, attention, attention_shared, kernel, count };

/// At least `bytes` of memory of the calling thread, aligned to 64 bytes (2 MiB pages when large). Valid
/// until the same thread asks for the same slot again; contents are undefined.
void* scratch(ScratchSlot slot, int64_t bytes);

}  // namespace ingot
