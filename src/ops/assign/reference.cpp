// assign in plain loops; see assign.h.
#include "ops/reference.h"

#include <algorithm>
#include <cmath>

#include "ops/assign/assign.h"
#include "ops/capacity/capacity.h"

namespace ingot {
namespace {

using reference::Array;

struct Logits {
  Array l;
  size_t rows, experts;
  double at(size_t t, size_t e) const { return l[t * experts + e]; }
  double top(size_t t) const { return *std::max_element(&l[t * experts], &l[t * experts] + experts); }
};

/// The transported matrix, up to a factor per row.
Array transported(const Logits& in) {
  Array cost(in.l.size()), d1(in.experts, 1.0);
  for (size_t t = 0; t < in.rows; ++t)
    for (size_t e = 0; e < in.experts; ++e) cost[t * in.experts + e] = std::exp(in.at(t, e) - in.top(t));
  for (int i = 0; i < kSinkhornRounds; ++i) {
    Array sums(in.experts);
    for (size_t t = 0; t < in.rows; ++t) {
      double row = 0;
      for (size_t e = 0; e < in.experts; ++e) row += d1[e] * cost[t * in.experts + e];
      const double d0 = 1 / (static_cast<double>(in.rows) * (row + kSinkhornEpsilon));
      for (size_t e = 0; e < in.experts; ++e) sums[e] += d0 * cost[t * in.experts + e];
    }
    double change = 0;
    for (size_t e = 0; e < in.experts; ++e) {
      const double next = 1 / (static_cast<double>(in.experts) * (sums[e] + kSinkhornEpsilon));
      change += std::abs(next - d1[e]) / static_cast<double>(in.experts);
      d1[e] = next;
    }
    if (change < kSinkhornTolerance) break;
  }
  for (size_t i = 0; i < cost.size(); ++i) cost[i] *= d1[i % in.experts];
  return cost;
}

/// a comes before b: larger, NaN last, then the lower index.
bool before(double a, size_t index_a, double b, size_t index_b) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) == std::isnan(b) ? index_a < index_b : std::isnan(b);
  return a > b || (a == b && index_a < index_b);
}

void sinkhorn(const Logits& in, size_t k, int32_t* ids) {
  const Array matrix = transported(in);
  for (size_t t = 0; t < in.rows; ++t) {
    const double* row = &matrix[t * in.experts];
    for (size_t e = 0, j = 0; e < in.experts; ++e) {
      size_t better = 0;
      for (size_t o = 0; o < in.experts; ++o) better += before(row[o], o, row[e], e);
      if (better < k) ids[t * k + j++] = static_cast<int32_t>(e);
    }
  }
}

void expert_choice(const Logits& in, const AssignAttr& a, int32_t* ids) {
  Array scores(in.l.size());
  for (size_t t = 0; t < in.rows; ++t) {
    double sum = 0;
    for (size_t e = 0; e < in.experts; ++e) sum += std::exp(in.at(t, e) - in.top(t));
    for (size_t e = 0; e < in.experts; ++e)
      scores[t * in.experts + e] =
          a.sigmoid ? 1 / (1 + std::exp(-in.at(t, e))) : std::exp(in.at(t, e) - in.top(t)) / sum;
  }
  const auto taken = static_cast<size_t>(
      expert_capacity(static_cast<int64_t>(in.rows), a.k, static_cast<int64_t>(in.experts), a.factor));
  for (size_t i = 0; i < scores.size(); ++i) {
    size_t better = 0;
    for (size_t o = i % in.experts; o < scores.size(); o += in.experts)
      better += before(scores[o], o, scores[i], i);
    ids[i] = better < taken ? static_cast<int32_t>(i % in.experts) : -1;
  }
}

void forward(const OpCall& call) {
  const auto& a = call.attr<AssignAttr>();
  const Tensor& logits = call.in[0];
  const Logits in{reference::load(logits), static_cast<size_t>(logits.dim(0)),
                  static_cast<size_t>(logits.dim(1))};
  auto* ids = call.out[0].as<int32_t>();
  if (a.rule == AssignRule::sinkhorn)
    sinkhorn(in, static_cast<size_t>(a.k), ids);
  else
    expert_choice(in, a, ids);
}

}  // namespace

Kernel assign_reference() {
  return {"reference", reference::accept, forward, nullptr, nullptr};
}

}  // namespace ingot
