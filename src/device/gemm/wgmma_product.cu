// Products of bf16 by Hopper's instructions, by blocks of wgmma_block.h; there is none of them for HIP.
#if !defined(INGOT_ISA_hip)
#include <utility>

#include "device/gemm/wgmma_block.h"

namespace ingot::INGOT_ISA {
namespace {

template <class Form>
INGOT_KERNEL(Form::kThreads)
wgmma_product_kernel(INGOT_GRID_CONSTANT const WgmmaProduct w) {
  if constexpr (kIsHopper) {
    INGOT_DYNAMIC_SHARED(Ring<Form>, ring);
    wgmma_block<Form>(w, ring);
  } else {
    end_with_error();
  }
}

/// Matrices of an operand, whose elements are so far apart.
struct Matrices {
  int64_t count = 1, stride = 0;
};

/// Tiles of an operand of `extent` rows or columns over `depth` of k.
TiledMatrices tiles_of_operand(const void* first, bool along_rows, int64_t extent, int64_t depth,
                               int64_t stride, int tile, Matrices matrices) {
  TiledMatrices m{.first = first, .count = matrices.count, .row_stride = stride};
  m.columns = along_rows ? extent : depth, m.rows = along_rows ? depth : extent;
  m.matrix_stride = matrices.count > 1 ? matrices.stride : m.rows * stride;
  m.tile_rows = along_rows ? kStep : tile;
  return m;
}

template <class Form>
void launch_tiles(const char* name, GpuStream stream, const GpuGroupedMmaProduct& g, int64_t tiles,
                  int blocks, Matrices of_a = {}, Matrices of_b = {}) {
  const GpuMmaProduct& p = g.product;
  const TiledMatrices a = tiles_of_operand(p.a, Form::kAAlongRows, p.m, p.k,
                                           Form::kAAlongRows ? p.a_k : p.a_row, Form::kRows, of_a);
  const TiledMatrices b = tiles_of_operand(p.b, Form::kBAlongRows, p.n, p.k,
                                           Form::kBAlongRows ? p.b_k : p.b_column, Form::kColumns, of_b);
  const WgmmaProduct w{tensor_map(a), tensor_map(b), g, tiles};
  launch(name, wgmma_product_kernel<Form>,
         {tiles < blocks ? tiles : blocks, Form::kThreads, sizeof(Ring<Form>)}, stream, w);
}

template <class Form>
int64_t tiles_of_form(const GpuMmaProduct& p) {
  return tiles_of<Form::kRows>(p.m) * tiles_of<Form::kColumns>(p.n);
}

/// Calls f with whether rows of A, and columns of B, lie beside each other, and not their k.
template <class F>
void with_layout(const GpuMmaProduct& p, F&& f) {
  if (p.a_k != 1) return f.template operator()<true, true>();
  if (p.b_k != 1) return f.template operator()<false, true>();
  f.template operator()<false, false>();
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
    with_layout(p, [&]<bool kAlongRowsA, bool kAlongRowsB>() {
      const auto go = [&]<Epilogue kEpilogue>() {
        using Form = WgmmaForm<Groups::none, kColumns, kAlongRowsA, kAlongRowsB, 2, false, kEpilogue>;
        launch_tiles<Form>("wgmma_product", stream, {p}, tiles_of_form<Form>(p), blocks);
      };
      if constexpr (!kAlongRowsA && !kAlongRowsB)
        return with_epilogue(p, go);
      else
        go.template operator()<Epilogue::none>();
    });
  });
}

void launch_few_rows_wgmma_product(GpuStream stream, const GpuMmaProduct& p, int blocks) {
  GpuMmaProduct t = p;  // C^T = B^T A^T
  std::swap(t.m, t.n), std::swap(t.a, t.b);
  std::swap(t.a_row, t.b_column), std::swap(t.a_k, t.b_k);
  const auto go = [&]<bool kAlongRows, Epilogue kEpilogue>() {
    using Form = WgmmaForm<Groups::none, kFewRows, kAlongRows, false, 1, true, kEpilogue>;
    launch_tiles<Form>("few_rows_wgmma_product", stream, {t}, tiles_of_form<Form>(t), blocks);
  };
  if (p.b_k != 1) return go.template operator()<true, Epilogue::none>();
  with_epilogue(p, [&]<Epilogue kEpilogue>() { go.template operator()<false, kEpilogue>(); });
}

void launch_grouped_wgmma_rows(GpuStream stream, const GpuGroupedMmaProduct& g, int blocks) {
  with_columns(g.product, [&]<int kColumns>() {
    const auto go = [&]<bool kAlongRows>() {
      using Form = WgmmaForm<Groups::rows, kColumns, false, kAlongRows>;
      const int64_t tiles = (g.product.m / Form::kRows + g.groups) * tiles_of<kColumns>(g.product.n);
      launch_tiles<Form>("grouped_wgmma_rows", stream, g, tiles, blocks, {}, {g.groups, g.stride});
    };
    if (g.product.b_k != 1) return go.template operator()<true>();
    go.template operator()<false>();
  });
}

void launch_grouped_wgmma_depth(GpuStream stream, const GpuGroupedMmaProduct& g, int blocks) {
  with_columns(g.product, [&]<int kColumns>() {
    using Form = WgmmaForm<Groups::depth, kColumns, true, true>;
    launch_tiles<Form>("grouped_wgmma_depth", stream, g, g.groups * tiles_of_form<Form>(g.product), blocks);
  });
}

void launch_batched_wgmma_product(GpuStream stream, const GpuBatchedMmaProduct& b, int blocks) {
  with_columns(b.first, [&]<int kColumns>() {
    using Form = WgmmaForm<Groups::all, kColumns, false, true>;
    launch_tiles<Form>("batched_wgmma_product", stream, {b.first, nullptr, b.batch, b.c_stride},
                       b.batch * tiles_of_form<Form>(b.first), blocks, {b.batch, b.a_stride},
                       {b.batch, b.b_stride});
  });
}

void launch_symmetric_wgmma_product(GpuStream stream, const GpuBatchedMmaProduct& b, int blocks) {
  const auto go = [&]<bool kAlongRows>() {
    using Form = WgmmaForm<Groups::triangles, 128, kAlongRows, kAlongRows>;
    launch_tiles<Form>("symmetric_wgmma_product", stream, {b.first, nullptr, b.batch, b.c_stride},
                       b.batch * tiles_of_triangle(tiles_of<Form::kRows>(b.first.m)), blocks,
                       {b.batch, b.a_stride}, {b.batch, b.b_stride});
  };
  if (b.first.a_k != 1) return go.template operator()<true>();
  go.template operator()<false>();
}

}  // namespace ingot::INGOT_ISA
#endif
