// assign for a range of rows, compiled once per instruction set.
#include "ops/assign/isa_assign.h"

#include "ops/assign/rows.h"
#include "ops/route/score_block.h"

namespace ingot::INGOT_ISA {
namespace {

/// Blocks of kLanes rows: loaded transposed, changed by f(block, result), stored transposed to the matrix.
template <class F>
INGOT_INLINE void each_scored(const AssignRows& a, int64_t begin, int64_t end, F&& f) {
  each_block(begin, end, [&](int64_t t, int rows) {
    Block l, p;
    load_transposed(l, a.logits + t * a.experts, rows, a.experts);
    f(l, p);
    store_transposed(p, rows, a.experts, [&](int i, int64_t c, Vec v, int count) {
      store_n(a.matrix + (t + i) * a.experts + c, v, count);
    });
  });
}

}  // namespace

void assign_costs(const AssignRows& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) put_costs(a, t);
}

void assign_scores(const AssignRows& a, int64_t begin, int64_t end) {
  each_scored(a, begin, end, [&](const Block& l, Block& p) {
    if (a.sigmoid)
      sigmoids(l, p, a.experts);
    else
      softmax(l, p, a.experts);
  });
}

void sinkhorn_rows(const AssignRows& a, int64_t begin, int64_t end, float* sums) {
  for (int64_t t = begin; t < end; ++t) {
    const float* cost = a.matrix + t * a.experts;
    const float d0 = row_factor(a, cost);
    each_vector(a.experts, [&](int64_t e, int count) {
      store_n(sums + e, fma(load_n(cost + e, count), set1(d0), load_n(sums + e, count)), count);
    });
  }
}

void sinkhorn_choose(const AssignRows& a, int64_t begin, int64_t end) {
  each_block(begin, end, [&](int64_t t, int rows) {
    Block keys, ids;
    load_transposed(keys, a.matrix + t * a.experts, rows, a.experts);
    for (int64_t e = 0; e < a.experts; ++e) keys.set(e, as_float(key_of(keys[e] * set1(a.d1[e]))));
    choose(keys, a.experts, a.k, ids);
    for (int64_t j = 0; j < a.k; ++j) {
      int32_t of_rows[kLanes];
      std::memcpy(of_rows, ids.x + j * kLanes, sizeof(of_rows));
      for (int i = 0; i < rows; ++i) a.ids[(t + i) * a.k + j] = of_rows[i];
    }
  });
}

}  // namespace ingot::INGOT_ISA
