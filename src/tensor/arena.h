// Where the tape's buffers come from. One interface, three arenas:
//   HeapArena      64-byte aligned blocks with free lists; any order of calls (inference, tests, first steps).
//   CountingArena  no memory at all: the null device's arena. Records births and deaths, so a dry run yields the peak
//                  and a MemoryPlan.
//   PlannedArena   one slab; the n-th allocation of a step gets the offset that the plan computed for it. The order of
//                  births and deaths must be the plan's; a size may be smaller, and a larger one goes to the heap.
// Arenas are not thread-safe: one tape, one arena, one thread that allocates.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// A live allocation. `data` is null from a CountingArena and for zero bytes.
struct Block {
  void* data = nullptr;
  int64_t bytes = 0;
  int64_t id = -1;  ///< -1: no block
};

class Arena {
 public:
  virtual ~Arena() = default;
  /// `category` groups bytes in reports ("saved", "gradient", "scratch"); it must outlive the arena (a literal).
  virtual Block allocate(int64_t bytes, const char* category) = 0;
  virtual void release(const Block& block) = 0;
  int64_t live_bytes() const { return live_; }
  int64_t peak_bytes() const { return peak_; }
  void reset_peak() { peak_ = live_; }

 protected:
  void count(int64_t bytes) {
    live_ += bytes;
    if (live_ > peak_) peak_ = live_;
  }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

/// Rounds a request up to whole cache lines; every arena counts rounded bytes.
constexpr int64_t round_up_block(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

class HeapArena final : public Arena {
 public:
  HeapArena() = default;
  ~HeapArena() override;
  HeapArena(const HeapArena&) = delete;
  HeapArena& operator=(const HeapArena&) = delete;
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;
  /// Gives cached free blocks back to the system.
  void trim();

 private:
  std::map<int64_t, std::vector<void*>> free_;
};

/// One buffer's life inside a step, in allocation order; `death` and `birth` are event numbers.
struct BufferLife {
  int64_t bytes = 0;
  int64_t birth = 0;
  int64_t death = -1;  ///< -1: still alive at the end
  const char* category = "";
};

class CountingArena final : public Arena {
 public:
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;
  const std::vector<BufferLife>& lives() const { return lives_; }
  /// Bytes per category at the moment of the peak.
  const std::map<std::string, int64_t>& peak_by_category() const { return peak_by_category_; }

 private:
  std::vector<BufferLife> lives_;
  std::map<std::string, int64_t> live_by_category_, peak_by_category_;
  int64_t clock_ = 0;
};

/// Offsets of a step's buffers in one slab.
struct MemoryPlan {
  std::vector<int64_t> bytes;    ///< per allocation, in order
  std::vector<int64_t> offsets;  ///< per allocation
  int64_t slab_bytes = 0;
};

/// Deterministic best fit over the recorded lives: in order of birth, each buffer takes the smallest gap that is free
/// for it. slab_bytes >= the peak of live bytes; the surplus is fragmentation.
MemoryPlan plan_memory(const std::vector<BufferLife>& lives);

class PlannedArena final : public Arena {
 public:
  explicit PlannedArena(MemoryPlan plan);
  ~PlannedArena() override;
  PlannedArena(const PlannedArena&) = delete;
  PlannedArena& operator=(const PlannedArena&) = delete;
  Block allocate(int64_t bytes, const char* category) override;
  void release(const Block& block) override;
  /// Starts the sequence again; nothing may be alive.
  void restart();
  /// Allocations so far that were larger than the plan and came from the heap instead.
  int64_t misses() const { return misses_; }
  int64_t slab_bytes() const { return plan_.slab_bytes; }

 private:
  MemoryPlan plan_;
  void* slab_ = nullptr;
  size_t next_ = 0;
  int64_t misses_ = 0;
  HeapArena overflow_;
};

/// What is behind a buffer's addresses.
enum class Backing {
  memory,
  sparse,   ///< zeroed memory that comes page by page when it is first written, and can be given back
  nothing,  ///< address space only, for plans on paper: of any size, on any machine; touching it is a crash
};

/// Owns 64-byte aligned memory that lives longer than a step (weights, states). Zeroed. Large buffers ask for huge
/// pages.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes, Backing backing = Backing::memory);
  ~Buffer();
  Buffer(Buffer&& o) noexcept;
  Buffer& operator=(Buffer&& o) noexcept;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  /// Backing::sparse: gives back the memory of the whole pages within [begin, end); what was there is undefined.
  void discard(int64_t begin, int64_t end);

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Backing backing_ = Backing::memory;
};

}  // namespace ingot
