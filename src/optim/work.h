// Cutting tensors into chunks for parallel_for. The cuts depend on sizes only, so partial sums combined in
// chunk order are the same for any number of threads.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "optim/kernels.h"
#include "optim/param.h"

namespace ingot {

/// Elements [begin, begin + count) of tensor number `tensor`.
struct Chunk {
  int64_t tensor;
  int64_t begin;
  int64_t count;
};

/// All chunks of tensors with these element counts, in order; an empty tensor has none.
inline std::vector<Chunk> chunks_of(const std::vector<int64_t>& counts) {
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < counts.size(); ++t)
    for (int64_t begin = 0; begin < counts[t]; begin += kOptimChunk)
      chunks.push_back({static_cast<int64_t>(t), begin, std::min(kOptimChunk, counts[t] - begin)});
  return chunks;
}

/// Element `index` of a compute copy; null stays null.
inline void* at(void* compute, DType dtype, int64_t index) {
  return compute ? static_cast<char*>(compute) + index * size_of(dtype) : nullptr;
}

/// Elements from `first` on of a moment, for a kernel. The key is that of Random(seed, rounding, stream).
inline StoredPart part_of(const StoredValues& m, int64_t first) {
  StoredPart p;
  p.data = at(m.data, dtype_of(m.storage), first);
  p.is_bf16 = m.storage != ValueStorage::f32;
  p.stochastic = m.storage == ValueStorage::bf16_stochastic;
  p.first = m.first + first;
  constexpr auto kPurpose = static_cast<uint32_t>(RandomPurpose::rounding);
  p.key0 = static_cast<uint32_t>(m.seed) ^ (kPurpose * 0x85EBCA6Bu);
  p.key1 = static_cast<uint32_t>(m.seed >> 32) + kPurpose;
  p.stream_low = static_cast<uint32_t>(m.stream);
  p.stream_high = static_cast<uint32_t>(m.stream >> 32);
  return p;
}

/// Chunk sums added per tensor, in order, as RMS values.
inline std::vector<UpdateStat> combine(const std::vector<Chunk>& chunks, const std::vector<UpdateSums>& sums,
                                       const std::vector<int64_t>& counts) {
  std::vector<UpdateStat> stats(counts.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    UpdateStat& s = stats[static_cast<size_t>(chunks[i].tensor)];
    s.update_rms += static_cast<double>(sums[i].update_sq);
    s.weight_rms += static_cast<double>(sums[i].weight_sq);
  }
  for (size_t t = 0; t < counts.size(); ++t) {
    const double n = static_cast<double>(std::max<int64_t>(counts[t], 1));
    stats[t] = {std::sqrt(stats[t].update_rms / n), std::sqrt(stats[t].weight_rms / n)};
  }
  return stats;
}

}  // namespace ingot
