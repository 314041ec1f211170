// One block's work on products of bf16 by wgmma, on Hopper: 128 rows by 128 or 256 columns of outputs at a
// time, of which two warpgroups have 64 rows each; for few rows 64 columns by 16 rows, of one warpgroup. A
// last warpgroup asks for the tiles of A and B, 64 of k at a time, that come to a ring of stages in shared
// memory while products of earlier stages run. Blocks take one tile of outputs after another. Each output has
// one accumulator, which takes every k in instructions of 16, from 0: no split of k, whatever the shape. For
// *.cu of CUDA and the emulator.
#pragma once
#include "device/gemm/product_tiles.h"
#include "device/gpu/hopper.h"

namespace ingot::INGOT_ISA {

constexpr int kStep = kTileColumns;
constexpr int kDepthBytes = kWarpgroupDepth * 2;  ///< of a row along k
/// Of a tile of 64 rows or columns over a step of k, whichever of them lie beside each other.
constexpr int kTileBytes = kStep * kTileRowBytes;
/// Tiles of rows that go through all columns together: blocks beside each other read the same of A and B.
constexpr int64_t kBand = 8;
/// Where two warpgroups multiply, what a multiprocessor has together (PTX, setmaxnreg).
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

/// What groups divide: nothing, the rows of A and C, k, or all (they are matrices of their own); and of
/// symmetric matrices what is on and below the diagonal.
enum class Groups { none, rows, depth, all, triangles };

/// What a kernel of wgmma is for.
template <Groups kItsGroups, int kItsColumns, bool kItsAAlongRows, bool kItsBAlongRows, int kItsConsumers = 2,
          bool kIsTransposed = false, Epilogue kItsEpilogue = Epilogue::none>
struct WgmmaForm {
  static constexpr Groups kGroups = kItsGroups;
  /// Each has matrices of its own.
  static constexpr bool kHasMatrices = kGroups == Groups::all || kGroups == Groups::triangles;
  /// Whether rows of A, or columns of B, lie beside each other, and not their k.
  static constexpr bool kAAlongRows = kItsAAlongRows, kBAlongRows = kItsBAlongRows;
  /// Its rows are columns of C, and its columns rows.
  static constexpr bool kTransposed = kIsTransposed;
  static constexpr Epilogue kEpilogue = kItsEpilogue;
  /// Warpgroups that multiply, of 64 rows of a tile each.
  static constexpr int kConsumers = kItsConsumers;
  static constexpr int kRows = kConsumers * kWarpgroupRows, kColumns = kItsColumns;  ///< of a tile
  static constexpr int kConsumerThreads = kConsumers * kWarpgroupThreads,
                       kThreads = kConsumerThreads + kWarpgroupThreads;
  static constexpr int kStages = kColumns == 256 ? 4 : kColumns == 128 ? 6 : 16;
};

struct WgmmaProduct {
  TensorMap a, b;
  GpuGroupedMmaProduct of;  ///< without groups its product alone; of matrices C's are `stride` apart
  int64_t tiles = 0;        ///< there may be fewer where rows are grouped
};

template <class Form>
struct Ring {
  struct Stage {
    alignas(kSwizzleBytes) uint16_t a[Form::kRows * kStep];
    alignas(kSwizzleBytes) uint16_t b[Form::kColumns * kStep];
  };
  Stage stage[Form::kStages];
  Barrier full[Form::kStages], empty[Form::kStages];
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
template <class Form>
INGOT_INLINE bool find_tile(const WgmmaProduct& w, int64_t number, OutputTile& t) {
  constexpr int kRows = Form::kRows, kColumns = Form::kColumns;
  const GpuMmaProduct& p = w.of.product;
  const int64_t columns = tiles_of<kColumns>(p.n);
  t.end = p.m, t.depth = p.k;
  if constexpr (Form::kGroups == Groups::rows) {
    int64_t row = number / columns;
    t.group = group_of_tile<kRows>(w.of, row);
    if (t.group < 0) return false;
    t.row = w.of.offsets[t.group] + row * kRows;
    t.end = w.of.offsets[t.group + 1];
    t.column = number % columns * kColumns;
  } else if constexpr (Form::kGroups == Groups::triangles) {
    static_assert(kRows == kColumns);
    const int64_t triangle = tiles_of_triangle(columns);
    unsigned row, column = static_cast<unsigned>(number % triangle);
    find_in_triangle(row, column);
    t.group = number / triangle;
    t.row = int64_t{row} * kRows, t.column = int64_t{column} * kColumns;
  } else {
    const int64_t rows = tiles_of<kRows>(p.m);
    if constexpr (Form::kGroups != Groups::none)
      t.group = number / (rows * columns), number %= rows * columns;
    if constexpr (Form::kGroups == Groups::depth) {
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
template <class Form>
INGOT_INLINE void produce(const WgmmaProduct& w, Ring<Form>& ring) {
  RingPlace<Form::kStages> at;
  OutputTile t;
  for (int64_t number = block_index(); number < w.tiles; number += grid_size()) {
    if (!find_tile<Form>(w, number, t)) return;
    const int64_t matrix_a = Form::kHasMatrices ? t.group : 0,
                  matrix_b = Form::kHasMatrices || Form::kGroups == Groups::rows ? t.group : 0;
    for (int64_t k = 0; k < t.depth; k += kStep, at.advance()) {
      Barrier& full = ring.full[at.stage];
      await_phase(ring.empty[at.stage], at.parity ^ 1);
      expect_bytes(full, sizeof(ring.stage[0]));
      load_operand<Form::kAAlongRows, Form::kRows>(ring.stage[at.stage].a, w.a, full, t.row, t.first + k,
                                                   matrix_a);
      load_operand<Form::kBAlongRows, Form::kColumns>(ring.stage[at.stage].b, w.b, full, t.column,
                                                      t.first + k, matrix_b);
    }
  }
}

/// Of operands whose rows of 128 bytes are k: those from `begin` on belong to the next group, and become 0.
template <int kThreads>
INGOT_INLINE void clear_depth(uint16_t* operand, int extent, int begin) {
  constexpr int kChunks = kTileRowBytes / 16;
  const int count = (kStep - begin) * kChunks;
  for (int i = static_cast<int>(thread_index()); i < extent / kTileColumns * count; i += kThreads)
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

/// Where sum number i of the thread's in a tile belongs; a row that does not exist is of the next group, or
/// nobody's.
INGOT_INLINE Output output_of(const GpuMmaProduct& p, const OutputTile& t, int i) {
  const int64_t first_row = t.row + static_cast<int>(thread_index()) / kWarpgroupThreads * kWarpgroupRows;
  const int64_t row = first_row + row_of_product(i), column = t.column + column_of_product(i);
  return {row, column, row < t.end && column < p.n};
}
/// put(row, column, sum) for each of them.
template <int kCount, class F>
INGOT_INLINE void for_sums(const GpuMmaProduct& p, const OutputTile& t, const float (&sums)[kCount],
                           F&& put) {
  INGOT_UNROLL
  for (int i = 0; i < kCount; ++i)
    if (const Output o = output_of(p, t, i); o.exists) put(o.row, o.column, sums[i]);
}
template <class Form, int kCount>
INGOT_INLINE void put_results(const GpuMmaProduct& p, const OutputTile& t, float (&sums)[kCount]) {
  if constexpr (Form::kEpilogue == Epilogue::activation)
    return put_activated(p, sums, [&](int i) -> Output {
      const Output o = output_of(p, t, i);
      return Form::kTransposed ? Output{o.column, o.row, o.exists} : o;
    });
  with_result(p, [&](auto* c) {
    for_sums(p, t, sums, [&](int64_t row, int64_t column, float sum) {
      if constexpr (Form::kGroups == Groups::triangles)
        put_mirrored(p, c, row, column, sum);
      else if constexpr (Form::kTransposed)
        put_result(p, c, column, row, sum);
      else
        put_result(p, c, row, column, sum);
    });
  });
}

/// The work of the warpgroups that multiply what is in the ring; `part`: which of them.
template <class Form>
INGOT_INLINE void consume(const WgmmaProduct& w, Ring<Form>& ring, int part) {
  constexpr int kCount = Form::kColumns * kWarpgroupRows / kWarpgroupThreads;
  const auto release = [&](int stage) {
    if (thread_index() % kWarpThreads == 0) arrive(ring.empty[stage]);
  };
  RingPlace<Form::kStages> at;
  OutputTile t;
  for (int64_t number = block_index(); number < w.tiles; number += grid_size()) {
    if (!find_tile<Form>(w, number, t)) return;
    float sums[kCount];
    INGOT_UNROLL
    for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
    int before = -1;  // the stage whose products may still run
    for (int64_t k = 0; k < t.depth; k += kStep, at.advance()) {
      auto& stage = ring.stage[at.stage];
      await_phase(ring.full[at.stage], at.parity);
      if constexpr (Form::kGroups == Groups::depth)
        if (const int64_t left = t.depth - k; left < kStep) {
          clear_depth<Form::kConsumerThreads>(stage.a, Form::kRows, static_cast<int>(left));
          clear_depth<Form::kConsumerThreads>(stage.b, Form::kColumns, static_cast<int>(left));
          publish_stores();
          meet_first<Form::kConsumerThreads>();
        }
      begin_products(sums);
      INGOT_UNROLL
      for (int i = 0; i < kStep; i += kWarpgroupDepth)
        add_product<Form::kAAlongRows, Form::kBAlongRows>(
            sums, operand_of_rows<Form::kAAlongRows>(stage.a, part, i),
            operand_of_rows<Form::kBAlongRows>(stage.b, 0, i));
      commit_products();
      await_products<1>(sums);
      if (before >= 0) release(before);
      before = at.stage;
    }
    await_products<0>(sums);
    if (before >= 0) release(before);
    GpuMmaProduct p = w.of.product;
    if constexpr (Form::kGroups == Groups::depth || Form::kHasMatrices)
      advance(p, 0, 0, t.group * w.of.stride);
    if constexpr (Form::kEpilogue == Epilogue::cap) cap_sums(p, sums);
    put_results<Form>(p, t, sums);
  }
}

/// All of a block's tiles; every thread of the block comes here.
template <class Form>
INGOT_INLINE void wgmma_block(const WgmmaProduct& w, Ring<Form>& ring) {
  constexpr bool kMovesRegisters = Form::kConsumers == 2;
  if (thread_index() == 0) {
    for (int i = 0; i < Form::kStages; ++i) {
      begin_barrier(ring.full[i], 1);
      begin_barrier(ring.empty[i], Form::kConsumerThreads / kWarpThreads);
    }
    publish_barriers();
  }
  sync_threads();
  const int warpgroup = uniform_over_warp(static_cast<int>(thread_index()) / kWarpgroupThreads);
  if (warpgroup == Form::kConsumers) {
    if constexpr (kMovesRegisters) leave_registers<kProducerRegisters>();
    if (thread_index() == Form::kConsumerThreads) produce<Form>(w, ring);
  } else {
    if constexpr (kMovesRegisters) take_registers<kConsumerRegisters>();
    consume<Form>(w, ring, warpgroup);
  }
}

}  // namespace ingot::INGOT_ISA
