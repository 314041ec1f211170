// How much the experts of a layer do the same ([ZAYA1-8B] App. D). Each expert's d leading singular
// directions span a subspace: of what it reads (right singular vectors of its gate and up matrices,
// stacked) and of what it writes (left singular vectors of its down matrix). With orthonormal bases Q_i,
// Q_j [d, D] two experts overlap by
//
//   s_ij = ||Q_i Q_j^T||_F^2 / d,     rho = mean of s / (d / D)
//
// 1 where the subspaces are equal and d / D on average for random ones, so rho is 1 for independent
// experts. Thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace ingot {

/// The leading directions of a matrix.
struct LeadingDirections {
  std::vector<float> rows;  ///< orthonormal, [d, D], the strongest first
  double variance = 0;      ///< their share of the squared Frobenius norm
};

/// The d leading right singular vectors of a row-major matrix [count, width], by subspace iteration on its
/// Gram matrix; 1 <= d <= width. Directions without variance are arbitrary.
LeadingDirections leading_directions(const float* matrix, int64_t count, int64_t width, int64_t d);

/// One side of a layer.
struct OverlapSide {
  double mean = 0, deviation = 0;  ///< of s over pairs of experts
  double rho = 0;
  double variance = 0;  ///< mean share over experts
};

struct ExpertOverlap {
  int64_t layer = 0, experts = 0;
  int64_t directions = 0, width = 0;
  OverlapSide input, output;
};

/// The overlap of subspaces of one width.
OverlapSide overlap_of(const std::vector<LeadingDirections>& experts, int64_t width);

/// Of all layers with experts, in order. `directions` 0: a sixteenth of the width, at least one; more than
/// the width or an expert's hidden width is an Error, and so is a model without experts, or with one per
/// layer.
std::vector<ExpertOverlap> expert_overlap(const CheckpointReader& model, int64_t directions);

}  // namespace ingot
