// What kernels for Hopper (sm_90a) use of it beside rt.h: copies of tiles (TMA), barriers in shared memory
// that count threads and bytes (mbarrier), and products of a warpgroup (wgmma), as "Parallel Thread Execution
// ISA" describes them, sections "cp.async.bulk.tensor", "mbarrier" and "Asynchronous warpgroup level matrix
// instructions". For *.cu, of CUDA and of the emulator (emulated_hopper.h).
//
//   INGOT_DYNAMIC_SHARED(Type, name)       memory of the block as the launch says (GpuGrid::shared_bytes),
//                                          at a multiple of 1,024 bytes
//   kIsHopper                              whether the code is compiled for sm_90a
//   end_with_error()                       what a kernel does where it is not
//   tensor_map(matrices)                   host code: what load_tile() reads
//
//   begin_barrier(b, arrivals)             by one thread, then publish_barriers() and sync_threads()
//   expect_bytes(b, bytes)                 arrives, and adds bytes that must have come before its phase ends
//   arrive(b)
//   await_phase(b, parity)                 until the phase of this parity (0 first) has ended
//   load_tile(to, map, b, column, row, matrix)
//                                          a tile comes to shared memory, at a multiple of 1,024 bytes, its
//                                          rows of 128 bytes behind each other; then b has its bytes
//
// A warpgroup is 128 threads from a multiple of 128 on, all of which come to what follows:
//   take_registers<N>(), leave_registers<N>()   raises, or lowers, to N what each of its threads may use
//   operand_along_k(tile)                  16 of k of a tile whose rows are rows of A, or columns of B
//   operand_along_rows(tile, bytes)        16 of k of tiles whose columns are rows of A, or columns of B: the
//                                          next 64 are in the tile that lies so many bytes on
//   behind(operand, bytes)                 the operand that lies so many bytes on
//   begin_products(sums)                   before the first product, and after sums were touched
//   add_product<kAlongRowsA, kAlongRowsB>(sums, a, b)
//                                          64 rows by kColumns columns over 16 of k, added to sums later
//   commit_products()                      those since the last commit are a group
//   await_products<N>(sums)                until all groups but the last N are in sums
//   row_of_product(i), column_of_product(i)     which of the 64 rows and of the columns sums[i] is
//
//   clear_16_bytes(to)                     of shared memory; then publish_stores() before products read it
//   meet_first<kThreads>()                 the first so many threads of the block
#pragma once
#include "device/gpu/rt.h"
#include "device/gpu/tensor_map.h"

namespace ingot::INGOT_ISA {

constexpr int kWarpThreads = 32, kWarpgroupThreads = 128;
constexpr int kWarpgroupRows = 64, kWarpgroupDepth = 16;  ///< of a product
/// Rows of 128 bytes over which swizzling repeats: eight of them.
constexpr int kSwizzleBytes = 8 * kTileRowBytes;

/// Counts of what a phase of a barrier still waits for.
struct Barrier {
  uint64_t bits;
};
/// Where an operand lies in shared memory, and how: a matrix descriptor of wgmma.
struct WarpgroupOperand {
  uint64_t bits;
};

INGOT_INLINE int row_of_product(int i) {
  const int thread = static_cast<int>(thread_index()) % kWarpgroupThreads;
  return thread / kWarpThreads * 16 + thread % kWarpThreads / 4 + (i & 2) * 4;
}
INGOT_INLINE int column_of_product(int i) {
  return i / 4 * 8 + static_cast<int>(thread_index()) % 4 * 2 + i % 2;
}

/// A descriptor (PTX, "Matrix descriptor format") of an operand whose swizzle is of 128 bytes.
INGOT_INLINE WarpgroupOperand operand_at(uint32_t address, uint32_t leading_bytes) {
  return {uint64_t{(address & 0x3FFFFu) >> 4} | uint64_t{leading_bytes >> 4} << 16 |
          uint64_t{kSwizzleBytes >> 4} << 32 | uint64_t{1} << 62};
}
INGOT_INLINE WarpgroupOperand behind(WarpgroupOperand operand, int bytes) {
  return {operand.bits + static_cast<uint64_t>(bytes >> 4)};
}

}  // namespace ingot::INGOT_ISA

#if defined(INGOT_ISA_emulated)
#include "device/gpu/hopper_emulated.h"
#elif !defined(INGOT_ISA_hip)
#include "device/gpu/hopper_cuda.h"
#endif

#if !defined(INGOT_ISA_hip)
namespace ingot::INGOT_ISA {

INGOT_INLINE WarpgroupOperand operand_along_k(const void* tile) {
  return operand_at(shared_address(tile), 16);  // one span of 128 bytes: the leading stride is not looked at
}
INGOT_INLINE WarpgroupOperand operand_along_rows(const void* tile, int bytes) {
  return operand_at(shared_address(tile), static_cast<uint32_t>(bytes));
}

}  // namespace ingot::INGOT_ISA
#endif
