// route's implementations, best first (internal to the folder).
#pragma once
#include <vector>

#include "ops/reference.h"
#include "ops/route/route.h"
#include "ops/route/row_kernels.h"
#include "tape/op.h"

namespace ingot {
/// Added to the sum by which sigmoid weights are divided.
inline constexpr double kSigmoidEpsilon = 1e-20;
/// What `load` is divided by to make fractions of choices.
inline double load_choices(const RouteAttr& a) {
  return a.load_tokens > 0 ? static_cast<double>(a.k) * static_cast<double>(a.load_tokens) : 1;
}
/// What the attributes say; no tensors yet.
RouteRows route_rows(const RouteAttr& attr);
/// One row's scores in plain double: softmax or sigmoid, and their shares of the sum.
struct RouteScores {
  reference::Array scores, shares, softmax;
  double lse = 0, total = 1;
};
RouteScores route_scores(const RouteAttr& attr, const double* logits);
/// The k largest (score + bias) within the best groups, ties to the lowest index, ascending.
std::vector<int32_t> route_choice(const RouteAttr& attr, const RouteScores& scores, const double* logits,
                                  const reference::Array& bias);
/// d_logits of one row, from the cotangents of its scores and of its shares.
reference::Array route_scores_backward(const RouteAttr& attr, const RouteScores& s,
                                       const reference::Array& d_scores, const reference::Array& d_shares);
std::vector<Kernel> route_kernels();
Kernel route_reference();
/// Sums over chunks of rows.
int64_t route_scratch_bytes(const OpCall& call);
}  // namespace ingot
