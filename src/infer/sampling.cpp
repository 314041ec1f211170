// See sampling.h.
#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace ingot {
namespace {

struct Candidate {
  int32_t id;
  double p;
  bool operator<(const Candidate& other) const { return p != other.p ? p > other.p : id < other.id; }
};

/// Tokens by falling probability, sorted only as far as they are read: vocabularies are large, and few tokens
/// are likely.
class Ranking {
 public:
  explicit Ranking(std::vector<Candidate> all) : all_(std::move(all)) {}
  const Candidate& operator[](size_t i) {
    while (i >= ordered_) {
      const size_t next = std::min(all_.size(), std::max<size_t>(64, 4 * ordered_));
      const auto from = all_.begin() + static_cast<std::ptrdiff_t>(ordered_),
                 to = all_.begin() + static_cast<std::ptrdiff_t>(next);
      std::nth_element(from, to, all_.end());
      std::sort(from, to);
      ordered_ = next;
    }
    return all_[i];
  }
  size_t size() const { return all_.size(); }
  double sum_of(size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += (*this)[i].p;
    return sum;
  }

 private:
  std::vector<Candidate> all_;
  size_t ordered_ = 0;
};

/// The first index of the largest logit. It compares in independent lanes: in one chain of comparisons it
/// would take as long as the attention of a layer.
size_t most_likely(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float top[kLanes];
  std::fill_n(top, kLanes, logits[0]);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      top[lane] = top[lane] < logits[i + lane] ? logits[i + lane] : top[lane];
  float most = *std::max_element(top, top + kLanes);
  for (; i < logits.size(); ++i) most = std::max(most, logits[i]);
  return static_cast<size_t>(std::find(logits.begin(), logits.end(), most) - logits.begin());
}

/// In independent lanes too: x - x is 0 for a number, and NaN for an infinity or NaN.
bool all_finite(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += logits[i + lane] - logits[i + lane];
  for (; i < logits.size(); ++i) lanes[0] += logits[i] - logits[i];
  return std::all_of(lanes, lanes + kLanes, [](float sum) { return sum == 0; });
}

}  // namespace

void validate(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    fail("temperature is {}, expected a number >= 0", o.temperature);
  if (o.top_k < 0) fail("top_k is {}, expected >= 0 (0: all tokens)", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p is {}, expected more than 0 and at most 1", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p is {}, expected between 0 and 1", o.min_p);
}

void require_finite(std::span<const float> logits) {
  if (all_finite(logits)) return;
  const auto bad = [](float x) { return !std::isfinite(x); };
  const auto first = std::find_if(logits.begin(), logits.end(), bad);
  throw Error(
      fmt::format("{} of the model's {} logits are not finite; the first, of token {}, is {}",
                  std::count_if(first, logits.end(), bad), logits.size(), first - logits.begin(), *first),
      "the weights have diverged or overflow in this precision: give an older checkpoint, or --weights f32");
}

int32_t sample_token(std::span<const float> logits, const SamplingOptions& o, uint64_t stream,
                     uint64_t index) {
  INGOT_CHECK(!logits.empty());
  require_finite(logits);
  const size_t best = most_likely(logits);
  if (o.temperature == 0) return static_cast<int32_t>(best);
  std::vector<Candidate> all(logits.size());
  double total = 0;  // of the tokens kept
  for (size_t i = 0; i < logits.size(); ++i) {
    all[i] = {static_cast<int32_t>(i),
              std::exp((static_cast<double>(logits[i]) - logits[best]) / o.temperature)};
    total += all[i].p;
  }
  Ranking ranking(std::move(all));
  size_t kept = ranking.size();
  const auto keep = [&](size_t count) {
    if (count < kept) total = ranking.sum_of(kept = count);
  };
  if (o.top_k > 0) keep(static_cast<size_t>(o.top_k));
  if (o.top_p < 1) {
    const double enough = o.top_p * total;
    size_t count = 0;
    for (double sum = 0; count < kept && (count == 0 || sum < enough); ++count) sum += ranking[count].p;
    keep(count);
  }
  if (o.min_p > 0) {
    size_t count = 1;
    while (count < kept && ranking[count].p >= o.min_p * ranking[0].p) ++count;
    keep(count);
  }
  double u = static_cast<double>(Random(o.seed, RandomPurpose::sampling, stream).bits64(index) >> 11) *
             0x1p-53 * total;
  for (size_t i = 0; i < kept; ++i) {
    u -= ranking[i].p;
    if (u < 0) return ranking[i].id;
  }
  return ranking[kept - 1].id;
}

std::vector<TokenProbability> log_probabilities(std::span<const float> logits, int32_t id, int64_t k) {
  const double most = logits[most_likely(logits)];
  double sum = 0;
  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    all[i] = {static_cast<int32_t>(i), logits[i]};
    sum += std::exp(logits[i] - most);
  }
  const double log_sum = most + std::log(sum);
  std::vector<TokenProbability> out{{id, logits[static_cast<size_t>(id)] - log_sum}};
  Ranking ranking(std::move(all));
  for (size_t i = 0; i < std::min(static_cast<size_t>(k), ranking.size()); ++i)
    out.push_back({ranking[i].id, ranking[i].p - log_sum});
  return out;
}

}  // namespace ingot
