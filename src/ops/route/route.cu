// route on a GPU: a block per chunk of 64 rows, four threads a row, whose 16 lanes are the virtual lanes in
// which score_block.h adds over classes. Nothing is kept per class: a score is recomputed from its logit
// wherever it is needed, and choice number j is the largest below choice j - 1.
#include "device/simd/loops.h"
#include "device/simd/reduce.h"
#include "device/simd/row_kernels.h"
#include "device/simd/vmath.h"
#include "ops/route/gpu_route.h"
#include "ops/route/keys.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kChunkThreads = kGpuRouteChunk * kThreadsOfRow;

/// What all classes of a row share.
struct Row {
  float top, sum;  ///< of the softmax
  float lse;
  float total;  ///< of sigmoid scores
};

/// f(first class, how many, running value) -> new running value over the classes, then the tree of reduce.h.
template <class F>
INGOT_INLINE float fold_row(int64_t n, F&& f) {
  Lanes acc = lanes(0.0f);
  each_vector(n,
              [&](int64_t c, int count) { acc.v[0] = first_lanes(count, f(c, count, acc.v[0]), acc.v[0]); });
  return tree_sum(acc);
}

INGOT_INLINE Vec probability(const Row& row, Vec l) {
  return vexp(l - set1(row.top)) / set1(row.sum);
}
INGOT_INLINE Vec score(const RouteRows& a, const Row& row, Vec l) {
  return a.sigmoid ? vsigmoid(l) : probability(row, l);
}
/// The part of all scores that the balance losses see.
INGOT_INLINE Vec share(const RouteRows& a, const Row& row, Vec l) {
  return a.sigmoid ? vsigmoid(l) / set1(row.total) : probability(row, l);
}
INGOT_INLINE float score_of_class(const RouteRows& a, const Row& row, const float* l, int64_t c) {
  return any_lane(score(a, row, set1(l[c])));
}

INGOT_INLINE Row row_of(const RouteRows& a, const float* l) {
  Row row{row_max(l, a.classes), 0, 0, 1};
  row.sum = fold_row(a.classes,
                     [&](int64_t c, int n, Vec acc) { return acc + vexp(load_n(l + c, n) - set1(row.top)); });
  row.lse = add_rn(row.top, any_lane(vlog(set1(row.sum))));
  if (a.sigmoid)
    row.total =
        fold_row(a.classes, [&](int64_t c, int n, Vec acc) { return acc + vsigmoid(load_n(l + c, n)); });
  return row;
}

INGOT_INLINE float entropy_of(const RouteRows& a, const Row& row, const float* l) {
  return fold_row(a.classes, [&](int64_t c, int n, Vec acc) {
    const Vec x = load_n(l + c, n), p = share(a, row, x);
    const Vec minus_log = a.sigmoid ? zero() - vlog(p) : set1(row.lse) - x;
    return acc + select(p > zero(), p * minus_log, zero());
  });
}

/// A class and its key.
struct Candidate {
  int32_t key, index;
};
INGOT_INLINE Candidate above_all() {
  return {INT32_MAX, -1};
}
INGOT_INLINE Candidate below_all() {
  return {INT32_MIN, INT32_MAX};
}

INGOT_INLINE bool is_before(Candidate a, Candidate b) {
  return a.key > b.key || (a.key == b.key && a.index < b.index);
}

/// Which classes take part: those of the groups whose bit is set.
struct Kept {
  uint64_t groups;
  int64_t size;  ///< of a group; 0: all classes take part
};
INGOT_INLINE bool is_kept(const Kept& kept, int64_t c) {
  return kept.size == 0 || (kept.groups >> (c / kept.size) & 1) != 0;
}

/// Keys of n classes from c on.
INGOT_INLINE VecI keys_at(const RouteRows& a, const Row& row, const float* l, int64_t c, int n) {
  const Vec x = load_n(l + c, n), s = a.logits_score ? x : score(a, row, x);
  return key_of(a.bias != nullptr ? s + load_n(a.bias + c, n) : s);
}

