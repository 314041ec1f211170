// route on the CPU: a softmax and a selection per token. Sums over tokens are taken in chunks of 64 rows, combined in
// order, so that counts and losses do not depend on threads.
#include <cmath>
#include <limits>
#include <vector>

#include "device/cpu/vmath_scalar.h"
#include "ops/cpu_rows.h"
#include "ops/parameter_chunks.h"
#include "ops/route/kernels.h"
#include "ops/route/route.h"

namespace ingot {
namespace {

struct Softmax {
  float lse = 0;
  float entropy = 0;
};

/// p = softmax(logits) over n classes, exponentials added in ascending order.
Softmax softmax(const float* logits, int64_t n, float* p) {
  const float top = vmath::row_max(logits, n);
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += p[e] = vmath::exp(logits[e] - top);
  Softmax s{top + vmath::log(sum), 0};
  const float scale = 1.0f / sum;
  for (int64_t e = 0; e < n; ++e) {
    s.entropy -= p[e] * scale * (logits[e] - s.lse);
    p[e] *= scale;
  }
  return s;
}

/// The k largest scores, ties to the lowest index, written in ascending order.
void choose(const float* scores, const float* bias, int64_t experts, int64_t k, int32_t* ids) {
  int32_t taken[256];
  INGOT_CHECK(k <= 256, "top-{}", k);
  for (int64_t j = 0; j < k; ++j) {
    int32_t best = -1;
    float best_score = 0;
    for (int64_t e = 0; e < experts; ++e) {
      bool free = true;
      for (int64_t i = 0; i < j; ++i) free &= taken[i] != e;
      const float score = scores[e] + (bias != nullptr ? bias[e] : 0.0f);
      if (free && (best < 0 || score > best_score)) best = static_cast<int32_t>(e), best_score = score;
    }
    taken[j] = best;
  }
  for (int64_t j = 0; j < k; ++j) {  // insertion sort: k is small
    int64_t at = j;
    for (; at > 0 && ids[at - 1] > taken[j]; --at) ids[at] = ids[at - 1];
    ids[at] = taken[j];
  }
}

/// Extents of a call.
struct Sizes {
  int64_t rows, experts, classes, k;
  explicit Sizes(const OpCall& call) {
    const auto& a = call.attr<RouteAttr>();
    rows = call.in[0].dim(0), experts = a.experts, classes = a.experts + a.skip_classes, k = a.k;
  }
};

void forward(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  const Sizes n(call);
  const auto* logits = call.in[0].as<float>();
  const float* bias = call.in[1].defined() ? call.in[1].as<float>() : nullptr;
  const float* load = call.in[2].defined() ? call.in[2].as<float>() : nullptr;
  const int32_t* forced = call.in[3].defined() ? call.in[3].as<int32_t>() : nullptr;
  auto* probs = call.out[0].as<float>();
  auto* ids = call.out[1].as<int32_t>();
  const int64_t chunks = parameter_chunks(n.rows), stride = n.classes + 2;
  std::vector<double> partial(static_cast<size_t>(chunks * stride), 0.0);
  parallel_for(chunks, std::max<int64_t>(1, 64 / n.classes), [&](int64_t first, int64_t last) {
    std::vector<float> p(static_cast<size_t>(n.classes));
    for (int64_t c = first; c < last; ++c) {
      double* sums = &partial[static_cast<size_t>(c * stride)];
      const int64_t end = std::min(n.rows, (c + 1) * kParameterChunkRows);
      for (int64_t t = c * kParameterChunkRows; t < end; ++t) {
        const float* row = logits + t * n.classes;
        const Softmax s = softmax(row, n.classes, p.data());
        for (int64_t e = 0; e < n.classes; ++e) sums[e] += p[static_cast<size_t>(e)];
        sums[n.classes] += static_cast<double>(s.lse) * s.lse;
        sums[n.classes + 1] += s.entropy;
        int32_t* mine = ids + t * n.k;
        if (forced != nullptr) std::copy_n(forced + t * n.k, n.k, mine);
        else choose(a.score == RouteScore::softmax_first ? p.data() : row, bias, n.experts, n.k, mine);
        float chosen = 0;
        for (int64_t j = 0; j < n.k; ++j) chosen += p[static_cast<size_t>(mine[j])];
        const float divide = a.normalize || a.score == RouteScore::softmax_last ? chosen : 1.0f;
        for (int64_t j = 0; j < n.k; ++j)
          probs[t * n.k + j] = static_cast<float>(a.scale) * (p[static_cast<size_t>(mine[j])] / divide);
      }
    }
  });
  std::vector<double> total(static_cast<size_t>(stride), 0.0);
  for (int64_t c = 0; c < chunks; ++c)
    for (int64_t i = 0; i < stride; ++i) total[static_cast<size_t>(i)] += partial[static_cast<size_t>(c * stride + i)];
  std::vector<int64_t> counts(static_cast<size_t>(n.experts), 0);
  for (int64_t s = 0; s < n.rows * n.k; ++s) ++counts[static_cast<size_t>(ids[s])];
  const double tokens = std::max<double>(1, static_cast<double>(n.rows));
  double aux = 0;
  for (int64_t e = 0; e < n.experts; ++e) {
    const auto i = static_cast<size_t>(e);
    call.out[2].as<float>()[e] = static_cast<float>(counts[i]);
    aux += static_cast<double>(n.experts) / tokens * total[i] *
           (load != nullptr ? load[e] : static_cast<double>(counts[i]) / (static_cast<double>(n.k) * tokens));
  }
  *call.out[3].as<float>() = static_cast<float>(aux);
  *call.out[4].as<float>() = static_cast<float>(total[static_cast<size_t>(n.classes)] / tokens);
  *call.out[5].as<float>() = static_cast<float>(total[static_cast<size_t>(n.classes) + 1] / tokens);
}

void backward_input(const OpCall& call) {
  const GradSlot& slot = call.d_in[0];
  if (!slot.wanted()) return;
  const auto& a = call.attr<RouteAttr>();
  const Sizes n(call);
  const auto* logits = call.in[0].as<float>();
  const auto* ids = call.out[1].as<int32_t>();
  const auto* counts = call.out[2].as<float>();
  const float* load = call.in[2].defined() ? call.in[2].as<float>() : nullptr;
  const float* d_probs = call.d_out[0].defined() ? call.d_out[0].as<float>() : nullptr;
  const double d_aux = call.d_out[3].defined() ? *call.d_out[3].as<float>() : 0;
  const double d_z = call.d_out[4].defined() ? *call.d_out[4].as<float>() : 0;
  const double tokens = std::max<double>(1, static_cast<double>(n.rows));
  std::vector<float> balance(static_cast<size_t>(n.classes), 0.0f);  // d aux_loss / d P of every token
  for (int64_t e = 0; e < n.experts; ++e)
    balance[static_cast<size_t>(e)] = static_cast<float>(
        d_aux * static_cast<double>(n.experts) / tokens * (load != nullptr ? load[e] : counts[e] / (static_cast<double>(n.k) * tokens)));
  auto* d_logits = slot.tensor.as<float>();
  parallel_for(n.rows, row_grain(n.classes, 4096), [&](int64_t begin, int64_t end) {
    std::vector<float> p(static_cast<size_t>(n.classes)), d_p(static_cast<size_t>(n.classes));
    for (int64_t t = begin; t < end; ++t) {
      const Softmax s = softmax(logits + t * n.classes, n.classes, p.data());
      std::copy(balance.begin(), balance.end(), d_p.begin());
      const int32_t* mine = ids + t * n.k;
      float sum = 0, weighted = 0;
      for (int64_t j = 0; j < n.k && d_probs != nullptr; ++j) {
        sum += p[static_cast<size_t>(mine[j])];
        weighted += d_probs[t * n.k + j] * p[static_cast<size_t>(mine[j])];
      }
      const bool divide = a.normalize || a.score == RouteScore::softmax_last;
      for (int64_t j = 0; j < n.k && d_probs != nullptr; ++j) {
        const float d = d_probs[t * n.k + j];
        d_p[static_cast<size_t>(mine[j])] += static_cast<float>(a.scale) * (divide ? (d - weighted / sum) / sum : d);
      }
      float dot = 0;
      for (size_t e = 0; e < p.size(); ++e) dot += d_p[e] * p[e];
      const auto z = static_cast<float>(d_z * 2 * s.lse / tokens);
      for (size_t e = 0; e < p.size(); ++e) {
        const float d = p[e] * (d_p[e] - dot) + z * p[e];
        float& to = d_logits[t * n.classes + static_cast<int64_t>(e)];
        to = slot.accumulate ? to + d : d;
      }
    }
  });
}

}  // namespace

std::vector<Kernel> route_kernels() {
  return {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, route_reference()};
}

}  // namespace ingot
