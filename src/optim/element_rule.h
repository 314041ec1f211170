// An update rule as one function of an element: what a program that registers an optimizer writes
// (docs/extend-optimizer.md). Threads, storage of weights, gradients and state, compute copies and the sizes
// of updates are taken care of here. The same bits for any number of threads, and for any division of a
// tensor into parts.
#pragma once
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/update_rule.h"
#include "optim/work.h"

namespace ingot {

inline constexpr size_t kMostSlots = 4;  ///< state tensors of a parameter

namespace element_rule {

constexpr int64_t kBlock = 1024;

/// One chunk of a tensor; `update` as below.
template <class Update>
UpdateSums update_chunk(const RuleTensor& t, int64_t begin, int64_t end, float grad_scale,
                        const Update& update) {
  const ParamView& p = *t.param;
  float weights[kBlock], gradients[kBlock], state[kMostSlots][kBlock];
  double update_sq = 0, weight_sq = 0;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    INGOT_ISA_CALL(load_values)(weights, part_of(p.master, at), count);
    INGOT_ISA_CALL(load_values)(gradients, part_of(p.grad, at), count);
    for (size_t s = 0; s < t.state.size(); ++s)
      INGOT_ISA_CALL(load_values)(state[s], part_of(t.state[s], at), count);
    for (int64_t i = 0; i < count; ++i) {
      float mine[kMostSlots];
      for (size_t s = 0; s < t.state.size(); ++s) mine[s] = state[s][i];
      const float before = weights[i], after = update(t, before, gradients[i] * grad_scale, mine);
      for (size_t s = 0; s < t.state.size(); ++s) state[s][i] = mine[s];
      weights[i] = after;
      update_sq += static_cast<double>(after - before) * static_cast<double>(after - before);
      weight_sq += static_cast<double>(after) * static_cast<double>(after);
    }
    INGOT_ISA_CALL(store_values)(part_of(p.master, at), weights, count);
    for (size_t s = 0; s < t.state.size(); ++s)
      INGOT_ISA_CALL(store_values)(part_of(t.state[s], at), state[s], count);
    if (p.compute != nullptr) {
      StoredPart copy;
      copy.data = ingot::at(p.compute, p.compute_dtype, at);
      copy.is_bf16 = p.compute_dtype == DType::bf16;
      INGOT_ISA_CALL(store_values)(copy, weights, count);
    }
  }
  return {static_cast<float>(update_sq), static_cast<float>(weight_sq)};
}

}  // namespace element_rule

/// float update(const RuleTensor& t, float weight, float gradient, float* state): the new weight of one
/// element; `gradient` is scaled and clipped, state[s] is its value of slot s, read and written. Called from
/// several threads. Every slot has one value per element; at most kMostSlots.
template <class Update>
std::vector<UpdateStat> update_elements(std::span<const RuleTensor> tensors, double grad_scale,
                                        const Update& update) {
  std::vector<int64_t> counts;
  for (const RuleTensor& t : tensors) {
    INGOT_CHECK(t.state.size() <= kMostSlots, "'{}' has {} state tensors", t.param->name, t.state.size());
    counts.push_back(t.param->numel());
  }
  const TensorChunks chunks = chunks_of(std::move(counts));
  std::vector<UpdateSums> sums(chunks.list.size());
  parallel_for(chunks.size(), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const Chunk& c = chunks[i];
      sums[static_cast<size_t>(i)] =
          element_rule::update_chunk(tensors[static_cast<size_t>(c.tensor)], c.begin, c.begin + c.count,
                                     static_cast<float>(grad_scale), update);
    }
  });
  return combine(chunks, sums);
}

}  // namespace ingot
