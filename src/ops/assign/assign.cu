// assign on a GPU. Sinkhorn: the first rounds are launches of a block per chunk of 64 rows and of one block
// that adds the chunks up; launches after the last round return at once. One block does what rounds are then
// left. Expert choice: a block per expert, which looks at its row of the turned scores.
#include "device/gpu/block_select.h"
#include "device/gpu/ordered_sum.h"
#include "device/simd/row_kernels.h"
#include "ops/assign/gpu_assign.h"
#include "ops/assign/rows.h"
#include "ops/route/gpu_candidates.h"
#include "ops/route/gpu_softmax.h"
#include "ops/route/keys.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kChunkRows = 64, kChunkThreads = kChunkRows * kThreadsOfRow, kLaunchedRounds = 32;
static_assert(kChunkThreads <= kMostTermThreads);

struct RowFactors {
  float x[kChunkRows];
};

/// Costs, and what the first round begins with.
INGOT_KERNEL(kRowKernelThreads)
begin_kernel(const GpuSinkhorn a) {
  const int64_t i = global_thread();
  if (i < a.rows.experts) a.d1[i] = 1.0f;
  if (i < 2) a.state[i] = 0;
  if (row_of_thread() < a.rows.rows) put_costs(a.rows, row_of_thread());
}

/// The sums of a chunk's rows, by the block: each in ascending order of rows.
INGOT_INLINE void add_chunk(const GpuSinkhorn& a, RowFactors& factors, int64_t chunk) {
  const int64_t experts = a.rows.experts, begin = chunk * kChunkRows,
                count = min64(kChunkRows, a.rows.rows - begin), i = thread_index() / kThreadsOfRow;
  const float* cost = a.rows.matrix + begin * experts;
  if (i < count) {
    const float d0 = row_factor(a.rows, cost + i * experts);
    if (writes_scalars()) factors.x[i] = d0;
  }
  sync_threads();
  for (int64_t e = thread_index(); e < experts; e += kChunkThreads) {
    float sum = 0;
    for (int64_t r = 0; r < count; ++r) sum = fma_rn(cost[r * experts + e], factors.x[r], sum);
    a.partials[chunk * experts + e] = sum;
  }
}
INGOT_INLINE int64_t chunks_of(const GpuSinkhorn& a) {
  return (a.rows.rows + kChunkRows - 1) / kChunkRows;
}

/// New d1 from the chunks' sums, by the block; thread 0 writes the state.
INGOT_INLINE void end_round(const GpuSinkhorn& a, Terms& terms) {
  const int64_t experts = a.rows.experts, chunks = chunks_of(a);
  const double change = ordered_sum(terms, experts, [&](int64_t e) {
    float sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum = add_rn(sum, a.partials[c * experts + e]);
    const float next = div_rn(1.0f, mul_rn(static_cast<float>(experts), add_rn(sum, a.epsilon))),
                before = a.d1[e];
    a.d1[e] = next;
    const double difference = static_cast<double>(next) - static_cast<double>(before);
    return difference < 0 ? -difference : difference;
  });
  if (thread_index() != 0) return;
  const bool goes_on = change / static_cast<double>(experts) >= a.tolerance;
  a.state[0] += 1, a.state[1] = goes_on && a.state[0] < a.most_rounds ? 0 : 1;
}

INGOT_KERNEL(kChunkThreads)
rows_kernel(const GpuSinkhorn a) {
  INGOT_SHARED(RowFactors, factors);
  if (a.state[1] == 0) add_chunk(a, factors, block_index());
}

/// One block.
INGOT_KERNEL(kChunkThreads)
columns_kernel(const GpuSinkhorn a) {
  INGOT_SHARED(Terms, terms);
  INGOT_SHARED(int32_t, has_ended);
  if (thread_index() == 0) has_ended = a.state[1];
  sync_threads();
  if (has_ended == 0) end_round(a, terms);
}

/// One block: all rounds that are left.
INGOT_KERNEL(kChunkThreads)
rest_kernel(const GpuSinkhorn a) {
  INGOT_SHARED(RowFactors, factors);
  INGOT_SHARED(Terms, terms);
  INGOT_SHARED(int32_t, has_ended);
  for (;;) {
    if (thread_index() == 0) has_ended = a.state[1];
    sync_threads();
    if (has_ended != 0) return;
    for (int64_t chunk = 0; chunk < chunks_of(a); ++chunk) {
      add_chunk(a, factors, chunk);
      sync_threads();
    }
    end_round(a, terms);
    sync_threads();
  }
}

INGOT_KERNEL(kRowKernelThreads)
choose_kernel(const AssignRows a) {
  const int64_t t = row_of_thread();
  if (t >= a.rows) return;
  const float* cost = a.matrix + t * a.experts;
  each_chosen(
      a.experts, a.k, [](int32_t) { return true; },
      [&](int64_t e, int n) { return key_of(load_n(cost + e, n) * load_n(a.d1 + e, n)); },
      [&](int64_t at, int32_t e) { a.ids[t * a.k + at] = e; });
}

/// Turned: rows that lie beside each other are the work of threads that do.
INGOT_KERNEL(kRowKernelThreads)
scores_kernel(const AssignRows a) {
  const int64_t t = row_of_thread();
  if (t >= a.rows) return;
  const float* l = a.logits + t * a.experts;
  const Softmax row = a.sigmoid ? Softmax{0, 1} : softmax_of(l, a.experts);
  each_vector(a.experts, [&](int64_t e, int n) {
    const Vec x = load_n(l + e, n), score = a.sigmoid ? vsigmoid(x) : probability(row, x);
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q)
      if (first_lane() + q < n) a.matrix[(e + first_lane() + q) * a.rows + t] = score.v[q];
  });
}

INGOT_KERNEL(kCountThreads)
take_kernel(const AssignRows a, int64_t taken) {
  INGOT_SHARED(BlockCounts, counts);
  const auto expert = static_cast<int32_t>(block_index());
  const auto takes_part = [](int64_t) { return true; };
  const auto key = [&](int64_t t) { return descending_key(a.matrix[expert * a.rows + t]); };
  each_judged(counts, a.rows, last_kept(counts, a.rows, taken, takes_part, key), takes_part, key,
              [&](int64_t t, bool is_kept) { a.ids[t * a.experts + expert] = is_kept ? expert : -1; });
}

}  // namespace

void launch_sinkhorn(GpuStream stream, const GpuSinkhorn& a) {
  const int64_t own = a.rows.experts > 2 ? a.rows.experts : 2, threads = a.rows.rows * kThreadsOfRow;
  const int64_t chunks = (a.rows.rows + kChunkRows - 1) / kChunkRows;
  launch("sinkhorn_begin", begin_kernel, grid_of(threads > own ? threads : own, kRowKernelThreads), stream,
         a);
  for (int i = 0; i < kLaunchedRounds; ++i) {
    launch("sinkhorn_rows", rows_kernel, {chunks, kChunkThreads}, stream, a);
    launch("sinkhorn_columns", columns_kernel, {1, kChunkThreads}, stream, a);
  }
  launch("sinkhorn_rest", rest_kernel, {1, kChunkThreads}, stream, a);
  launch("sinkhorn_choose", choose_kernel, grid_of_rows(a.rows.rows), stream, a.rows);
}

void launch_expert_choice(GpuStream stream, const AssignRows& a, int64_t taken) {
  launch("expert_scores", scores_kernel, grid_of_rows(a.rows), stream, a);
  launch("expert_choice", take_kernel, {a.experts, kCountThreads}, stream, a, taken);
}

}  // namespace ingot::INGOT_ISA
