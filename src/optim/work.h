// Cutting tensors into chunks for parallel_for. The cuts depend on sizes only, so partial sums combined in
// chunk order are the same for any number of threads.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
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

/// All chunks of some tensors, in order; an empty tensor has none.
struct TensorChunks {
  std::vector<int64_t> counts;  ///< elements of each tensor
  std::vector<Chunk> list;
  std::vector<int64_t> first;  ///< tensor t has the chunks first[t] .. first[t + 1] of the list
  int64_t size() const { return static_cast<int64_t>(list.size()); }
  const Chunk& operator[](int64_t i) const { return list[static_cast<size_t>(i)]; }
};

/// The chunks of tensors with these element counts.
inline TensorChunks chunks_of(std::vector<int64_t> counts) {
  TensorChunks chunks{std::move(counts), {}, {0}};
  for (size_t t = 0; t < chunks.counts.size(); ++t) {
    const int64_t count = chunks.counts[t];
    for (int64_t begin = 0; begin < count; begin += kOptimChunk)
      chunks.list.push_back({static_cast<int64_t>(t), begin, std::min(kOptimChunk, count - begin)});
    chunks.first.push_back(chunks.size());
  }
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
inline std::vector<UpdateStat> combine(const TensorChunks& chunks, const std::vector<UpdateSums>& sums) {
  std::vector<UpdateStat> stats(chunks.counts.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    UpdateStat& s = stats[static_cast<size_t>(chunks.list[i].tensor)];
    s.update_rms += static_cast<double>(sums[i].update_sq);
    s.weight_rms += static_cast<double>(sums[i].weight_sq);
  }
  for (size_t t = 0; t < stats.size(); ++t) {
    const double n = static_cast<double>(std::max<int64_t>(chunks.counts[t], 1));
    stats[t] = {std::sqrt(stats[t].update_rms / n), std::sqrt(stats[t].weight_rms / n)};
  }
  return stats;
}

}  // namespace ingot
