// See emulated_hopper.h.
#include "device/gpu/emulated_hopper.h"

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "device/gpu/emulator.h"

namespace ingot::emulator {
namespace {

constexpr unsigned kWarpgroupThreads = 128;
constexpr int kRows = 64, kDepth = 16, kMostColumns = 256;
constexpr size_t kMostDynamicBytes = 227 * 1024;  ///< of a block on Hopper
constexpr size_t kPatternBytes = 1024;            ///< over which swizzling repeats

struct BarrierState {
  unsigned arrivals = 0, left = 0;
  int64_t bytes = 0;  ///< that are expected and have not come
  uint64_t phase = 0;
  unsigned owner = 0;  ///< the thread that made it
  bool is_published = false;
};

struct Asked {
  WarpgroupProduct product;
  std::array<float*, kWarpgroupThreads> sums{};
  unsigned threads = 0;
};

/// Products of a warpgroup in the order in which it asks for them; all before `computed` are in their sums.
struct Warpgroup {
  std::vector<Asked> asked;
  size_t computed = 0;
};

struct ThreadState {
  size_t asked = 0;
  std::vector<size_t> committed;  ///< how many products were asked for by each commit
  bool has_begun = false, has_stored = false;
};

struct Block {
  std::unique_ptr<std::byte[]> memory;
  std::byte* base = nullptr;  ///< a multiple of kPatternBytes
  size_t bytes = 0;
  std::map<const void*, BarrierState> barriers;
  std::map<unsigned, ThreadState> threads;
  std::map<unsigned, Warpgroup> warpgroups;
};

Block& block() {
  std::shared_ptr<void>& own = of_block();
  if (own == nullptr) own = std::make_shared<Block>();
  return *static_cast<Block*>(own.get());
}
ThreadState& thread() {
  return block().threads[here().thread];
}

/// Of 16 bytes in eight rows of 128 bytes, the row's number turns the place in the row.
size_t swizzled(size_t address) {
  return address ^ (address >> 7 & 7) << 4;
}

BarrierState& state_of(void* barrier, const std::source_location& where) {
  const auto found = block().barriers.find(barrier);
  if (found == block().barriers.end()) fail("a barrier that no thread has begun", where);
  if (!found->second.is_published && found->second.owner != here().thread)
    fail("a barrier that was begun and not published", where);
  return found->second;
}

void end_phase_if_over(BarrierState& b) {
  if (b.left > 0 || b.bytes != 0) return;
  ++b.phase;
  b.left = b.arrivals;
  happened();
}

/// Element (row, k) of an operand, whose row is a column of B.
class OperandInMemory {
 public:
  OperandInMemory(uint64_t descriptor, bool along_rows, const std::source_location& where)
      : start_((descriptor & 0x3FFF) << 4),
        leading_((descriptor >> 16 & 0x3FFF) << 4),
        stride_((descriptor >> 32 & 0x3FFF) << 4),
        along_rows_(along_rows),
        where_(where) {
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
      fail("an operand that is not swizzled by 128 bytes", where);
  }
  float at(size_t row, size_t k) const {
    const size_t fast = along_rows_ ? row : k, slow = along_rows_ ? k : row;
    const size_t address = swizzled(start_ + fast / 64 * leading_ + fast % 64 * 2 + slow / 8 * stride_ +
                                    slow % 8 * kTileRowBytes);
    if (address + 2 > block().bytes) fail("an operand beyond the end of shared memory", where_);
    bf16 x;
    std::memcpy(&x, block().base + address, sizeof(x));
    return to_float(x);
  }