/// The first after `last` of the classes begin .. end; all four threads know it.
INGOT_INLINE Candidate next_candidate(const RouteRows& a, const Row& row, const float* l, int64_t begin,
                                      int64_t end, Candidate last, const Kept& kept) {
  Candidate best = below_all();
  each_vector(end - begin, [&](int64_t i, int n) {
    const VecI keys = keys_at(a, row, l, begin + i, n);
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q) {
      const Candidate c{keys.v[q], static_cast<int32_t>(begin + i) + first_lane() + q};
      if (first_lane() + q < n && is_kept(kept, c.index) && is_before(last, c) && is_before(c, best))
        best = c;
    }
  });
  INGOT_UNROLL
  for (unsigned apart = 2; apart >= 1; apart /= 2) {
    const Candidate other{static_cast<int32_t>(bits_of(shuffle_xor<kThreadsOfRow>(
                              as_float_bits(static_cast<uint32_t>(best.key)), apart))),
                          static_cast<int32_t>(bits_of(shuffle_xor<kThreadsOfRow>(
                              as_float_bits(static_cast<uint32_t>(best.index)), apart)))};
    if (is_before(other, best)) best = other;
  }
  return best;
}

/// The groups that take part: the best by the sum of their largest scores, ties to the first.
INGOT_INLINE Kept kept_groups(const RouteRows& a, const Row& row, const float* l) {
  Kept kept{0, a.experts / a.groups};
  const int64_t top = a.k / a.groups_kept;
  Candidate last = above_all();
  for (int64_t j = 0; j < a.groups_kept; ++j) {
    Candidate best = below_all();
    for (int64_t g = 0; g < a.groups; ++g) {
      float sum = 0;
      Candidate member = above_all();
      for (int64_t i = 0; i < top; ++i) {
        member = next_candidate(a, row, l, g * kept.size, (g + 1) * kept.size, member, Kept{0, 0});
        sum = add_rn(sum, any_lane(score_of(set1i(member.key))));
      }
      const Candidate c{key_of(set1(sum)).v[0], static_cast<int32_t>(g)};
      if (is_before(last, c) && is_before(c, best)) best = c;
    }
    kept.groups |= uint64_t{1} << best.index;
    last = best;
  }
  return kept;
}

/// Writes the row's choices in ascending order: those up to the last of the k best.
INGOT_INLINE void select_experts(const RouteRows& a, const Row& row, const float* l, int32_t* ids) {
  const Kept kept = a.groups_kept < a.groups ? kept_groups(a, row, l) : Kept{0, 0};
  Candidate last = above_all();
  for (int64_t j = 0; j < a.k; ++j) last = next_candidate(a, row, l, 0, a.choices, last, kept);
  float written = 0;  // by all four threads
  each_vector(a.choices, [&](int64_t first, int n) {
    const VecI keys = keys_at(a, row, l, first, n);
    bool chosen[kLanesOfThread];
    float own = 0;
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q) {
      const Candidate c{keys.v[q], static_cast<int32_t>(first) + first_lane() + q};
      chosen[q] = first_lane() + q < n && is_kept(kept, c.index) && !is_before(last, c);
      own += chosen[q] ? 1.0f : 0.0f;
    }
    const float beside = shuffle_xor<kThreadsOfRow>(own, 1), pair = own + beside,
                far = shuffle_xor<kThreadsOfRow>(pair, 2);
    const unsigned t = thread_index() % kThreadsOfRow;
    auto at = static_cast<int64_t>(written + (t % 2 == 1 ? beside : 0.0f) + (t >= 2 ? far : 0.0f));
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q) {
      const auto e = static_cast<int32_t>(first) + first_lane() + q;
      if (chosen[q]) ids[at++] = e < a.experts ? e : -1;
    }
    written += pair + far;
  });
}

/// The weights of the row's choices; the four threads divide them.
INGOT_INLINE void weigh(const RouteRows& a, const Row& row, const float* l, int64_t t) {
  if (a.probs == nullptr) return;
  const int32_t* ids = a.ids + t * a.k;
  float chosen = a.epsilon;
  for (int64_t j = 0; j < a.k; ++j)
    if (ids[j] >= 0) chosen = add_rn(chosen, score_of_class(a, row, l, ids[j]));
  for (int64_t j = thread_index() % kThreadsOfRow; j < a.k; j += kThreadsOfRow) {
    const float of = ids[j] >= 0 ? score_of_class(a, row, l, ids[j]) : 0.0f;
    a.probs[t * a.k + j] = mul_rn(a.scale, a.divide && ids[j] >= 0 ? div_rn(of, chosen) : of);
  }
}

struct ChunkRows {
  Row row[kGpuRouteChunk];
  float entropy[kGpuRouteChunk];
};

