// embedding: y[t] = table[ids[t]].
//
// Shapes: ids_T (i32, 0 <= id < V), table_VD (any float type) -> y_TD (attr.out, usually the stream's type).
// An id outside [0, V) is an Error that names its position; with attr.absent, -1 gives a row of zeros without
// gradient. The table's gradient sums the cotangents of equal ids in token order, so it does not depend on
// threads; rows that no token names get zero.
#pragma once
#include "tape/tape.h"

namespace ingot {

struct EmbeddingAttr {
  DType out = DType::f32;
  bool absent = false;  ///< -1 is legal

  bool legal(int32_t id, int64_t vocabulary) const { return id < vocabulary && id >= (absent ? -1 : 0); }
};

Value embedding(Tape& tape, const EmbeddingAttr& attr, const Value& ids_T, const Value& table_VD);
inline Value embedding(Tape& tape, DType out, const Value& ids_T, const Value& table_VD) {
  return embedding(tape, EmbeddingAttr{out}, ids_T, table_VD);
}

const Op& embedding_op();
Kernel embedding_reference();

}  // namespace ingot
