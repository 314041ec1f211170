// low_rank: y = base + s (h B^T), block by block: the second half of a low-rank adapter (LoRA, Hu et al.
// 2021) on a product whose output is packed (q | k | v, gate | up).
//
// Shapes: base_TN, h_TR, b_NK (any float types) -> y_TN (attr.out). N is divided into `blocks` of rows[0],
// rows[1], ... columns, and R = blocks K; block i reads columns i K .. (i + 1) K - 1 of h and its own rows of
// b. An f32 output is one fp32 FMA chain over (s h) b that starts from base; for bf16 the chain starts from
// 0, is added to base and rounded once. Backward: d_base = d_y, d_h = s (d_y B), d_b = s (d_y^T h), one chain
// over tokens, which a schedule may defer.
#pragma once
#include <array>
#include <span>

#include "tape/tape.h"

namespace ingot {

struct LowRankAttr {
  static constexpr int kMaxBlocks = 8;
  double scale = 1;
  DType out = DType::f32;
  int32_t blocks = 1;
  std::array<int64_t, kMaxBlocks> rows = {};  ///< of b, per block
};

Value low_rank(Tape& tape, DType out, double scale, std::span<const int64_t> rows, const Value& base_TN,
               const Value& h_TR, const Value& b_NK);

const Op& low_rank_op();
Kernel low_rank_reference();

// What the kernels use.
/// Calls body(block, first row of b, rows) for each block.
template <class Body>
void each_low_rank_block(const LowRankAttr& a, Body&& body) {
  int64_t row = 0;
  for (int32_t i = 0; i < a.blocks; ++i) {
    body(i, row, a.rows[static_cast<size_t>(i)]);
    row += a.rows[static_cast<size_t>(i)];
  }
}

}  // namespace ingot
