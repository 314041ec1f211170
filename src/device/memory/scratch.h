// Grow-only scratch memory per thread for kernels: after the first calls of a given size nothing is
// allocated.
#pragma once
#include <cstdint>

namespace ingot {

/// Who uses it; a kernel may hold several slots at once, so every use that can nest has its own.
enum class ScratchSlot { gemm_a, gemm_b, gemm_c, gemm_group, attention, attention_shared, kernel, count };

/// At least `bytes` of memory of the calling thread, aligned to 64 bytes (2 MiB pages when large). Valid
/// until the same thread asks for the same slot again; contents are undefined.
void* scratch(ScratchSlot slot, int64_t bytes);

}  // namespace ingot
