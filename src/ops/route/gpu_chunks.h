// Chunks of 64 rows, whose sums are a block's work, for the kernels of GPUs of route and sequence_balance:
// those of all rows, or those of documents, which begin anew at each. For *.cu.
#pragma once
#include "device/simd/row_kernels.h"
#include "ops/route/gpu_route.h"

namespace ingot::INGOT_ISA {

/// Rows that are one document.
struct AllRows {
  int64_t rows;
};

/// Where a block's rows begin, how many they are (none: the block has no chunk), and which number their chunk
/// has in the call.
struct ChunkPlace {
  int64_t begin, count, number;
};
INGOT_INLINE ChunkPlace place_of_block(const AllRows& all) {
  const int64_t begin = block_index() * kGpuRouteChunk;
  return {begin, min64(kGpuRouteChunk, all.rows - begin), block_index()};
}

/// The last document of a launch that is_before(document) holds for; it does for the first.
template <class F>
INGOT_INLINE int last_document(const GpuRouteDocuments& d, F&& is_before) {
  int low = 0;
  for (int high = d.count; high - low > 1;) {
    const int middle = (low + high) / 2;
    if (is_before(d.of[middle]))
      low = middle;
    else
      high = middle;
  }
  return low;
}
INGOT_INLINE ChunkPlace place_of_block(const GpuRouteDocuments& d) {
  const int64_t number = d.of[0].first_chunk + int64_t{block_index()};
  const int own = last_document(d, [&](const auto& document) { return document.first_chunk <= number; });
  const int64_t begin = d.of[own].first_row + (number - d.of[own].first_chunk) * kGpuRouteChunk;
  return {begin, min64(kGpuRouteChunk, d.of[own + 1].first_row - begin), number};
}

INGOT_INLINE ChunkPlace place_of_block(const GpuRouteList& d) {
  const int64_t number = block_index(), own = d.list.of_tile(number, 1, kGpuRouteChunk);
  if (own < 0) return {0, 0, number};
  const int64_t begin = (number - d.list.first_tile(own, 1, kGpuRouteChunk)) * kGpuRouteChunk,
                left = d.list.rows(own) - begin;
  return {d.list.first_row(own) + begin, left > 0 ? min64(kGpuRouteChunk, left) : 0, number};
}

/// The rows begin here, and end here.
INGOT_INLINE int64_t first_row(const AllRows&) {
  return 0;
}
INGOT_INLINE int64_t first_row(const GpuRouteDocuments& d) {
  return d.of[0].first_row;
}
INGOT_INLINE int64_t end_row(const AllRows& all) {
  return all.rows;
}
INGOT_INLINE int64_t end_row(const GpuRouteDocuments& d) {
  return d.of[d.count].first_row;
}
INGOT_INLINE int64_t first_row(const GpuRouteList&) {
  return 0;
}
INGOT_INLINE int64_t end_row(const GpuRouteList& d) {
  return d.rows;
}
/// Cotangents of the masses in a row's document, of which `d_mass` has those of all, document by document.
INGOT_INLINE const float* mass_cotangents(const AllRows&, const float* d_mass, int64_t, int64_t) {
  return d_mass;
}
INGOT_INLINE const float* mass_cotangents(const GpuRouteDocuments& d, const float* d_mass, int64_t experts,
                                          int64_t row) {
  const int own = last_document(d, [&](const auto& document) { return document.first_row <= row; });
  return d_mass + (d.first_document + own) * experts;
}

INGOT_INLINE const float* mass_cotangents(const GpuRouteList& d, const float* d_mass, int64_t experts,
                                          int64_t row) {
  return d_mass + d.list.of_row(row) * experts;
}

/// counts[e] = how many of the choices begin .. end are expert e; by the block's threads.
INGOT_INLINE void count_choices(const int32_t* ids, int64_t begin, int64_t end, int64_t experts,
                                float* counts) {
  for (int64_t e = thread_index(); e < experts; e += block_size()) {
    float chosen = 0;
    for (int64_t j = begin; j < end; ++j) chosen += ids[j] == e ? 1.0f : 0.0f;
    counts[e] = chosen;
  }
}

}  // namespace ingot::INGOT_ISA
