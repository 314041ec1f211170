// What Hopper does with shared memory by itself, for the emulator: tiles that are copied, barriers that count
// threads and bytes, and products of a warpgroup (hopper.h). Copies arrive late, in an order that the seed
// decides; a product is computed when its group is awaited, or as soon as all threads have asked for it. So
// memory that is read or used again too early, and a wrong parity, number of bytes or of arrivals, show as
// other results, as a deadlock or as an InternalError that names the line. What an operand's descriptor says
// is looked up in memory as the hardware does, swizzled.
#pragma once
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "device/gpu/tensor_map.h"

namespace ingot::emulator {

/// The map of a tensor; an InternalError where TMA would not take it.
TensorMap tensor_map(const TiledMatrices& matrices);

/// The block's dynamic shared memory, NaN when the block first asks for it, and where in it something lies.
void* dynamic_memory(size_t bytes);
uint32_t address_in_dynamic_memory(const void* at);

void begin_barrier(void* barrier, unsigned arrivals, const std::source_location& where);
void publish_barriers();
/// Arrives at a barrier, of which one more `bytes` are expected.
void arrive(void* barrier, int64_t bytes, const std::source_location& where);
void await_phase(void* barrier, unsigned parity, const std::source_location& where);

/// The tile whose first element is (matrix, row, column).
struct TileCopy {
  void* to;
  const TensorMap& map;
  void* barrier;
  int64_t column, row, matrix;
};
void load_tile(const TileCopy& copy, const std::source_location& where);

/// Of 64 rows by `columns` columns over 16 of k; operands as wgmma's descriptors.
struct WarpgroupProduct {
  uint64_t a, b;
  int columns;
  bool along_rows_a, along_rows_b;
  bool operator==(const WarpgroupProduct&) const = default;
};
void begin_products();
/// The thread's sums become theirs plus its part of the product: for each one chain of fma over ascending k.
void add_product(const WarpgroupProduct& product, float* sums, const std::source_location& where);
void commit_products(const std::source_location& where);
void await_products(size_t groups, const std::source_location& where);

/// The thread has stored to shared memory, which products see only after publish_stores().
void note_store();
void publish_stores();
/// Meets the first so many threads of the block, a power of two.
void meet_first(unsigned threads, const std::source_location& where);

}  // namespace ingot::emulator
