// Muon's element-wise passes on a GPU: a block of threads a chunk.
#include "optim/gpu_chunk.h"
#include "optim/gpu_muon.h"
#include "optim/muon_element.h"

namespace ingot::INGOT_ISA {
namespace {

INGOT_KERNEL(kChunkThreads)
momentum_kernel(const GpuMomentum a) {
  if (a.of.decision->made == 0) return;
  const float grad_scale = static_cast<float>(a.of.decision->factor), beta = static_cast<float>(*a.momentum),
              grad_weight = static_cast<float>(a.lerp ? 1.0 - *a.momentum : 1.0);
  const BlockChunk c = chunk_of_block(a.of.count);
  const GpuMuonMatrix& matrix = a.of.matrices[c.of];
  float* const momentum = matrix.momentum;
  float* const input = a.of.values + c.of * a.of.count;
  for (int64_t i = c.begin + thread_index(); i < c.end; i += kChunkThreads) {
    const float grad = matrix.grad[i];
    if (momentum == nullptr)
      input[i] = grad * grad_scale;
    else if (a.nesterov)
      input[i] = momentum_element<true>(grad, grad_scale, beta, grad_weight, momentum[i]);
    else
      input[i] = momentum_element<false>(grad, grad_scale, beta, grad_weight, momentum[i]);
  }
}

template <class T>
INGOT_KERNEL(kChunkThreads)
normalise_kernel(const GpuNormalise a) {
  const BlockChunk c = chunk_of_block(a.count);
  const float factor = static_cast<float>(1.0 / (a.norm_factor * sqrt_rn(a.sum_squares[c.of]) + a.eps));
  const int64_t matrix = c.of * a.count;
  for (int64_t i = c.begin + thread_index(); i < c.end; i += kChunkThreads)
    store_one(static_cast<T*>(a.to) + matrix + i, factor * a.from[matrix + i]);
}

INGOT_KERNEL(kChunkThreads)
apply_kernel(const GpuMuonBatch a) {
  INGOT_SHARED(ChunkSquares, squares);
  if (a.decision->made == 0) return;
  const BlockChunk c = chunk_of_block(a.count);
  const GpuMuonMatrix& matrix = a.matrices[c.of];
  const double lr = a.rates[matrix.index];
  const float decay = decay_factor(lr, matrix.weight_decay),
              step_size = static_cast<float>(lr * matrix.scale);
  float* const weights = matrix.weights;
  const float* const update = a.values + c.of * a.count;
  update_chunk(c.begin, c.end, squares, a.sums + matrix.first + c.begin / kOptimChunk, [&](int64_t i) {
    const float before = weights[i];
    const float after = applied_element(before, update[i], decay, step_size);
    weights[i] = after;
    return Changed{before, after};
  });
}

}  // namespace

void launch_momentum(GpuStream stream, const GpuMomentum& args) {
  launch("momentum", momentum_kernel, {blocks_of(args.of.batch, args.of.count), kChunkThreads}, stream, args);
}

void launch_normalise(GpuStream stream, const GpuNormalise& args) {
  const GpuGrid grid{blocks_of(args.batch, args.count), kChunkThreads};
  if (args.to_type == DType::bf16)
    launch("normalise", normalise_kernel<bf16>, grid, stream, args);
  else
    launch("normalise", normalise_kernel<float>, grid, stream, args);
}

void launch_apply(GpuStream stream, const GpuMuonBatch& args) {
  launch("apply", apply_kernel, {blocks_of(args.batch, args.count), kChunkThreads}, stream, args);
}

}  // namespace ingot::INGOT_ISA
