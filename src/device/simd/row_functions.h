// Elementwise work on arrays of f32 or bf16 and sums over rows, for the active instruction set. bf16 is
// widened exactly; arithmetic is fp32 with one rounding on the way out.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "device/simd/isa.h"

namespace ingot {

/// to[i] = from[i], or to[i] + from[i]; f32 and bf16 in any combination. Not for overlapping arrays.
INGOT_ISA_KERNEL(void, array_copy,
                 (void* to, DType to_type, const void* from, DType from_type, int64_t n, bool accumulate));

/// For the rows r = begin .. end, `width` wide: to[r] = or += the sum of from[index[r * k + j]] over j = 0 ..
/// k-1 in order, in fp32; a negative index adds nothing.
struct GatherArgs {
  void* to;
  DType to_type;
  const void* from;
  DType from_type;
  const int32_t* index;
  int64_t k;
  int64_t width;
  bool accumulate;
  bool round = false;  ///< `from` is f32, and is read as its rounding to bf16
};
INGOT_ISA_KERNEL(void, gather_rows, (const GatherArgs& args, int64_t begin, int64_t end));

/// to[j] (+)= the sum over rows of x[r, j], for the columns begin .. end: rows are summed in chunks of
/// `chunk`, counted from the first, and the chunks' sums are added in ascending order.
INGOT_ISA_KERNEL(void, column_sums,
                 (float* to, const void* x, DType type, int64_t rows, int64_t stride, int64_t chunk,
                  int64_t begin, int64_t end, bool accumulate));

}  // namespace ingot
