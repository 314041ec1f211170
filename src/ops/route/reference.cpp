// route in plain loops; see route.h.
#include "ops/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/route/scores.h"

namespace ingot {

using namespace reference;

namespace {

size_t size_of_classes(const RouteAttr& a) {
  return static_cast<size_t>(a.experts + a.skip_classes);
}

/// The k largest keys, ties to the lowest index, NaN last; ascending.
std::vector<int32_t> largest(const Array& keys, size_t k) {
  const auto better = [&](size_t a, size_t b) {
    return keys[a] > keys[b] || (std::isnan(keys[b]) && !std::isnan(keys[a]));
  };
  std::vector<bool> taken(keys.size());
  for (size_t j = 0; j < k; ++j) {
    size_t best = keys.size();
    for (size_t e = 0; e < keys.size(); ++e)
      if (!taken[e] && (best == keys.size() || better(e, best))) best = e;
    taken[best] = true;
  }
  std::vector<int32_t> ids;
  for (size_t e = 0; e < keys.size(); ++e)
    if (taken[e]) ids.push_back(static_cast<int32_t>(e));
  return ids;
}

/// -inf for the experts of all groups but the best; a group counts by the sum of its k / kept largest keys.
Array limited(const RouteAttr& a, Array keys) {
  if (a.groups_kept == a.groups) return keys;
  const size_t size = keys.size() / static_cast<size_t>(a.groups);
  Array of_group;
  for (size_t g = 0; g < static_cast<size_t>(a.groups); ++g) {
    Array inside(keys.begin() + static_cast<std::ptrdiff_t>(g * size),
                 keys.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(inside.rbegin(), inside.rend());
    double sum = 0;
    for (int32_t j = 0; j < a.k / a.groups_kept; ++j) sum += inside[static_cast<size_t>(j)];
    of_group.push_back(sum);
  }
  const auto kept = largest(of_group, static_cast<size_t>(a.groups_kept));
  for (size_t e = 0; e < keys.size(); ++e)
    if (std::find(kept.begin(), kept.end(), static_cast<int32_t>(e / size)) == kept.end())
      keys[e] = -std::numeric_limits<double>::infinity();
  return keys;
}

}  // namespace

RouteScores route_scores(const RouteAttr& a, const double* logits) {
  const size_t n = size_of_classes(a);
  RouteScores s;
  const double top = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(logits[i] - top);
  s.lse = top + std::log(sum);
  for (size_t i = 0; i < n; ++i) s.softmax.push_back(std::exp(logits[i] - top) / sum);
  s.scores = s.shares = s.softmax;
  if (a.score != RouteScore::sigmoid) return s;
  s.total = 0;
  for (size_t i = 0; i < n; ++i) s.total += s.scores[i] = 1 / (1 + std::exp(-logits[i]));
  for (size_t i = 0; i < n; ++i) s.shares[i] = s.scores[i] / s.total;
  return s;
}

std::vector<int32_t> route_choice(const RouteAttr& a, const RouteScores& s, const double* logits,
                                  const Array& bias) {
  Array keys(bias.empty() ? static_cast<size_t>(a.experts) : bias.size());
  for (size_t e = 0; e < keys.size(); ++e)
    keys[e] = (a.score == RouteScore::softmax_last ? logits[e] : s.scores[e]) + (bias.empty() ? 0 : bias[e]);
  std::vector<int32_t> ids = largest(limited(a, std::move(keys)), static_cast<size_t>(a.k));
  for (int32_t& id : ids) id = id < a.experts ? id : -1;
  return ids;
}

Array route_scores_backward(const RouteAttr& a, const RouteScores& s, const Array& d_scores,
                            const Array& d_shares) {
  const size_t n = size_of_classes(a);
  double dot_scores = 0, dot_shares = 0;
  for (size_t e = 0; e < n; ++e) {
    dot_scores += d_scores[e] * s.scores[e];
    dot_shares += d_shares[e] * s.shares[e];
  }
  Array d_logits(n);
  for (size_t e = 0; e < n; ++e) {
    if (a.score == RouteScore::sigmoid)
      d_logits[e] = (d_scores[e] + (d_shares[e] - dot_shares) / s.total) * s.scores[e] * (1 - s.scores[e]);
    else
      d_logits[e] = s.softmax[e] * (d_scores[e] - dot_scores + d_shares[e] - dot_shares);
  }
  return d_logits;
}

namespace {

struct Sizes {
  size_t rows, experts, classes, k;
};
Sizes sizes_of(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  return {static_cast<size_t>(call.in[0].dim(0)), static_cast<size_t>(a.experts), size_of_classes(a),
          static_cast<size_t>(a.k)};
}

/// Sum of the chosen scores, by which the weights are divided; 1 where they are not.
double divisor(const RouteAttr& a, const RouteScores& s, const int32_t* ids) {
  if (!a.normalize && a.score != RouteScore::softmax_last) return 1;
  double sum = a.score == RouteScore::sigmoid ? kSigmoidEpsilon : 0;
  for (int32_t j = 0; j < a.k; ++j) sum += ids[j] < 0 ? 0 : s.scores[static_cast<size_t>(ids[j])];
  return sum;
}

/// The share of expert e in the choices that the balance loss counts.
double balanced_share(const OpCall& call, const Array& given, const Array& earlier, const Array& counts,
                      size_t e) {
  const auto& a = call.attr<RouteAttr>();
  const double counted = (given.empty() ? counts : given)[e] + (earlier.empty() ? 0 : earlier[e]),
               batches = 1 + (earlier.empty() ? 0 : earlier.back());
  if (!given.empty() || a.load_tokens > 0) return counted / (a.load_choices() * batches);
  return counted /
         (static_cast<double>(a.k) * std::max<double>(1, static_cast<double>(call.in[0].dim(0))) * batches);
}

void forward(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  const Array logits = load(call.in[0]), bias = load(call.in[1]), given = load(call.in[2]),
              earlier = load(call.in[4]);
  const auto forced = load_ints(call.in[3]);
  const auto [rows, experts, classes, k] = sizes_of(call);
  Array probs(rows * k), counts(experts), mass(experts);
  double z = 0, entropy = 0;
  for (size_t t = 0; t < rows; ++t) {
    const RouteScores s = route_scores(a, &logits[t * classes]);
    z += s.lse * s.lse;
    for (const double p : s.shares) entropy -= p > 0 ? p * std::log(p) : 0;
    for (size_t e = 0; e < experts; ++e) mass[e] += s.shares[e];
    std::vector<int32_t> ids;
    if (forced.empty())
      ids = route_choice(a, s, &logits[t * classes], bias);
    else
      ids.assign(&forced[t * k], &forced[t * k] + k);
    const double sum = divisor(a, s, ids.data());
    for (size_t j = 0; j < k; ++j) {
      call.out[1].as<int32_t>()[t * k + j] = ids[j];
      if (ids[j] < 0) continue;
      probs[t * k + j] = a.scale * s.scores[static_cast<size_t>(ids[j])] / sum;
      counts[static_cast<size_t>(ids[j])] += 1;
    }
  }
  const double n = std::max<double>(1, static_cast<double>(rows));
  double aux = 0;
  for (size_t e = 0; e < experts; ++e)
    aux += static_cast<double>(a.experts) / n * mass[e] * balanced_share(call, given, earlier, counts, e);
  store(call.out[0], probs);
  store(call.out[2], counts);
  store(call.out[3], {aux});
  store(call.out[4], {z / n});
  store(call.out[5], {entropy / n});
}

/// Cotangent of the scores from those of the chosen weights: p_j = a s_j / sum, ds_j = (a / sum) (d_j - sum_i
/// d_i s_i / sum).
Array chosen_backward(const RouteAttr& a, const RouteScores& s, const int32_t* ids, const double* d_probs) {
  Array d_scores(s.scores.size());
  const double sum = divisor(a, s, ids);
  double weighted = 0;
  if (a.normalize || a.score == RouteScore::softmax_last)
    for (int32_t j = 0; j < a.k; ++j)
      weighted += ids[j] < 0 ? 0 : d_probs[j] * s.scores[static_cast<size_t>(ids[j])];
  for (int32_t j = 0; j < a.k; ++j)
    if (ids[j] >= 0) d_scores[static_cast<size_t>(ids[j])] += a.scale * (d_probs[j] - weighted / sum) / sum;
  return d_scores;
}

void backward_input(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  const Array logits = load(call.in[0]), given = load(call.in[2]), earlier = load(call.in[4]),
              counts = load(call.out[2]), d_probs = load(call.d_out[0]), d_aux = load(call.d_out[3]),
              d_z = load(call.d_out[4]);
  const auto ids = load_ints(call.out[1]);
  const auto [rows, experts, classes, k] = sizes_of(call);
  const double n = std::max<double>(1, static_cast<double>(rows));
  Array d_logits(logits.size());
  for (size_t t = 0; t < rows; ++t) {
    const RouteScores s = route_scores(a, &logits[t * classes]);
    const Array d_scores =
        d_probs.empty() ? Array(classes) : chosen_backward(a, s, &ids[t * k], &d_probs[t * k]);
    Array d_shares(classes);
    for (size_t e = 0; e < experts && !d_aux.empty(); ++e)
      d_shares[e] =
          d_aux[0] * static_cast<double>(a.experts) / n * balanced_share(call, given, earlier, counts, e);
    const Array row = route_scores_backward(a, s, d_scores, d_shares);
    for (size_t e = 0; e < classes; ++e)
      d_logits[t * classes + e] = row[e] + (d_z.empty() ? 0 : d_z[0] * 2 * s.lse / n * s.softmax[e]);
  }
  store(call.d_in[0], d_logits);
}

}  // namespace

Kernel route_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
