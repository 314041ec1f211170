// What kernels of an update on a GPU share: a block of threads a chunk, each thread every 256th element, so
// that neighbours read beside each other; and the chunk's sums in the CPU's 16 lanes. For *.cu.
#pragma once
#include "device/gpu/rt.h"
#include "optim/gpu_optim.h"

namespace ingot::INGOT_ISA {

constexpr int kChunkThreads = 256;
constexpr unsigned kSumLanes = 16;

/// Of `count` elements: where the chunk ends that begins there.
INGOT_INLINE int64_t end_of_chunk(int64_t begin, int64_t count) {
  return begin + kOptimChunk < count ? begin + kOptimChunk : count;
}

/// Elements [begin, end) of matrix number `of`, as the work of a block: chunks of all come in order.
struct BlockChunk {
  int64_t of, begin, end;
};
/// Where each has `count` elements.
INGOT_INLINE BlockChunk chunk_of_block(int64_t count) {
  const int64_t chunks = (count + kOptimChunk - 1) / kOptimChunk,
                begin = block_index() % chunks * kOptimChunk;
  return {block_index() / chunks, begin, end_of_chunk(begin, count)};
}
inline int64_t blocks_of(int64_t batch, int64_t count) {
  return batch * ((count + kOptimChunk - 1) / kOptimChunk);
}

/// Which tensor of a list has a chunk, and its first element there.
struct ChunkOfTensor {
  int64_t tensor, begin;
};
/// The last tensor that begins at or before the chunk has it: an empty one begins where the next does.
INGOT_INLINE ChunkOfTensor chunk_of_tensors(const GpuTensors& of, int64_t chunk) {
  int64_t low = 0, high = of.tensors;  // first[low] <= chunk < first[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (of.first[middle] <= chunk ? low : high) = middle;
  }
  return {low, (chunk - of.first[low]) * kOptimChunk};
}

/// The tree of sum_lanes() (kernel_parts.h); all 16 threads know the result.
INGOT_INLINE float sum_of_lanes(float x) {
  INGOT_UNROLL
  for (unsigned apart = kSumLanes / 2; apart > 0; apart /= 2) x = x + shuffle_xor<kSumLanes>(x, apart);
  return x;
}

/// A weight before and after an update.
struct Changed {
  float before, after;
};
/// Squares of the elements that a block is at: of the updates, and of the new weights.
struct ChunkSquares {
  float of[2][kChunkThreads];
};

/// update(i), a Changed, of each element of [begin, end), and UpdateSums. Every thread of the block comes
/// here. 256 elements at a time are updated by all threads and then added by 32, one a lane and sum.
template <class Update>
INGOT_INLINE void update_chunk(int64_t begin, int64_t end, ChunkSquares& squares, UpdateSums* to,
                               Update&& update) {
  const unsigned thread = thread_index(), lane = thread % kSumLanes, which = thread / kSumLanes;
  float sum = 0;
  for (int64_t first = begin; first < end; first += kChunkThreads) {
    if (first + thread < end) {
      const Changed w = update(first + thread);
      const float d = w.after - w.before;
      squares.of[0][thread] = d * d;
      squares.of[1][thread] = w.after * w.after;
    }
    sync_threads();
    for (unsigned i = lane; which < 2 && i < kChunkThreads && first + i < end; i += kSumLanes)
      sum += squares.of[which][i];
    sync_threads();
  }
  if (which >= 2) return;
  sum = sum_of_lanes(sum);
  if (lane == 0) (which == 0 ? to->update_sq : to->weight_sq) = sum;
}

}  // namespace ingot::INGOT_ISA
