// add_norm for a range of rows, compiled once per instruction set.
#include "ops/add_norm/isa_add_norm.h"

#include "ops/add_norm/rows.h"

namespace ingot::INGOT_ISA {

void add_norm_forward(const AddNormRows& p, int64_t begin, int64_t end) {
  with_types(p, [&]<MergeKind M, class Y, class H>() { forward_rows<M, Y, H>(p, begin, end); });
}

void add_norm_backward(const AddNormRows& p, int64_t begin, int64_t end, const AddNormSums& sums) {
  with_types(p, [&]<MergeKind M, class Y, class H>() { backward_rows<true, M, Y, H>(p, begin, end, sums); });
}

}  // namespace ingot::INGOT_ISA
