// See sampling.h.
#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace ingot {
namespace {

struct Candidate {
  int32_t id;
  double p;
};

}  // namespace

void validate(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    fail("temperature is {}, expected a number >= 0", o.temperature);
  if (o.top_k < 0) fail("top_k is {}, expected >= 0 (0: all tokens)", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p is {}, expected more than 0 and at most 1", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p is {}, expected between 0 and 1", o.min_p);
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& o, uint64_t stream, uint64_t index) {
  INGOT_CHECK(!logits.empty());
  const auto best = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (o.temperature == 0) return static_cast<int32_t>(best);
  std::vector<Candidate> c(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    c[i] = {static_cast<int32_t>(i), std::exp((static_cast<double>(logits[i]) - logits[best]) / o.temperature)};
  const auto more_likely = [](const Candidate& a, const Candidate& b) { return a.p != b.p ? a.p > b.p : a.id < b.id; };
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(c.size())) {
    std::nth_element(c.begin(), c.begin() + o.top_k, c.end(), more_likely);
    c.resize(static_cast<size_t>(o.top_k));
  }
  const auto total = [&] {
    return std::accumulate(c.begin(), c.end(), 0.0, [](double sum, const Candidate& x) { return sum + x.p; });
  };
  std::sort(c.begin(), c.end(), more_likely);
  if (o.top_p < 1) {
    const double enough = o.top_p * total();
    double sum = 0;
    size_t kept = 0;
    while (kept < c.size() && (kept == 0 || sum < enough)) sum += c[kept++].p;
    c.resize(kept);
  }
  if (o.min_p > 0)
    while (c.size() > 1 && c.back().p < o.min_p * c.front().p) c.pop_back();
  double u = static_cast<double>(Random(o.seed, RandomPurpose::sampling, stream).bits64(index) >> 11) * 0x1p-53 * total();
  for (const Candidate& x : c) {
    u -= x.p;
    if (u < 0) return x.id;
  }
  return c.back().id;
}

}  // namespace ingot