/// The sums of the block's rows, each in ascending order of rows.
INGOT_INLINE void add_up(const RouteRows& a, const ChunkRows& of, int64_t begin, int64_t count, float* sums) {
  for (int64_t e = thread_index(); e < a.experts; e += kChunkThreads) {
    float chosen = 0;
    for (int64_t j = begin * a.k; j < (begin + count) * a.k; ++j) chosen += a.ids[j] == e ? 1.0f : 0.0f;
    sums[e] = chosen;
  }
  for (int64_t c = thread_index() / kThreadsOfRow * kLanes; c < a.experts; c += kGpuRouteChunk * kLanes) {
    const int n = static_cast<int>(min64(kLanes, a.experts - c));
    Vec mass = zero();
    for (int64_t i = 0; i < count; ++i)
      mass = mass + share(a, of.row[i], load_n(a.logits + (begin + i) * a.classes + c, n));
    store_n(sums + a.experts + c, mass, n);
  }
  if (thread_index() != 0) return;
  float square = 0, entropy = 0;
  for (int64_t i = 0; i < count; ++i) {
    square = fma_rn(of.row[i].lse, of.row[i].lse, square);
    entropy = add_rn(entropy, of.entropy[i]);
  }
  sums[2 * a.experts] = square, sums[2 * a.experts + 1] = entropy;
}

INGOT_KERNEL(kChunkThreads)
forward_kernel(const RouteRows a, int64_t rows, float* sums, int64_t stride) {
  INGOT_SHARED(ChunkRows, of);
  const int64_t begin = block_index() * kGpuRouteChunk, count = min64(kGpuRouteChunk, rows - begin),
                i = thread_index() / kThreadsOfRow, t = begin + i;
  const float* l = a.logits + t * a.classes;
  Row row{};
  if (i < count) {
    row = row_of(a, l);
    const float entropy = entropy_of(a, row, l);
    if (writes_scalars()) of.row[i] = row, of.entropy[i] = entropy;
    if (a.forced == nullptr) select_experts(a, row, l, a.ids + t * a.k);
  }
  if (a.forced != nullptr)
    for (int64_t j = begin * a.k + thread_index(); j < (begin + count) * a.k; j += kChunkThreads)
      a.ids[j] = a.forced[j];
  sync_threads();
  if (i < count) weigh(a, row, l, t);
  add_up(a, of, begin, count, sums + block_index() * stride);
}

INGOT_INLINE double balance_of(const GpuRouteBalance& b, int64_t e) {
  const double counted =
      static_cast<double>(b.load[e]) + (b.earlier != nullptr ? static_cast<double>(b.earlier[e]) : 0.0);
  return b.experts_by_rows * (counted / b.choices);
}

struct Terms {
  double x[kRowKernelThreads];
};

/// One block: its threads form the terms of the balance loss, the first one adds them in order.
INGOT_KERNEL(kRowKernelThreads)
losses_kernel(const GpuRouteLosses a) {
  INGOT_SHARED(Terms, terms);
  const int64_t experts = a.balance.experts;
  double aux = 0;
  for (int64_t first = 0; first < experts; first += kRowKernelThreads) {
    const int64_t e = first + thread_index();
    if (e < experts) {
      terms.x[thread_index()] = balance_of(a.balance, e) * static_cast<double>(a.totals[experts + e]);
      a.counts[e] = a.totals[e];
    }
    sync_threads();
    for (int64_t i = 0; thread_index() == 0 && i < min64(kRowKernelThreads, experts - first); ++i)
      aux += terms.x[i];
    sync_threads();
  }
  if (thread_index() != 0) return;
  *a.aux = static_cast<float>(aux);
  *a.z = static_cast<float>(static_cast<double>(a.totals[2 * experts]) / a.rows);
  *a.entropy = static_cast<float>(static_cast<double>(a.totals[2 * experts + 1]) / a.rows);
}

INGOT_KERNEL(kRowKernelThreads)
cotangents_kernel(const GpuRouteCotangents a) {
  const int64_t e = global_thread();
  if (e == 0)
    *a.d_square = a.d_z != nullptr ? static_cast<float>(static_cast<double>(*a.d_z) / a.rows) : 0.0f;
  if (e < a.balance.experts && a.d_aux != nullptr)
    a.d_mass[e] = static_cast<float>(static_cast<double>(*a.d_aux) * balance_of(a.balance, e));
}

