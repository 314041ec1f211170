// sequence_balance in plain loops; see sequence_balance.h.
#include "ops/reference.h"

#include <algorithm>

#include "ops/route/scores.h"
#include "ops/sequence_balance/sequence_balance.h"

namespace ingot {
namespace {

using reference::Array;

/// Both directions: the loss, and d_logits if it is asked for.
double loss_of(const OpCall& call, double d_loss, Array* d_logits) {
  const RouteAttr& a = call.attr<SequenceBalanceAttr>().scores;
  const Array logits = reference::load(call.in[0]);
  const auto classes = static_cast<size_t>(a.experts + a.skip_classes), k = static_cast<size_t>(a.k);
  double loss = 0;
  for (const SequenceSpan& d : balance_documents(call)) {
    const auto begin = static_cast<size_t>(d.row_begin), end = begin + static_cast<size_t>(d.rows);
    Array counts(classes), mass(classes);
    std::vector<RouteScores> scores;
    for (size_t t = begin; t < end; ++t) {
      scores.push_back(route_scores(a, &logits[t * classes]));
      const auto ids = route_choice(a, scores.back(), &logits[t * classes], {});
      for (size_t e = 0; e < classes; ++e) mass[e] += scores.back().shares[e];
      for (const int32_t e : ids) counts[static_cast<size_t>(e)] += 1;
      if (d_logits == nullptr) std::copy(ids.begin(), ids.end(), call.out[1].as<int32_t>() + t * k);
    }
    for (size_t e = 0; e < classes; ++e)
      loss += balance_factor(call) * counts[e] * mass[e] / static_cast<double>(d.rows);
    if (d_logits == nullptr) continue;
    for (double& c : counts) c *= d_loss * balance_factor(call) / static_cast<double>(d.rows);
    for (size_t t = begin; t < end; ++t) {
      const Array row = route_scores_backward(a, scores[t - begin], Array(classes), counts);
      std::copy(row.begin(), row.end(), d_logits->begin() + static_cast<std::ptrdiff_t>(t * classes));
    }
  }
  return loss;
}

void forward(const OpCall& call) {
  reference::store(call.out[0], {loss_of(call, 0, nullptr)});
}

void backward(const OpCall& call) {
  Array d_logits(static_cast<size_t>(call.in[0].numel()));
  loss_of(call, reference::load(call.d_out[0])[0], &d_logits);
  reference::store(call.d_in[0], d_logits);
}

}  // namespace

Kernel sequence_balance_reference() {
  return {"reference", reference::accept, forward, backward, nullptr};
}

}  // namespace ingot
