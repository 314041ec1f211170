// Products of bf16 by Hopper's instructions, by blocks of wgmma_block.h; there is none of them for HIP.
#if !defined(INGOT_ISA_hip)
#include "device/gemm/wgmma_block.h"

namespace ingot::INGOT_ISA {
namespace {

template <Groups kGroups, int kColumns, bool kAlongRowsA, bool kAlongRowsB>
INGOT_KERNEL(kThreads)
wgmma_product_kernel(INGOT_GRID_CONSTANT const WgmmaProduct w) {
  if constexpr (kIsHopper) {
    INGOT_DYNAMIC_SHARED(Ring<kColumns>, ring);
    wgmma_block<kGroups, kColumns, kAlongRowsA, kAlongRowsB>(w, ring);
  } else {
    end_with_error();
  }
}

/// Whether rows of A, or columns of B, lie beside each other, and not their k.
bool a_is_along_rows(const GpuMmaProduct& p) {
  return p.a_k != 1;
}
bool b_is_along_rows(const GpuMmaProduct& p) {
  return p.b_k != 1;
}

/// Tiles of an operand of `extent` rows or columns over `depth` of k.
TiledMatrices tiles_of_operand(const void* first, bool along_rows, int64_t extent, int64_t depth,
                               int64_t stride, int tile) {
  TiledMatrices m{.first = first, .row_stride = stride};
  m.columns = along_rows ? extent : depth, m.rows = along_rows ? depth : extent;
  m.matrix_stride = m.rows * stride, m.tile_rows = along_rows ? kStep : tile;
  return m;
}

template <Groups kGroups, int kColumns, bool kAlongRowsA, bool kAlongRowsB>
void launch_tiles(const char* name, GpuStream stream, const GpuGroupedMmaProduct& g, int64_t tiles,
                  int blocks) {
  const GpuMmaProduct& p = g.product;
  TiledMatrices a = tiles_of_operand(p.a, kAlongRowsA, p.m, p.k, kAlongRowsA ? p.a_k : p.a_row, kRows);
  TiledMatrices b = tiles_of_operand(p.b, kAlongRowsB, p.n, p.k, kAlongRowsB ? p.b_k : p.b_column, kColumns);
  if (kGroups == Groups::rows) b.count = g.groups, b.matrix_stride = g.stride;
  const WgmmaProduct w{tensor_map(a), tensor_map(b), g, tiles};
  launch(name, wgmma_product_kernel<kGroups, kColumns, kAlongRowsA, kAlongRowsB>,
         {tiles < blocks ? tiles : blocks, kThreads, sizeof(Ring<kColumns>)}, stream, w);
}

/// Calls f with the columns of a tile, which follow from those of the product alone.
template <class F>
void with_columns(const GpuMmaProduct& p, F&& f) {
  if (p.n >= 1024)
    f.template operator()<256>();
  else
    f.template operator()<128>();
}

}  // namespace

void launch_wgmma_product(GpuStream stream, const GpuMmaProduct& p, int blocks) {
  with_columns(p, [&]<int kColumns>() {
    const int64_t tiles = tiles_of<kRows>(p.m) * tiles_of<kColumns>(p.n);
    const auto go = [&]<bool kAlongRowsA, bool kAlongRowsB>() {
      launch_tiles<Groups::none, kColumns, kAlongRowsA, kAlongRowsB>("wgmma_product", stream, {p}, tiles,
                                                                     blocks);
    };
    if (a_is_along_rows(p)) return go.template operator()<true, true>();
    if (b_is_along_rows(p)) return go.template operator()<false, true>();
    go.template operator()<false, false>();
  });
}

void launch_grouped_wgmma_rows(GpuStream stream, const GpuGroupedMmaProduct& g, int blocks) {
  with_columns(g.product, [&]<int kColumns>() {
    const int64_t tiles = (g.product.m / kRows + g.groups) * tiles_of<kColumns>(g.product.n);
    const auto go = [&]<bool kAlongRowsB>() {
      launch_tiles<Groups::rows, kColumns, false, kAlongRowsB>("grouped_wgmma_rows", stream, g, tiles,
                                                               blocks);
    };
    if (b_is_along_rows(g.product)) return go.template operator()<true>();
    go.template operator()<false>();
  });
}

void launch_grouped_wgmma_depth(GpuStream stream, const GpuGroupedMmaProduct& g, int blocks) {
  with_columns(g.product, [&]<int kColumns>() {
    const int64_t tiles = g.groups * tiles_of<kRows>(g.product.m) * tiles_of<kColumns>(g.product.n);
    launch_tiles<Groups::depth, kColumns, true, true>("grouped_wgmma_depth", stream, g, tiles, blocks);
  });
}

}  // namespace ingot::INGOT_ISA
#endif
