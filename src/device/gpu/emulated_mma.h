// What a tensor core does, for the emulator: the instruction mma.m16n8k16 of bf16.
#pragma once
#include <cstdint>

namespace ingot::emulator {

/// What a thread brings to it: four sums, and its registers of A and B, each of two bf16.
struct Mma {
  float* sums;
  const uint32_t *a, *b;
};

/// The sums of 32 threads become theirs plus A B, 16 rows by 8 columns over 16 of k. Where the elements of
/// each register stand is said by "Parallel Thread Execution ISA", matrix fragments for mma.m16n8k16. It
/// leaves the order of the 16 additions to the device; here each output is one chain of fma over ascending k
/// that begins with the sum. A TogetherWork.
void multiply(void* const* brought, unsigned threads);

}  // namespace ingot::emulator
