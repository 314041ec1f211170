// How a product is divided into tiles of kTile rows and columns of its output, each the work of a block, and
// products of groups of rows into those of each group; for *.cu.
#pragma once
#include "device/gemm/gpu_product.h"
#include "device/gpu/rt.h"
#include "device/simd/simd.h"

namespace ingot::INGOT_ISA {

template <int kTile>
INGOT_ANYWHERE int64_t tiles_of(int64_t extent) {
  return (extent + kTile - 1) / kTile;
}
template <int kTile, class Product>
INGOT_ANYWHERE int64_t blocks_of(const Product& p) {
  return tiles_of<kTile>(p.m) * tiles_of<kTile>(p.n);
}

/// A product's result from its sum.
template <class Product>
INGOT_INLINE float with_bias(const Product& p, float sum, int64_t column) {
  return p.bias != nullptr ? add_rn(sum, p.bias[column]) : sum;
}

/// Caps and scales a thread's sums, as many at a time as it has lanes of a row.
template <int kCount>
INGOT_INLINE void cap_sums(const GpuMmaProduct& p, float (&sums)[kCount]) {
  static_assert(kCount % kLanesOfThread == 0);
  INGOT_UNROLL
  for (int i = 0; i < kCount; i += kLanesOfThread) {
    const Vec x = capped_and_scaled(p.cap, p.scale, four_floats([&](int j) { return sums[i + j]; }));
    INGOT_UNROLL
    for (int j = 0; j < kLanesOfThread; ++j) sums[i + j] = x.v[j];
  }
}
/// Calls f with the epilogue of a product of which some have one.
template <class F>
void with_epilogue(const GpuMmaProduct& p, F&& f) {
  switch (epilogue_of(p)) {
    case Epilogue::none:
      return f.template operator()<Epilogue::none>();
    case Epilogue::cap:
      return f.template operator()<Epilogue::cap>();
    case Epilogue::activation:
      return f.template operator()<Epilogue::activation>();
  }
}
/// Output (row, column) of a product on tensor cores, from its sum.
template <class C>
INGOT_INLINE float result_of(const GpuMmaProduct& p, const C* c, int64_t row, int64_t column, float sum) {
  const int64_t at = row * p.c_row + column;
  float result = sum;
  if (p.plus != nullptr)
    result = add_rn(mul_rn(p.plus_factor, widened(p.plus[at])), mul_rn(p.factor, result));
  if (p.accumulate) result = add_rn(widened(c[at]), result);
  return with_bias(p, result, column);
}
/// Calls f with C.
template <class F>
INGOT_INLINE void with_result(const GpuMmaProduct& p, F&& f) {
  if (p.c_type == DType::bf16)
    f(static_cast<bf16*>(p.c));
  else
    f(static_cast<float*>(p.c));
}
template <class C>
INGOT_INLINE void put_result(const GpuMmaProduct& p, C* c, int64_t row, int64_t column, float sum) {
  store_one(c + row * p.c_row + column, result_of(p, c, row, column, sum));
}

INGOT_INLINE Vec activated(ActivationFunction function, Vec x) {
  switch (function) {
    case ActivationFunction::gelu:
      return evaluate<ActivationFunction::gelu>({}, x).f;
    case ActivationFunction::gelu_tanh:
      return evaluate<ActivationFunction::gelu_tanh>({}, x).f;
    case ActivationFunction::relu2:
      return evaluate<ActivationFunction::relu2>({}, x).f;
    default:
      return evaluate<ActivationFunction::silu>({}, x).f;
  }
}
/// Which output a sum is of.
struct Output {
  int64_t row, column;
  bool exists;
};
/// Stores the outputs of a thread's sums, number i of which is that of place(i), and what they activate. Four
/// at a time: all together, with what becomes of them, are more than registers hold.
template <int kCount, class Place>
INGOT_INLINE void put_activated(const GpuMmaProduct& p, float (&sums)[kCount], Place&& place) {
  auto* const c = static_cast<bf16*>(p.c);
  INGOT_UNROLL
  for (int i = 0; i < kCount; i += kLanesOfThread) {
    const Vec x = four_floats([&](int j) {
      const Output o = place(i + j);
      if (!o.exists) return 0.0f;
      const bf16 y{bf16_bits(result_of(p, c, o.row, o.column, sums[i + j]))};
      c[o.row * p.c_row + o.column] = y;
      return widened(y);
    });
    const Vec f = activated(p.activation, x);
    INGOT_UNROLL
    for (int j = 0; j < kLanesOfThread; ++j)
      if (const Output o = place(i + j); o.exists)
        store_one(p.activated + o.row * p.c_row + o.column, f.v[j]);
  }
}

/// Of a symmetric product: what is on and below the diagonal, and there it is mirrored.
template <class C>
INGOT_INLINE void put_mirrored(const GpuMmaProduct& p, C* c, int64_t row, int64_t column, float sum) {
  if (column > row) return;
  const float result = result_of(p, c, row, column, sum);
  store_one(c + row * p.c_row + column, result);
  if (column < row) store_one(c + column * p.c_row + row, result);
}

/// The product of the matrices number `e`.
template <class Product>
INGOT_INLINE Product product_of(const GpuBatchedProductOf<Product>& batch, int64_t e) {
  Product p = batch.first;
  advance(p, e * batch.a_stride, e * batch.b_stride, e * batch.c_stride);
  return p;
}

/// How many tiles are on and below the diagonal of so many a side, and row and column of number `column` of
/// them; they are counted row by row.
INGOT_ANYWHERE int64_t tiles_of_triangle(int64_t side) {
  return side * (side + 1) / 2;
}
INGOT_INLINE void find_in_triangle(unsigned& row, unsigned& column) {
  row = 0;
  while (column > row) column -= ++row;
}

/// The group that tile number `tile` of all groups' rows belongs to, -1 for none; `tile` becomes its number
/// there.
template <int kTile, class Product>
INGOT_INLINE int64_t group_of_tile(const GpuGroupedProductOf<Product>& g, int64_t& tile) {
  for (int64_t e = 0; e < g.groups; ++e) {
    const int64_t tiles = tiles_of<kTile>(int64_t{g.offsets[e + 1]} - g.offsets[e]);
    if (tile < tiles) return e;
    tile -= tiles;
  }
  return -1;
}

/// Calls work(product, number of its tile) with that of the block's group. Blocks count the tiles of the
/// first group's rows, of the second's, ...; those beyond the last do nothing.
template <int kTile, class Product, class F>
INGOT_INLINE void block_of_rows(const GpuGroupedProductOf<Product>& g, F&& work) {
  Product p = g.product;
  const int64_t columns = tiles_of<kTile>(p.n);
  int64_t tile = block_index() / columns;
  const int64_t e = group_of_tile<kTile>(g, tile);
  if (e < 0) return;
  const int64_t first = g.offsets[e];
  p.m = g.offsets[e + 1] - first;
  advance(p, first * p.a_row, e * g.stride, first * p.c_row);
  work(p, tile * columns + block_index() % columns);
}
/// How many blocks that takes: a group may leave one tile half empty.
template <int kTile, class Product>
int64_t blocks_of_rows(const GpuGroupedProductOf<Product>& g) {
  return g.product.m > 0 ? (g.product.m / kTile + g.groups) * tiles_of<kTile>(g.product.n) : 0;
}

/// The same of groups along k.
template <int kTile, class Product, class F>
INGOT_INLINE void block_of_depth(const GpuGroupedProductOf<Product>& g, F&& work) {
  Product p = g.product;
  const int64_t blocks = blocks_of<kTile>(p), e = block_index() / blocks, first = g.offsets[e];
  p.k = g.offsets[e + 1] - first;
  advance(p, first * p.a_k, first * p.b_k, e * g.stride);
  work(p, block_index() % blocks);
}
template <int kTile, class Product>
int64_t blocks_of_depth(const GpuGroupedProductOf<Product>& g) {
  return g.groups * blocks_of<kTile>(g.product);
}

}  // namespace ingot::INGOT_ISA
