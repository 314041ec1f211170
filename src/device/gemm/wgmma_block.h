// One block's work on products of bf16 by wgmma, on Hopper: 128 rows by kColumns columns of outputs at a
// time, of which two warpgroups have 64 rows each. A third one asks for the tiles of A and B, 64 of k at a
// time, that come to a ring of stages in shared memory while products of earlier stages run. Blocks take one
// tile of outputs after another. Each output has one accumulator, which takes every k in instructions of 16,
// from 0: no split of k, whatever the shape. For *.cu of CUDA and the emulator.
#pragma once
#include "device/gemm/product_tiles.h"
#include "device/gpu/hopper.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

constexpr int kRows = 128, kStep = kTileColumns, kConsumers = kRows / kWarpgroupRows;
constexpr int kConsumerThreads = kConsumers * kWarpgroupThreads,
              kThreads = kConsumerThreads + kWarpgroupThreads;
constexpr int kConsumerWarps = kConsumerThreads / kWarpThreads;
constexpr int kDepthBytes = kWarpgroupDepth * 2;  ///< of a row along k
/// Of a tile of 64 rows or columns over a step of k, whichever of them lie beside each other.
constexpr int kTileBytes = kStep * kTileRowBytes;
/// Tiles of rows that go through all columns together: blocks beside each other read the same of A and B.
constexpr int64_t kBand = 8;
/// Together they are what a multiprocessor has (PTX, setmaxnreg).
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

/// What groups divide: nothing, the rows of A and C, or k.
enum class Groups { none, rows, depth };

struct WgmmaProduct {
  TensorMap a, b;
  GpuGroupedMmaProduct of;  ///< without groups its product alone
  int64_t tiles = 0;        ///< there may be fewer where rows are grouped
};

template <int kColumns>
struct Ring {
  static constexpr int kStages = kColumns == 256 ? 4 : 6;
  struct Stage {
    alignas(kSwizzleBytes) uint16_t a[kRows * kStep];
    alignas(kSwizzleBytes) uint16_t b[kColumns * kStep];
  };
  Stage stage[kStages];
  Barrier full[kStages], empty[kStages];
};

/// Which stage comes next, and how often the ring was gone through, as a parity.
template <int kStages>
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;

  INGOT_INLINE void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// A tile of outputs: rows from `row` to before `end`, columns from `column` on, of a group whose k begins at
/// `first` and are `depth`.
struct OutputTile {
  int64_t row = 0, end = 0, column = 0, group = 0, first = 0, depth = 0;
};

/// Tile number `number`; false: there are no more.
template <Groups kGroups, int kColumns>
INGOT_INLINE bool find_tile(const WgmmaProduct& w, int64_t number, OutputTile& t) {
  const GpuMmaProduct& p = w.of.product;
  const int64_t columns = tiles_of<kColumns>(p.n);
  t.end = p.m, t.depth = p.k;
  if constexpr (kGroups == Groups::rows) {
    int64_t row = number / columns;
    t.group = group_of_tile<kRows>(w.of, row);
    if (t.group < 0) return false;
    t.row = w.of.offsets[t.group] + row * kRows;
    t.end = w.of.offsets[t.group + 1];
    t.column = number % columns * kColumns;
  } else {
    const int64_t rows = tiles_of<kRows>(p.m);
    if constexpr (kGroups == Groups::depth) {
      t.group = number / (rows * columns), number %= rows * columns;
      t.first = w.of.offsets[t.group];
      t.depth = w.of.offsets[t.group + 1] - t.first;
    }
    const int64_t band = number / (kBand * columns) * kBand, within = number % (kBand * columns);
    const int64_t height = rows - band < kBand ? rows - band : kBand;
    t.row = (band + within % height) * kRows;
    t.column = within / height * kColumns;
  }
  return true;
}

/// Asks for kExtent rows or columns of an operand over the step of k.
template <bool kAlongRows, int kExtent>
INGOT_INLINE void load_operand(uint16_t* to, const TensorMap& map, Barrier& full, int64_t first, int64_t k,
                               int64_t matrix) {
  if constexpr (kAlongRows)
    for (int i = 0; i < kExtent; i += kTileColumns)
      load_tile(to + i * kStep, map, full, first + i, k, matrix);
  else
    load_tile(to, map, full, k, first, matrix);
}

/// The work of one thread: keeps the ring full.
template <Groups kGroups, int kColumns, bool kAlongRowsA, bool kAlongRowsB>
INGOT_INLINE void produce(const WgmmaProduct& w, Ring<kColumns>& ring) {
  RingPlace<Ring<kColumns>::kStages> at;
  OutputTile t;
  for (int64_t number = block_index(); number < w.tiles; number += grid_size()) {
    if (!find_tile<kGroups, kColumns>(w, number, t)) return;
    const int64_t matrix = kGroups == Groups::rows ? t.group : 0;
    for (int64_t k = 0; k < t.depth; k += kStep, at.advance()) {
      Barrier& full = ring.full[at.stage];
      await_phase(ring.empty[at.stage], at.parity ^ 1);
      expect_bytes(full, sizeof(ring.stage[0]));
      load_operand<kAlongRowsA, kRows>(ring.stage[at.stage].a, w.a, full, t.row, t.first + k, 0);
      load_operand<kAlongRowsB, kColumns>(ring.stage[at.stage].b, w.b, full, t.column, t.first + k, matrix);
    }
  }
}

