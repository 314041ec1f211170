// shard_index, shard_rows: what a rank needs of an integer column that all ranks of an axis have. Neither has
// a gradient.
//
//   shard_index  ids of a vocabulary of which this rank holds rows first .. first + count - 1, as ids of
//                those rows:
//                y = x - first where first <= x < first + count;  `elsewhere` for other ids;  -1 stays -1
//                x_T (i32) -> y_T (i32)
//   shard_rows   y = x[first .. first + count - 1];   x_T (i32) -> y (i32 [count])
#pragma once
#include "tape/tape.h"

namespace ingot {

struct ShardIndexAttr {
  int32_t first = 0, count = 0;
  int32_t elsewhere = -1;
};

Value shard_index(Tape& tape, const ShardIndexAttr& attr, const Value& x_T);

struct ShardRowsAttr {
  int64_t first = 0, count = 0;
};

Value shard_rows(Tape& tape, const ShardRowsAttr& attr, const Value& x_T);

const Op& shard_index_op();
const Op& shard_rows_op();

}  // namespace ingot
