// See row_sampler.h.
#include "infer/row_sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "base/philox.h"
#include "device/simd/vector_functions.h"
#include "ops/head/isa_head.h"

namespace ingot {
namespace {

constexpr int64_t kBlock = 256;  // weights whose sum is one term of the total

/// In independent lanes: x - x is 0 for a number, and NaN for an infinity or NaN.
bool all_finite(std::span<const float> x) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] - x[i + lane];
  for (; i < x.size(); ++i) lanes[0] += x[i] - x[i];
  return std::all_of(lanes, lanes + kLanes, [](float sum) { return sum == 0; });
}

Error not_finite(std::span<const float> logits) {
  const auto bad = [](float x) { return !std::isfinite(x); };
  const auto first = std::find_if(logits.begin(), logits.end(), bad);
  return Error(
      fmt::format("{} of the model's {} logits are not finite; the first, of token {}, is {}",
                  std::count_if(first, logits.end(), bad), logits.size(), first - logits.begin(), *first),
      "the weights have diverged or overflow in this precision: give an older checkpoint, or --weights f32");
}

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

/// Keeps the largest weights whose amounts reach `enough`, equal ones in ascending order of ids, and makes
/// the others 0. The bits of a weight, which is not negative, order it: they are searched digit by digit.
template <class Amount>
void keep_largest(std::span<float> w, double enough, Amount amount) {
  constexpr int kShifts[] = {21, 10, 0};
  constexpr uint32_t kDigits = 2048;
  uint32_t prefix = 0, mask = 0;
  double above = 0;  // amounts of the weights above those with this prefix
  thread_local std::vector<double> sums;
  for (const int shift : kShifts) {
    sums.assign(kDigits, 0);
    for (const float x : w)
      if (const uint32_t b = bits_of(x); b != 0 && (b & mask) == prefix)
        sums[b >> shift & (kDigits - 1)] += amount(x);
    uint32_t digit = kDigits - 1;
    for (; digit > 0 && above + sums[digit] < enough; --digit) above += sums[digit];
    prefix |= digit << shift, mask |= (kDigits - 1) << shift;
  }
  for (float& x : w) {
    const uint32_t b = bits_of(x);
    if (b == prefix && b != 0 && above < enough)
      above += amount(x);
    else if (b <= prefix)
      x = 0;
  }
}

void filter(std::span<float> w, const SamplingOptions& o) {
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(w.size()))
    keep_largest(w, static_cast<double>(o.top_k), [](float) { return 1.0; });
  if (o.top_p < 1) {
    double total = 0;
    for (const float x : w) total += x;
    keep_largest(w, o.top_p * total, [](float x) { return static_cast<double>(x); });
  }
  if (o.min_p > 0) {
    const double least = o.min_p * INGOT_ISA_CALL(array_max)(w.data(), static_cast<int64_t>(w.size()));
    for (float& x : w)
      if (x < least) x = 0;
  }
}

int32_t draw_from(std::span<const float> w, double u) {
  const auto count = static_cast<int64_t>(w.size());
  const auto sum_of = [&](int64_t block) {
    return static_cast<double>(INGOT_ISA_CALL(array_sum)(w.data() + block, std::min(kBlock, count - block)));
  };
  thread_local std::vector<double> sums;
  sums.clear();
  double total = 0;
  for (int64_t b = 0; b < count; b += kBlock) total += sums.emplace_back(sum_of(b));
  double left = u * total;
  int64_t last = -1;  // where rounding leaves a rest at the end of a block: its last token that can be drawn
  for (int64_t b = 0; b < count; b += kBlock) {
    const double sum = sums[static_cast<size_t>(b / kBlock)];
    if (sum == 0) continue;
    const bool here = left < sum;
    if (!here) left -= sum;
    if (!here && b + kBlock < count) continue;
    for (int64_t i = b; i < std::min(count, b + kBlock); ++i) {
      if (w[static_cast<size_t>(i)] == 0) continue;
      last = i;
      left -= w[static_cast<size_t>(i)];
      if (here && left < 0) break;
    }
    if (here) return static_cast<int32_t>(last);
  }
  for (int64_t i = count; last < 0 && i-- > 0;)
    if (w[static_cast<size_t>(i)] > 0) last = i;
  return static_cast<int32_t>(last);
}