 private:
  size_t start_, leading_, stride_;
  bool along_rows_;
  const std::source_location& where_;
};

/// The operands and sums of a product.
struct ProductTile {
  std::array<std::array<float, kDepth>, kRows> a;
  std::array<std::array<float, kMostColumns>, kDepth> b;
  std::array<std::array<float, kMostColumns>, kRows> sums;
};
inline __attribute__((always_inline)) void add_rows(ProductTile& t, size_t columns) {
  for (size_t row = 0; row < kRows; ++row)
    for (size_t k = 0; k < kDepth; ++k)
      for (size_t column = 0; column < columns; ++column)
        t.sums[row][column] = std::fma(t.a[row][k], t.b[k][column], t.sums[row][column]);
}
/// Many times as fast where the processor has the instruction.
__attribute__((target("avx2,fma"))) void add_rows_by_fma(ProductTile& t, size_t columns) {
  add_rows(t, columns);
}

void compute(const Asked& asked, const std::source_location& where) {
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static thread_local ProductTile tile;
  const WarpgroupProduct& p = asked.product;
  const auto columns = static_cast<size_t>(p.columns);
  const OperandInMemory of_a(p.a, p.along_rows_a, where), of_b(p.b, p.along_rows_b, where);
  for (size_t k = 0; k < kDepth; ++k) {
    for (size_t row = 0; row < kRows; ++row) tile.a[row][k] = of_a.at(row, k);
    for (size_t column = 0; column < columns; ++column) tile.b[k][column] = of_b.at(column, k);
  }
  const auto for_sums = [&](auto&& work) {
    for (size_t t = 0; t < kWarpgroupThreads; ++t)
      for (size_t i = 0; i < columns / 2; ++i)
        work(asked.sums[t][i],
             tile.sums[t / 32 * 16 + t % 32 / 4 + (i & 2) * 4][i / 4 * 8 + t % 4 * 2 + i % 2]);
  };
  for_sums([](float of_thread, float& sum) { sum = of_thread; });
  has_fma ? add_rows_by_fma(tile, columns) : add_rows(tile, columns);
  for_sums([](float& of_thread, float sum) { of_thread = sum; });
}

/// Computes those that all threads have asked for, up to the one of that number.
void compute_until(Warpgroup& group, size_t end, const std::source_location& where) {
  for (; group.computed < end && group.asked[group.computed].threads == kWarpgroupThreads; ++group.computed)
    compute(group.asked[group.computed], where);
}

unsigned own_warpgroup() {
  return here().thread / kWarpgroupThreads;
}

}  // namespace

TensorMap tensor_map(const TiledMatrices& m) {
  INGOT_CHECK(reinterpret_cast<uintptr_t>(m.first) % 16 == 0 && m.row_stride % 8 == 0 &&
                  m.matrix_stride % 8 == 0 && m.row_stride >= m.columns && m.rows > 0 && m.columns > 0 &&
                  m.count > 0 && m.tile_rows > 0 && m.tile_rows <= 256,
              "tiles of {} matrices of {} rows, {} apart, by {} columns, {} apart, are not TMA's", m.count,
              m.rows, m.row_stride, m.columns, m.matrix_stride);
  TensorMap map{};
  static_assert(sizeof(m) <= sizeof(map));
  std::memcpy(map.words, &m, sizeof(m));
  return map;
}

void* dynamic_memory(size_t bytes) {
  Block& b = block();
  if (b.base == nullptr) {
    INGOT_CHECK(bytes <= kMostDynamicBytes, "{} bytes of shared memory, a block has {}", bytes,
                kMostDynamicBytes);
    b.memory = std::make_unique<std::byte[]>(bytes + kPatternBytes);
    const auto address = reinterpret_cast<uintptr_t>(b.memory.get());
    b.base = b.memory.get() + (kPatternBytes - address % kPatternBytes) % kPatternBytes;
    b.bytes = bytes;
    std::memset(b.base, 0xff, bytes);
  }
  return b.base;
}

uint32_t address_in_dynamic_memory(const void* at) {
  return static_cast<uint32_t>(static_cast<const std::byte*>(at) - block().base);
}

void begin_barrier(void* barrier, unsigned arrivals, const std::source_location& where) {
  const auto [at, is_new] = block().barriers.try_emplace(barrier);
  if (!is_new) fail("a barrier is begun twice", where);
  at->second.arrivals = at->second.left = arrivals;
  at->second.owner = here().thread;
}

void publish_barriers() {
  for (auto& [memory, state] : block().barriers)
    if (state.owner == here().thread) state.is_published = true;
}

void arrive(void* barrier, int64_t bytes, const std::source_location& where) {
  if (thread().has_stored) fail("arrives with stores that were not published", where);
  BarrierState& b = state_of(barrier, where);
  if (b.left == 0) fail("more threads arrive than the barrier waits for", where);
  --b.left;
  b.bytes += bytes;
  end_phase_if_over(b);
}

void await_phase(void* barrier, unsigned parity, const std::source_location& where) {
  const BarrierState& b = state_of(barrier, where);
  wait_until([&] { return (b.phase & 1) != parity; }, where);
}

void load_tile(const TileCopy& copy, const std::source_location& where) {
  Block& b = block();
  state_of(copy.barrier, where);
  TiledMatrices m;
  std::memcpy(&m, copy.map.words, sizeof(m));
  const auto begin = static_cast<size_t>(address_in_dynamic_memory(copy.to));
  const auto bytes = static_cast<size_t>(m.tile_rows) * kTileRowBytes;
  if (begin % kPatternBytes != 0) fail("a tile that does not lie at a multiple of 1,024 bytes", where);
  if (begin + bytes > b.bytes) fail("a tile beyond the end of shared memory", where);
  later([&b, m, begin, bytes, barrier = copy.barrier, column = copy.column, row = copy.row,
         matrix = copy.matrix] {
    const auto is_in = [](int64_t i, int64_t extent) { return i >= 0 && i < extent; };
    for (int64_t r = 0; r < m.tile_rows; ++r)
      for (int64_t c = 0; c < kTileColumns; ++c) {
        bf16 x{};
        if (is_in(matrix, m.count) && is_in(row + r, m.rows) && is_in(column + c, m.columns))
          x = static_cast<const bf16*>(
              m.first)[matrix * m.matrix_stride + (row + r) * m.row_stride + column + c];
        const size_t address = swizzled(begin + static_cast<size_t>(r * kTileRowBytes + c * 2));
        std::memcpy(b.base + address, &x, sizeof(x));
      }
    BarrierState& state = b.barriers[barrier];
    state.bytes -= static_cast<int64_t>(bytes);
    end_phase_if_over(state);
  });
}

void begin_products() {
  thread().has_begun = true;
}

void add_product(const WarpgroupProduct& product, float* sums, const std::source_location& where) {
  ThreadState& own = thread();
  if (!own.has_begun) fail("a product before begin_products()", where);
  Warpgroup& group = block().warpgroups[own_warpgroup()];
  const size_t number = own.asked++;
  if (number == group.asked.size()) group.asked.push_back({.product = product});
  Asked& asked = group.asked[number];
  if (asked.product != product) fail("threads of a warpgroup ask for different products", where);
  asked.sums[here().thread % kWarpgroupThreads] = sums;
  if (++asked.threads < kWarpgroupThreads) return;
  happened();
  if (random() % 2 == 0) compute_until(group, number + 1, where);
}

void commit_products(const std::source_location& where) {
  ThreadState& own = thread();
  if (!own.has_begun) fail("a commit before begin_products()", where);
  own.committed.push_back(own.asked);
  own.has_begun = false;
}

void await_products(size_t groups, const std::source_location& where) {
  const ThreadState& own = thread();
  if (own.committed.size() <= groups) return;
  const size_t end = own.committed[own.committed.size() - 1 - groups];
  Warpgroup& group = block().warpgroups[own_warpgroup()];
  wait_until(
      [&] {
        return group.computed >= end ||
               (group.asked.size() >= end && group.asked[end - 1].threads == kWarpgroupThreads);
      },
      where);
  compute_until(group, end, where);
}

void note_store() {
  thread().has_stored = true;
}
void publish_stores() {
  thread().has_stored = false;
}

void meet_first(unsigned threads, const std::source_location& where) {
  if (thread().has_stored) fail("meets others with stores that were not published", where);
  if (here().thread >= threads) fail("is not among the first threads", where);
  together(
      nullptr, threads, [](void* const*, unsigned) {}, where);
}

}  // namespace ingot::emulator
