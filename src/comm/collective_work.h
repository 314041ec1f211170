// What collectives have in common on every backend: the check that the ranks' requests fit together, and the
// sum in rank order (communicator.h).
#pragma once
#include <span>

#include "comm/communicator.h"

namespace ingot {

/// Bytes of one row of the first dimension, and the number of rows; a scalar is one row.
int64_t row_bytes(const Tensor& t);
int64_t row_count(const Tensor& t);

/// Throws Error unless the requests of ranks a and b belong to the same collective. Row counts are not
/// compared.
void check_same(int a, const CommRequest& of_a, int b, const CommRequest& of_b);
/// Throws Error unless the request's shapes and row counts fit a group of this size.
void check_fits(int rank, int size, const CommRequest& request);
/// Throws Error unless what rank a sends to rank b is what b expects.
void check_rows(int a, int64_t sent, int b, int64_t expected);

/// out[i] = sum over r of in[r][i], added in the order of r: f64 and i32 in their own type, f32 and bf16 in
/// fp32 with one rounding at the end. out may be one of the operands. Throws Error for other types.
void sum_in_rank_order(void* out, std::span<const void* const> in, int64_t n, DType dtype);

}  // namespace ingot
