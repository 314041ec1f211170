// Gradient norm, what it decides, AdamW, AdEMAMix and the sizes of updates on a GPU.
#include "optim/adamw_element.h"
#include "optim/gpu_chunk.h"
#include "optim/gpu_optim.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kThreads = 128;

/// Sums of squares are of 16 threads a chunk, each one of the 16 lanes in which the CPU's kernels add.
INGOT_INLINE int64_t chunk_of_thread() {
  return global_thread() / kSumLanes;
}
INGOT_INLINE int64_t lane_of_thread() {
  return thread_index() % kSumLanes;
}

struct Doubles {
  double x[kThreads];
};

INGOT_KERNEL(kThreads)
sum_squares_kernel(const GpuSumSquares a) {
  INGOT_SHARED(Doubles, lanes);
  const int64_t chunk = chunk_of_thread();
  double own = 0;
  if (chunk < a.chunks) {
    const ChunkOfTensor c = chunk_of_tensors(a.of, chunk);
    const GpuSumSquares::Values values = a.tensors != nullptr ? a.tensors[c.tensor] : a.equal;
    const float* const x = values.x + (a.tensors != nullptr ? 0 : c.tensor * values.count);
    const int64_t end = end_of_chunk(c.begin, values.count);
    for (int64_t i = c.begin + lane_of_thread(); i < end; i += kSumLanes) {
      const double value = x[i];
      own += value * value;
    }
  }
  lanes.x[thread_index()] = own;
  sync_threads();
  if (lane_of_thread() != 0 || chunk >= a.chunks) return;
  double* const t = lanes.x + thread_index();
  for (unsigned width = kSumLanes / 2; width > 0; width /= 2)
    for (unsigned l = 0; l < width; ++l) t[l] += t[l + width];
  a.partial[chunk] = t[0];
}

INGOT_KERNEL(kThreads)
sums_of_tensors_kernel(const GpuSumSquares a) {
  const int64_t t = global_thread();
  if (t >= a.of.tensors) return;
  double sum = 0;
  for (int64_t c = a.of.first[t]; c < a.of.first[t + 1]; ++c) sum += a.partial[c];
  a.sums[t] = sum;
}

INGOT_INLINE bool is_finite(double x) {
  return x - x == 0;
}

/// One thread: tensors are few, and their sums are added in order.
INGOT_KERNEL(1)
decision_kernel(const GpuDecision a) {
  const StepScalars scalars = *a.scalars;
  double total = 0;
  bool finite = is_finite(*a.loss);
  for (int64_t t = 0; t < a.tensors; ++t) {
    total += a.sum_squares[t];
    finite = finite && is_finite(a.sum_squares[t]);
  }
  const double norm = sqrt_rn(total) * (scalars.grad_scale < 0 ? -scalars.grad_scale : scalars.grad_scale);
  const double clipped = a.max_norm / (norm + 1e-6);
  const double by_norm = a.max_norm > 0 && clipped < 1.0 ? clipped : 1.0;
  a.decision->made = finite ? 1 : 0;
  a.decision->factor = scalars.grad_scale * (scalars.clip_factor > 0 ? scalars.clip_factor : by_norm);
}

INGOT_INLINE AdamWFactors factors_of(const GpuAdamW& a, const GpuAdamWTensor& t) {
  const AdamWNumbers n = *a.numbers;
  const double lr = a.rates[t.index];
  return {static_cast<float>(a.decision->factor),
          decay_factor(lr, t.weight_decay),
          static_cast<float>(1.0 - a.beta1),
          static_cast<float>(a.beta2),
          static_cast<float>(1.0 - a.beta2),
          static_cast<float>(n.inv_sqrt_correction2),
          static_cast<float>(a.eps),
          static_cast<float>(lr / n.correction1),
          static_cast<float>(n.one_minus_beta3),
          static_cast<float>(n.alpha)};
}

template <bool mixing>
INGOT_INLINE void adamw_chunk_of_block(const AdamWFactors& factors, const GpuAdamWTensor& t,
                                       const ChunkOfTensor& c, ChunkSquares& squares, UpdateSums* sums) {
  update_chunk(c.begin, end_of_chunk(c.begin, t.count), squares, sums, [&](int64_t i) {
    const float before = t.weights[i];
    const float after = adamw_element<mixing>(factors, t.grad[i], before, t.exp_avg[i], t.exp_avg_sq[i],
                                              t.exp_avg_slow + (mixing ? i : 0));
    t.weights[i] = after;
    return Changed{before, after};
  });
}

INGOT_KERNEL(kChunkThreads)
adamw_kernel(const GpuAdamW a) {
  INGOT_SHARED(ChunkSquares, squares);
  if (a.decision->made == 0) return;
  const ChunkOfTensor c = chunk_of_tensors(a.of, block_index());
  const GpuAdamWTensor t = a.tensors[c.tensor];
  const AdamWFactors factors = factors_of(a, t);
  if (t.exp_avg_slow != nullptr)
    adamw_chunk_of_block<true>(factors, t, c, squares, a.sums + block_index());
  else
    adamw_chunk_of_block<false>(factors, t, c, squares, a.sums + block_index());
}

/// Chunks of a block of weights whose sums are added at a time.
struct SumsOfChunks {
  float of[2][kThreads];
};

/// A block a tensor: threads 0 and 1 add what the others load, in order.
INGOT_KERNEL(kThreads)
stats_kernel(const GpuUpdateStats a) {
  INGOT_SHARED(SumsOfChunks, part);
  const int64_t t = block_index(), end = a.first_block != nullptr ? a.first_block[t + 1] : t + 1;
  const unsigned thread = thread_index();
  double total = 0;
  for (int64_t b = a.first_block != nullptr ? a.first_block[t] : t; b < end; ++b) {
    double sum = 0;
    for (int64_t first = a.first_chunk[b]; first < a.first_chunk[b + 1]; first += kThreads) {
      const int64_t left = a.first_chunk[b + 1] - first, count = left < kThreads ? left : kThreads;
      if (thread < count) {
        part.of[0][thread] = a.sums[first + thread].update_sq;
        part.of[1][thread] = a.sums[first + thread].weight_sq;
      }
      sync_threads();
      for (int64_t c = 0; thread < 2 && c < count; ++c) sum += static_cast<double>(part.of[thread][c]);
      sync_threads();
    }
    total += sum;
  }
  const double n = static_cast<double>(a.counts[t] > 1 ? a.counts[t] : 1);
  if (thread < 2) {
    GpuUpdateStat& to = a.stats[a.indices[t]];
    (thread == 0 ? to.update_rms : to.weight_rms) = sqrt_rn(total / n);
  }
}

GpuGrid grid_of_chunks(int64_t chunks) {
  return grid_of(chunks * kSumLanes, kThreads);
}

}  // namespace

void launch_sum_squares(GpuStream stream, const GpuSumSquares& args) {
  launch("sum_squares", sum_squares_kernel, grid_of_chunks(args.chunks), stream, args);
  launch("sums_of_tensors", sums_of_tensors_kernel, grid_of(args.of.tensors, kThreads), stream, args);
}

void launch_decision(GpuStream stream, const GpuDecision& args) {
  launch("decision", decision_kernel, {1, 1}, stream, args);
}

void launch_adamw(GpuStream stream, const GpuAdamW& args) {
  launch("adamw", adamw_kernel, {args.chunks, kChunkThreads}, stream, args);
}

void launch_update_stats(GpuStream stream, const GpuUpdateStats& args) {
  launch("update_stats", stats_kernel, {args.tensors, kThreads}, stream, args);
}

}  // namespace ingot::INGOT_ISA