/// Of operands whose rows of 128 bytes are k: those from `begin` on belong to the next group, and become 0.
INGOT_INLINE void clear_depth(uint16_t* operand, int extent, int begin) {
  constexpr int kChunks = kTileRowBytes / 16;
  const int count = (kStep - begin) * kChunks;
  for (int i = static_cast<int>(thread_index()); i < extent / kTileColumns * count; i += kConsumerThreads)
    clear_16_bytes(operand + i / count * (kTileBytes / 2) + (begin * kChunks + i % count) * 8);
}

/// 64 rows of A over 16 of k, from `k` of the step on; `part`: which rows.
template <bool kAlongRows>
INGOT_INLINE WarpgroupOperand operand_of_rows(const uint16_t* tile, int part, int k) {
  if constexpr (kAlongRows)
    return behind(operand_along_rows(tile, kTileBytes), part * kTileBytes + k * kTileRowBytes);
  else
    return behind(operand_along_k(tile), part * kTileBytes + k / kWarpgroupDepth * kDepthBytes);
}

/// From sums to results; rows that do not exist are of the next group, or nobody's.
template <class C, int kColumns>
INGOT_INLINE void put_results(const GpuMmaProduct& p, const OutputTile& t, C* c,
                              const float (&sums)[kColumns / 2]) {
  const int64_t first_row = t.row + static_cast<int>(thread_index()) / kWarpgroupThreads * kWarpgroupRows;
  INGOT_UNROLL
  for (int i = 0; i < kColumns / 2; ++i) {
    const int64_t row = first_row + row_of_product(i), column = t.column + column_of_product(i);
    if (row >= t.end || column >= p.n) continue;
    C& to = c[row * p.c_row + column];
    float result = sums[i];
    if (p.accumulate) result = add_rn(widened(to), result);
    store_one(&to, with_bias(p, result, column));
  }
}

/// The work of two warpgroups: products of what is in the ring.
template <Groups kGroups, int kColumns, bool kAlongRowsA, bool kAlongRowsB>
INGOT_INLINE void consume(const WgmmaProduct& w, Ring<kColumns>& ring, int part) {
  const auto release = [&](int stage) {
    if (thread_index() % kWarpThreads == 0) arrive(ring.empty[stage]);
  };
  RingPlace<Ring<kColumns>::kStages> at;
  OutputTile t;
  for (int64_t number = block_index(); number < w.tiles; number += grid_size()) {
    if (!find_tile<kGroups, kColumns>(w, number, t)) return;
    float sums[kColumns / 2];
    INGOT_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) sums[i] = 0.0f;
    int before = -1;  // the stage whose products may still run
    for (int64_t k = 0; k < t.depth; k += kStep, at.advance()) {
      auto& stage = ring.stage[at.stage];
      await_phase(ring.full[at.stage], at.parity);
      if constexpr (kGroups == Groups::depth)
        if (const int64_t left = t.depth - k; left < kStep) {
          clear_depth(stage.a, kRows, static_cast<int>(left));
          clear_depth(stage.b, kColumns, static_cast<int>(left));
          publish_stores();
          meet_first<kConsumerThreads>();
        }
      begin_products(sums);
      INGOT_UNROLL
      for (int i = 0; i < kStep; i += kWarpgroupDepth)
        add_product<kAlongRowsA, kAlongRowsB>(sums, operand_of_rows<kAlongRowsA>(stage.a, part, i),
                                              operand_of_rows<kAlongRowsB>(stage.b, 0, i));
      commit_products();
      await_products<1>(sums);
      if (before >= 0) release(before);
      before = at.stage;
    }
    await_products<0>(sums);
    if (before >= 0) release(before);
    GpuMmaProduct p = w.of.product;
    if constexpr (kGroups == Groups::depth) advance(p, 0, 0, t.group * w.of.stride);
    if (p.c_type == DType::bf16)
      put_results<bf16, kColumns>(p, t, static_cast<bf16*>(p.c), sums);
    else
      put_results<float, kColumns>(p, t, static_cast<float*>(p.c), sums);
  }
}

/// All of a block's tiles; every thread of the block comes here.
template <Groups kGroups, int kColumns, bool kAlongRowsA, bool kAlongRowsB>
INGOT_INLINE void wgmma_block(const WgmmaProduct& w, Ring<kColumns>& ring) {
  if (thread_index() == 0) {
    for (int i = 0; i < Ring<kColumns>::kStages; ++i) {
      begin_barrier(ring.full[i], 1);
      begin_barrier(ring.empty[i], kConsumerWarps);
    }
    publish_barriers();
  }
  sync_threads();
  const int warpgroup = uniform_over_warp(static_cast<int>(thread_index()) / kWarpgroupThreads);
  if (warpgroup == kConsumers) {
    leave_registers<kProducerRegisters>();
    if (thread_index() == kConsumerThreads) produce<kGroups, kColumns, kAlongRowsA, kAlongRowsB>(w, ring);
  } else {
    take_registers<kConsumerRegisters>();
    consume<kGroups, kColumns, kAlongRowsA, kAlongRowsB>(w, ring, warpgroup);
  }
}

}  // namespace ingot::INGOT_ISA
