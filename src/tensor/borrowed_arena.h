// An arena in memory that lies idle: a validation between two steps of training computes in the memory of
// the steps' activations.
#pragma once
#include <cstdint>
#include <span>

#include "device/device.h"
#include "tensor/arena.h"
#include "tensor/free_gaps.h"

namespace ingot {

/// What does not fit into the memory is of the heap. Not thread-safe.
class BorrowedArena final : public Arena {
 public:
  /// Both must outlive this. `memory`: 64-byte aligned, of the device; what it holds is lost.
  BorrowedArena(std::span<std::byte> memory, HeapArena& heap, Device& device = cpu_device())
      : memory_(memory), heap_(heap), device_(device) {}
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;

 private:
  std::span<std::byte> memory_;
  HeapArena& heap_;
  Device& device_;
  FreeGaps gaps_;
};

}  // namespace ingot