/// The k largest of the first `vocab` logits.
void list_top(DrawnToken& out, const RowDraw& d, float lse) {
  thread_local std::vector<int32_t> ids;
  const auto before = [&](int32_t a, int32_t b) {
    const float x = d.logits[static_cast<size_t>(a)], y = d.logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto k = static_cast<size_t>(std::min(d.top, d.vocab));
  ids.clear();
  if (k <= 32) {  // a sorted list; nearly every logit is below its last
    for (int32_t id = 0; id < d.vocab && k > 0; ++id) {
      if (ids.size() == k && !before(id, ids.back())) continue;
      if (ids.size() == k) ids.pop_back();
      ids.insert(std::upper_bound(ids.begin(), ids.end(), id, before), id);
    }
  } else {
    for (int32_t id = 0; id < d.vocab; ++id) ids.push_back(id);
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), before);
    ids.resize(k);
  }
  for (const int32_t id : ids) out.top.push_back({id, d.logits[static_cast<size_t>(id)] - lse});
}

}  // namespace

uint64_t sampling_stream(uint64_t key, int64_t sample) {
  return Random(key, RandomPurpose::sampling, static_cast<uint64_t>(sample)).bits64(0);
}

DrawnToken draw_token(const RowDraw& d) {
  DrawnToken out;
  const auto rows = static_cast<int64_t>(d.logits.size());
  const SamplingOptions& o = d.sampling;
  INGOT_CHECK(d.vocab > 0 && d.vocab <= rows, "{} of {} logits", d.vocab, rows);
  if (!all_finite(d.logits)) return out.error = not_finite(d.logits), out;
  thread_local std::vector<float> weights, kept_logits;
  weights.resize(static_cast<size_t>(rows));
  const float lse = INGOT_ISA_CALL(head_softmax)(weights.data(), d.logits.data(), 1.0f, rows);
  if (d.top > 0) list_top(out, d, lse);
  const auto drawable = std::span(weights).first(static_cast<size_t>(d.vocab));
  float sampled_lse = lse, scale = 1;
  bool filtered = false;
  if (o.temperature == 0) {
    const auto first = d.logits.begin();
    out.id = d.chosen ? *d.chosen : static_cast<int32_t>(std::max_element(first, first + d.vocab) - first);
  } else {
    scale = static_cast<float>(1 / o.temperature);
    if (scale != 1) sampled_lse = INGOT_ISA_CALL(head_softmax)(weights.data(), d.logits.data(), scale, rows);
    filtered = o.filters();
    if (filtered) filter(drawable, o);
    const double u =
        static_cast<double>(Random(o.seed, RandomPurpose::sampling, d.stream).bits64(d.position) >> 11) *
        0x1p-53;
    out.id = d.chosen ? *d.chosen : draw_from(drawable, u);
  }
  const float logit = d.logits[static_cast<size_t>(out.id)];
  out.logprob = logit - lse;
  if (!filtered) return out.sampled_logprob = logit * scale - sampled_lse, out;
  kept_logits.clear();
  for (int64_t id = 0; id < d.vocab; ++id)
    if (weights[static_cast<size_t>(id)] > 0) {
      out.kept.push_back(static_cast<int32_t>(id));
      kept_logits.push_back(d.logits[static_cast<size_t>(id)]);
    }
  if (weights[static_cast<size_t>(out.id)] == 0) return out.sampled_logprob = out.logprob, out;
  weights.resize(kept_logits.size());
  out.sampled_logprob =
      logit * scale - INGOT_ISA_CALL(head_softmax)(weights.data(), kept_logits.data(), scale,
                                                   static_cast<int64_t>(kept_logits.size()));
  if (!d.kept) out.kept.clear();
  return out;
}

void draw_tokens(std::span<const RowDraw> draws, std::span<DrawnToken> drawn) {
  constexpr int64_t kLogits = 1 << 14;  // of a piece of work
  const int64_t width = draws.empty() ? 1 : static_cast<int64_t>(draws[0].logits.size());
  parallel_for(static_cast<int64_t>(draws.size()), std::max<int64_t>(1, kLogits / width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   drawn[static_cast<size_t>(i)] = draw_token(draws[static_cast<size_t>(i)]);
               });
}

}  // namespace ingot
