// embedding: y[t] = table[ids[t]].
//
// Shapes: ids_T (i32, 0 <= id < V), table_VD (any float type) -> y_TD (attr.out, usually the stream's type).
// An id outside [0, V) is an Error that names the position. The table's gradient sums the cotangents of equal ids in
// token order, so it does not depend on threads; rows without a token get zero.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct EmbeddingAttr {
  DType out = DType::f32;
};

Value embedding(Tape& tape, DType out, const Value& ids_T, const Value& table_VD);

const Op& embedding_op();

}  // namespace ingot
