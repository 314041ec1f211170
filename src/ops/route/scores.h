// What route and sequence_balance share: the attributes as the row kernels take them, and the scores of one
// row in double for both references.
#pragma once
#include <vector>

#include "ops/reference.h"
#include "ops/route/isa_route.h"
#include "ops/route/route.h"

namespace ingot {

/// Added to the sum by which sigmoid weights are divided.
inline constexpr double kSigmoidEpsilon = 1e-20;

/// What the attributes say; no tensors yet.
RouteRows route_rows(const RouteAttr& attr);
/// The reason why fast kernels of route do not take the call, or nullptr.
const char* refuse_route(const OpCall& call);

/// One row's scores: softmax or sigmoid, and their fractions of the sum.
struct RouteScores {
  reference::Array scores, shares, softmax;
  double lse = 0, total = 1;
};
RouteScores route_scores(const RouteAttr& attr, const double* logits);
/// The k largest (score + bias) within the best groups, ties to the lowest index, ascending; -1 for a choice
/// beyond the experts.
std::vector<int32_t> route_choice(const RouteAttr& attr, const RouteScores& scores, const double* logits,
                                  const reference::Array& bias);
/// d_logits of one row, from the cotangents of its scores and of its shares.
reference::Array route_scores_backward(const RouteAttr& attr, const RouteScores& s,
                                       const reference::Array& d_scores, const reference::Array& d_shares);

}  // namespace ingot
