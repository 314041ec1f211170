// Where the tape's buffers come from: memory of one device (device/device.h). One interface, three arenas
// here, and one in memory that lies idle (tensor/borrowed_arena.h):
//   HeapArena      blocks with free lists, in any order of calls (inference, tests, the first step)
//   CountingArena  no memory at all: the null device's arena. It notes every allocation, so a dry run yields
//                  the peak and a MemoryPlan.
//   PlannedArena   one slab, in which the n-th allocation of a step gets the offset that the plan has for it.
//                  Allocations and releases must come in the plan's order. A size may be smaller than
//                  planned; a larger one comes from the heap.
// Blocks are 64-byte aligned; every arena counts sizes rounded up to cache lines. Memory is not initialised.
// Not thread-safe: one tape, one arena, one thread that allocates.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace ingot {

/// An allocation. `data` is null from a CountingArena and for no bytes.
struct Block {
  void* data = nullptr;
  int64_t bytes = 0;
  int64_t id = -1;  ///< -1: no block
};

class Arena {
 public:
  virtual ~Arena() = default;
  /// `category` groups bytes in reports ("activation", "gradient", "scratch"): a literal, or it must outlive
  /// the arena. Error: out of memory.
  virtual Block allocate(int64_t bytes, const char* category) = 0;
  virtual void release(const Block& block) = 0;
  int64_t live_bytes() const { return live_; }
  int64_t peak_bytes() const { return peak_; }

 protected:
  /// Counts bytes that are allocated, or released if negative.
  void count(int64_t bytes) {
    live_ += bytes;
    if (live_ > peak_) peak_ = live_;
  }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

/// The size that arenas count for a request: whole cache lines.
constexpr int64_t round_up_block(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

class HeapArena final : public Arena {
 public:
  explicit HeapArena(Device& device = cpu_device()) : device_(device) {}
  ~HeapArena() override;
  HeapArena(const HeapArena&) = delete;
  HeapArena& operator=(const HeapArena&) = delete;
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;

 private:
  void give_back_all();

  Device& device_;
  std::map<int64_t, std::vector<void*>> free_;  ///< released blocks by size
};

/// One allocation of a step. Allocations and releases are events, numbered in their order.
struct Allocation {
  int64_t bytes = 0;
  int64_t allocated = 0;  ///< event
  int64_t released = -1;  ///< event; -1: not before the end of the step
  const char* category = "";
};

class CountingArena final : public Arena {
 public:
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;
  /// In their order.
  const std::vector<Allocation>& allocations() const { return allocations_; }
  /// Bytes per category at the moment of the peak.
  const std::map<std::string, int64_t>& peak_by_category() const { return peak_by_category_; }

 private:
  std::vector<Allocation> allocations_;
  std::map<std::string, int64_t> live_by_category_, peak_by_category_;
  int64_t events_ = 0;
};

/// Where each allocation of a step, in their order, lies in one slab.
struct MemoryPlan {
  std::vector<int64_t> bytes;
  std::vector<int64_t> offsets;
  int64_t slab_bytes = 0;
};

/// Deterministic best fit: in their order, each allocation takes the smallest gap that is free when it is
/// made. slab_bytes is at least the peak of live bytes; what is beyond it is fragmentation.
MemoryPlan plan_memory(const std::vector<Allocation>& allocations);

class PlannedArena final : public Arena {
 public:
  explicit PlannedArena(MemoryPlan plan, Device& device = cpu_device());
  ~PlannedArena() override;
  PlannedArena(const PlannedArena&) = delete;
  PlannedArena& operator=(const PlannedArena&) = delete;
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;
  /// Begins a new step; everything must have been released.
  void restart();
  /// Allocations so far that were larger than planned.
  int64_t misses() const { return misses_; }
  int64_t slab_bytes() const { return plan_.slab_bytes; }
  /// The slab, for other work between two steps.
  std::span<std::byte> idle() const {
    return {static_cast<std::byte*>(slab_), static_cast<size_t>(plan_.slab_bytes)};
  }

 private:
  Device& device_;
  MemoryPlan plan_;
  void* slab_ = nullptr;
  size_t next_ = 0;
  int64_t misses_ = 0;
  HeapArena overflow_{device_};
};

}  // namespace ingot
