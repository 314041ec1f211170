// route in plain loops; see route.h.
#include <algorithm>
#include <cmath>

#include "ops/reference.h"
#include "ops/route/kernels.h"
#include "ops/route/route.h"

namespace ingot {
namespace {

using reference::Array;
using reference::load;
using reference::store;

struct Softmax {
  Array p;
  double lse = 0;
};

Softmax softmax(const double* logits, size_t n) {
  Softmax s{Array(n), 0};
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += s.p[i] = std::exp(logits[i] - top);
  for (double& p : s.p) p /= sum;
  s.lse = top + std::log(sum);
  return s;
}

/// The k largest scores among the real experts, ties to the lowest index, in ascending expert order.
std::vector<int32_t> choose(const Array& scores, const Array& bias, size_t experts, size_t k) {
  std::vector<bool> taken(experts);
  for (size_t j = 0; j < k; ++j) {
    size_t best = experts;
    double best_score = 0;
    for (size_t e = 0; e < experts; ++e) {
      const double score = scores[e] + (bias.empty() ? 0 : bias[e]);
      if (!taken[e] && (best == experts || score > best_score)) best = e, best_score = score;
    }
    taken[best] = true;
  }
  std::vector<int32_t> ids;
  for (size_t e = 0; e < experts; ++e)
    if (taken[e]) ids.push_back(static_cast<int32_t>(e));
  return ids;
}

void forward(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  const Array logits = load(call.in[0]), bias = load(call.in[1]), load_share = load(call.in[2]);
  const auto forced = reference::load_ints(call.in[3]);
  const auto rows = static_cast<size_t>(call.in[0].dim(0)), experts = static_cast<size_t>(a.experts),
             classes = experts + static_cast<size_t>(a.skip_classes), k = static_cast<size_t>(a.k);
  Array probs(rows * k), counts(experts), mass(experts);
  double z = 0, entropy = 0;
  for (size_t t = 0; t < rows; ++t) {
    const Softmax s = softmax(&logits[t * classes], classes);
    z += s.lse * s.lse;
    for (size_t e = 0; e < classes; ++e) entropy -= s.p[e] > 0 ? s.p[e] * std::log(s.p[e]) : 0;
    for (size_t e = 0; e < experts; ++e) mass[e] += s.p[e];
    const Array scores = a.score == RouteScore::softmax_first
                             ? s.p
                             : Array(&logits[t * classes], &logits[t * classes] + classes);
    std::vector<int32_t> ids = choose(scores, bias, experts, k);
    if (!forced.empty()) ids.assign(&forced[t * k], &forced[t * k] + k);
    double sum = 0;
    for (size_t j = 0; j < k; ++j) sum += s.p[static_cast<size_t>(ids[j])];
    const bool divide = a.normalize || a.score == RouteScore::softmax_last;
    for (size_t j = 0; j < k; ++j) {
      probs[t * k + j] = a.scale * s.p[static_cast<size_t>(ids[j])] / (divide ? sum : 1);
      call.out[1].as<int32_t>()[t * k + j] = ids[j];
      counts[static_cast<size_t>(ids[j])] += 1;
    }
  }
  const double n = std::max<double>(1, static_cast<double>(rows));
  double aux = 0;
  for (size_t e = 0; e < experts; ++e)
    aux += static_cast<double>(a.experts) / n * mass[e] *
           (load_share.empty() ? counts[e] / (static_cast<double>(a.k) * n) : load_share[e]);
  store(call.out[0], probs);
  store(call.out[2], counts);
  store(call.out[3], {aux});
  store(call.out[4], {z / n});
  store(call.out[5], {entropy / n});
}

void backward_input(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  const Array logits = load(call.in[0]), load_share = load(call.in[2]), counts = load(call.out[2]),
              d_probs = load(call.d_out[0]), d_aux = load(call.d_out[3]), d_z = load(call.d_out[4]);
  const auto ids = reference::load_ints(call.out[1]);
  const auto rows = static_cast<size_t>(call.in[0].dim(0)), experts = static_cast<size_t>(a.experts),
             classes = experts + static_cast<size_t>(a.skip_classes), k = static_cast<size_t>(a.k);
  const double n = std::max<double>(1, static_cast<double>(rows));
  Array d_logits(logits.size());
  for (size_t t = 0; t < rows; ++t) {
    const Softmax s = softmax(&logits[t * classes], classes);
    Array d_p(classes);  // cotangent of the full softmax
    double sum = 0, weighted = 0;
    for (size_t j = 0; j < k; ++j) {
      const auto e = static_cast<size_t>(ids[t * k + j]);
      sum += s.p[e];
      weighted += d_probs.empty() ? 0 : d_probs[t * k + j] * s.p[e];
    }
    const bool divide = a.normalize || a.score == RouteScore::softmax_last;
    for (size_t j = 0; j < k && !d_probs.empty(); ++j) {
      const auto e = static_cast<size_t>(ids[t * k + j]);
      // p_j = P_j / sum:  dP_j = (d_j - sum_i d_i P_i / sum) / sum
      d_p[e] += a.scale * (divide ? (d_probs[t * k + j] - weighted / sum) / sum : d_probs[t * k + j]);
    }
    for (size_t e = 0; e < experts && !d_aux.empty(); ++e)
      d_p[e] += d_aux[0] * static_cast<double>(a.experts) / n *
                (load_share.empty() ? counts[e] / (static_cast<double>(a.k) * n) : load_share[e]);
    double dot = 0;
    for (size_t e = 0; e < classes; ++e) dot += d_p[e] * s.p[e];
    for (size_t e = 0; e < classes; ++e) {
      d_logits[t * classes + e] = s.p[e] * (d_p[e] - dot);
      if (!d_z.empty()) d_logits[t * classes + e] += d_z[0] * 2 * s.lse / n * s.p[e];
    }
  }
  store(call.d_in[0], d_logits);
}

}  // namespace

Kernel route_reference() { return {"reference", reference::accept, forward, backward_input, nullptr}; }

}  // namespace ingot
