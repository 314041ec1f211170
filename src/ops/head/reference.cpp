// head in plain loops; see head.h.
#include "ops/reference.h"

#include <cmath>
#include <limits>

#include "ops/head/head.h"

namespace ingot {
namespace {

using namespace head_slot;
using namespace reference;

/// Capped and scaled.
Array logits_of_row(const HeadAttr& a, const Array& x_in, const Array& w, size_t t, size_t width) {
  const size_t vocabulary = w.size() / width;
  Array l(vocabulary);
  for (size_t v = 0; v < vocabulary; ++v)
    for (size_t d = 0; d < width; ++d) l[v] += x_in[t * width + d] * w[v * width + d];
  for (double& z : l) z = static_cast<double>(a.scale) * a.cap.value(z);
  return l;
}

/// With -inf in place of the logits that the row does not allow.
Array allowed_logits(const OpCall& call, size_t t, const Array& l) {
  if (!call.in[allowed].defined()) return l;
  const int32_t *range = call.in[allowed].as<int32_t>() + 2 * t, *ids = call.in[allowed_ids].as<int32_t>();
  if (range[0] == range[1]) return l;
  Array only(l.size(), -std::numeric_limits<double>::infinity());
  for (int32_t i = range[0]; i < range[1]; ++i)
    only[static_cast<size_t>(ids[i])] = l[static_cast<size_t>(ids[i])];
  return only;
}

/// dl/dz at a logit, scaled and capped; 0 where the row does not allow it.
double slope(const HeadAttr& a, double l) {
  const auto scale = static_cast<double>(a.scale);
  return std::isinf(l) ? 0 : scale * a.cap.slope(l / scale);
}

/// p (l - lse): 0 for an id that is not allowed.
double p_log_p(double l, double lse) {
  return std::isinf(l) ? 0 : std::exp(l - lse) * (l - lse);
}

double log_sum_exp(const Array& l) {
  double top = l[0], sum = 0;
  for (const double v : l) top = std::max(top, v);
  for (const double v : l) sum += std::exp(v - top);
  return top + std::log(sum);
}

/// Adds one row's part to d_x and d_w, given its d_logits.
void back_product(const Array& d_l, const Array& x_in, const Array& w, size_t t, size_t width, Array& grad_x,
                  Array& grad_w) {
  for (size_t v = 0; v < d_l.size(); ++v)
    for (size_t d = 0; d < width; ++d) {
      grad_x[t * width + d] += d_l[v] * w[v * width + d];
      grad_w[v * width + d] += d_l[v] * x_in[t * width + d];
    }
}

void forward(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  const Array x_in = load(call.in[x]), w = load(call.in[weight]), q = load(call.in[teacher]),
              rw = load(call.in[row_weight]);
  const auto target = load_ints(call.in[targets]);
  const size_t rows = target.size(), width = static_cast<size_t>(call.in[x].dim(1)),
               vocabulary = w.size() / width;
  Array logprob_T(rows), lse_T(rows), entropy_T(a.entropy ? rows : 0), kl_T(q.empty() ? 0 : rows), kept;
  Array grad_x(rows * width), grad_w(w.size());
  for (size_t t = 0; t < rows; ++t) {
    const Array all = logits_of_row(a, x_in, w, t, width), l = allowed_logits(call, t, all);
    if (a.mode == HeadMode::store) kept.insert(kept.end(), all.begin(), all.end());
    size_t top = 0;
    for (size_t v = 1; v < vocabulary; ++v)
      if (l[v] > l[top]) top = v;
    call.out[best].as<int32_t>()[t] = static_cast<int32_t>(top);
    if (target[t] < 0) continue;
    INGOT_CHECK(static_cast<size_t>(target[t]) < vocabulary, "target {} of {}", target[t], vocabulary);
    const double z = log_sum_exp(l);
    lse_T[t] = z;
    logprob_T[t] = l[static_cast<size_t>(target[t])] - z;
    Array d_l(vocabulary);
    for (size_t v = 0; v < vocabulary; ++v) {
      const double p = std::exp(l[v] - z);
      if (a.entropy) entropy_T[t] -= p_log_p(l[v], z);
      if (!q.empty() && q[t * vocabulary + v] > 0)
        kl_T[t] += q[t * vocabulary + v] * (std::log(q[t * vocabulary + v]) - l[v] + z);
      if (a.mode == HeadMode::gradient)
        d_l[v] = rw[t] * ((v == static_cast<size_t>(target[t])) - p + 2 * a.z_coefficient * z * p) *
                 slope(a, l[v]);
    }
    if (a.mode == HeadMode::gradient) back_product(d_l, x_in, w, t, width, grad_x, grad_w);
  }
  store(call.out[logprob], logprob_T);
  store(call.out[lse], lse_T);
  store(call.out[entropy], entropy_T);
  store(call.out[kl], kl_T);
  if (a.mode == HeadMode::store) store(call.out[logits], kept);
  if (a.mode != HeadMode::gradient) return;
  store(call.out[d_x], grad_x);
  if (!call.d_in.empty()) store(call.d_in[weight], grad_w);
}

void backward_input(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  if (a.mode == HeadMode::gradient) {  // formed in forward
    store(call.d_in[x], load(call.out[d_x]));
    return;
  }
  const Array x_in = load(call.in[x]), w = load(call.in[weight]), q = load(call.in[teacher]),
              lse_T = load(call.out[lse]), entropy_T = load(call.out[entropy]),
              d_logprob = load(call.d_out[logprob]), d_lse = load(call.d_out[lse]),
              d_entropy = load(call.d_out[entropy]), d_kl = load(call.d_out[kl]);
  const auto target = load_ints(call.in[targets]);
  const size_t rows = target.size(), width = static_cast<size_t>(call.in[x].dim(1)),
               vocabulary = w.size() / width;
  Array grad_x(rows * width), grad_w(w.size());
  for (size_t t = 0; t < rows; ++t) {
    if (target[t] < 0) continue;
    const Array l = allowed_logits(call, t, logits_of_row(a, x_in, w, t, width));
    Array d_l(vocabulary);
    for (size_t v = 0; v < vocabulary; ++v) {
      const double p = std::exp(l[v] - lse_T[t]);
      if (!d_logprob.empty()) d_l[v] += d_logprob[t] * ((v == static_cast<size_t>(target[t])) - p);
      if (!d_lse.empty()) d_l[v] += d_lse[t] * p;
      if (!d_entropy.empty() && a.entropy)
        d_l[v] -= d_entropy[t] * (p_log_p(l[v], lse_T[t]) + p * entropy_T[t]);
      if (!d_kl.empty() && !q.empty()) d_l[v] += d_kl[t] * (p - q[t * vocabulary + v]);
      d_l[v] *= slope(a, l[v]);
    }
    back_product(d_l, x_in, w, t, width, grad_x, grad_w);
  }
  store(call.d_in[x], grad_x);
  store(call.d_in[weight], grad_w);
}

}  // namespace

Kernel head_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