/// What the chosen weights ask of the scores, by class; see add_chosen() of isa_route.cpp.
struct Asked {
  const float* d;  ///< nullptr: nothing
  const int32_t* ids;
  float chosen, weighted;
};
INGOT_INLINE Asked asked_of(const RouteRows& a, const Row& row, const float* l, int64_t t) {
  Asked asked{a.d_probs != nullptr ? a.d_probs + t * a.k : nullptr, a.ids + t * a.k, a.epsilon, 0};
  for (int64_t j = 0; asked.d != nullptr && j < a.k; ++j) {
    if (asked.ids[j] < 0) continue;
    const float of = score_of_class(a, row, l, asked.ids[j]);
    asked.chosen = add_rn(asked.chosen, of);
    asked.weighted = fma_rn(asked.d[j], of, asked.weighted);
  }
  return asked;
}
/// d_p of the classes from c on, with what the choices ask.
INGOT_INLINE Vec add_chosen(const RouteRows& a, const Asked& asked, int64_t c, Vec d_p) {
  for (int64_t j = 0; asked.d != nullptr && j < a.k; ++j) {
    const int64_t lane = asked.ids[j] - c - first_lane();
    if (asked.ids[j] < 0 || lane < 0 || lane >= kLanesOfThread) continue;
    const float d = a.divide ? div_rn(sub_rn(asked.d[j], div_rn(asked.weighted, asked.chosen)), asked.chosen)
                             : asked.d[j];
    INGOT_UNROLL
    for (int q = 0; q < kLanesOfThread; ++q)
      if (q == lane) d_p.v[q] = add_rn(d_p.v[q], mul_rn(a.scale, d));
  }
  return d_p;
}

/// d_p of the balance losses alone, of n classes: the cotangent of the mass of each real expert.
INGOT_INLINE Vec mass_gradient(const RouteRows& a, int64_t c, int n) {
  const int64_t real = min64(n, a.experts - c);
  return a.d_mass != nullptr && real > 0 ? load_n(a.d_mass + c, static_cast<int>(real)) : zero();
}

INGOT_KERNEL(kRowKernelThreads)
backward_kernel(const RouteRows a, int64_t rows, const float* d_square) {
  const int64_t t = row_of_thread();
  if (t >= rows) return;
  const float* l = a.logits + t * a.classes;
  const Row row = row_of(a, l);
  const Asked asked = asked_of(a, row, l, t);
  const Vec z = set1(mul_rn(2, *d_square)) * set1(row.lse);
  const auto d_softmax = [&](int64_t c, int n) { return add_chosen(a, asked, c, mass_gradient(a, c, n)); };
  const float dot = fold_row(a.classes, [&](int64_t c, int n, Vec acc) {
    const Vec d = a.sigmoid ? mass_gradient(a, c, n) : d_softmax(c, n);
    return fma(d, share(a, row, load_n(l + c, n)), acc);
  });
  each_vector(a.classes, [&](int64_t c, int n) {
    const Vec x = load_n(l + c, n), p = probability(row, x);
    float* const to = a.d_logits + t * a.classes + c;
    if (!a.sigmoid) return put_n(to, p * (d_softmax(c, n) + (z - set1(dot))), n, a.accumulate);
    const Vec s = vsigmoid(x);
    const Vec of_mass = a.d_mass != nullptr ? (mass_gradient(a, c, n) - set1(dot)) / set1(row.total) : zero();
    const Vec d_p = add_chosen(a, asked, c, of_mass);
    put_n(to, fma(d_p * s, set1(1.0f) - s, z * p), n, a.accumulate);
  });
}

}  // namespace

void launch_route_forward(GpuStream stream, const RouteRows& args, int64_t rows, float* sums,
                          int64_t stride) {
  launch("route_forward", forward_kernel, {(rows + kGpuRouteChunk - 1) / kGpuRouteChunk, kChunkThreads},
         stream, args, rows, sums, stride);
}

void launch_route_losses(GpuStream stream, const GpuRouteLosses& args) {
  launch("route_losses", losses_kernel, {1, kRowKernelThreads}, stream, args);
}

void launch_route_backward(GpuStream stream, const RouteRows& args, int64_t rows,
                           const GpuRouteCotangents& losses) {
  const int64_t experts = losses.balance.experts;
  launch("route_cotangents", cotangents_kernel, grid_of(experts, kRowKernelThreads), stream, losses);
  RouteRows a = args;
  a.d_mass = losses.d_aux != nullptr ? losses.d_mass : nullptr;
  launch("route_backward", backward_kernel, grid_of_rows(rows), stream, a, rows, losses.d_square);
}

}  // namespace ingot::INGOT_ISA
