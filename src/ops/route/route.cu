// route on a GPU: a block per chunk of 64 rows, four threads a row, whose 16 lanes are the virtual lanes in
// which score_block.h adds over classes. Nothing is kept per class: a score is recomputed from its logit
// wherever it is needed.
#include "device/gpu/ordered_sum.h"
#include "ops/route/gpu_candidates.h"
#include "ops/route/gpu_chunks.h"
#include "ops/route/gpu_softmax.h"
#include "ops/route/keys.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kChunkThreads = kGpuRouteChunk * kThreadsOfRow;

/// What all classes of a row share.
struct Row : Softmax {
  float lse;
  float total;  ///< of sigmoid scores
};

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
  Row row{softmax_of(l, a.classes), 0, 1};
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
        member = next_candidate(
            g * kept.size, (g + 1) * kept.size, member, [](int32_t) { return true; },
            [&](int64_t c, int n) { return keys_at(a, row, l, c, n); });
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

/// Writes the row's choices in ascending order.
INGOT_INLINE void select_experts(const RouteRows& a, const Row& row, const float* l, int32_t* ids) {
  const Kept kept = a.groups_kept < a.groups ? kept_groups(a, row, l) : Kept{0, 0};
  each_chosen(
      a.choices, a.k, [&](int32_t c) { return is_kept(kept, c); },
      [&](int64_t c, int n) { return keys_at(a, row, l, c, n); },
      [&](int64_t at, int32_t c) { ids[at] = c < a.experts ? c : -1; });
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
  count_choices(a.ids, begin * a.k, (begin + count) * a.k, a.experts, sums);
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

template <class Documents>
INGOT_KERNEL(kChunkThreads)
forward_kernel(const RouteRows a, const Documents documents, float* sums, int64_t stride) {
  INGOT_SHARED(ChunkRows, of);
  const ChunkPlace at = place_of_block(documents);
  if (at.count == 0) return;
  const int64_t begin = at.begin, count = at.count, i = thread_index() / kThreadsOfRow, t = begin + i;
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
  add_up(a, of, begin, count, sums + at.number * stride);
}

INGOT_INLINE double balance_of(const GpuRouteBalance& b, int64_t e) {
  const double counted =
      static_cast<double>(b.load[e]) + (b.earlier != nullptr ? static_cast<double>(b.earlier[e]) : 0.0);
  const double batches = 1.0 + (b.earlier != nullptr ? static_cast<double>(b.earlier[b.experts]) : 0.0);
  return b.experts_by_rows * (counted / (b.choices * batches));
}

/// One block.
INGOT_KERNEL(kRowKernelThreads)
losses_kernel(const GpuRouteLosses a) {
  INGOT_SHARED(Terms, terms);
  const int64_t experts = a.balance.experts;
  const double aux = ordered_sum(terms, experts, [&](int64_t e) {
    a.counts[e] = a.totals[e];
    return balance_of(a.balance, e) * static_cast<double>(a.totals[experts + e]);
  });
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

template <class Documents>
INGOT_KERNEL(kRowKernelThreads)
backward_kernel(const RouteRows args, const Documents documents, const float* d_square) {
  const int64_t t = first_row(documents) + row_of_thread();
  if (t >= end_row(documents)) return;
  RouteRows a = args;
  a.d_mass = mass_cotangents(documents, args.d_mass, args.experts, t);
  const float* l = a.logits + t * a.classes;
  const Row row = row_of(a, l);
  const Asked asked = asked_of(a, row, l, t);
  const Vec z = set1(mul_rn(2, d_square != nullptr ? *d_square : 0.0f)) * set1(row.lse);
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
  launch("route_forward", forward_kernel<AllRows>,
         {(rows + kGpuRouteChunk - 1) / kGpuRouteChunk, kChunkThreads}, stream, args, AllRows{rows}, sums,
         stride);
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
  launch("route_backward", backward_kernel<AllRows>, grid_of_rows(rows), stream, a, AllRows{rows},
         losses.d_square);
}

void launch_route_documents_forward(GpuStream stream, const RouteRows& args,
                                    const GpuRouteDocuments& documents, float* sums, int64_t stride) {
  launch("route_documents_forward", forward_kernel<GpuRouteDocuments>, {documents.chunks(), kChunkThreads},
         stream, args, documents, sums, stride);
}

void launch_route_documents_backward(GpuStream stream, const RouteRows& args,
                                     const GpuRouteDocuments& documents) {
  const int64_t rows = documents.of[documents.count].first_row - documents.of[0].first_row;
  launch("route_documents_backward", backward_kernel<GpuRouteDocuments>, grid_of_rows(rows), stream, args,
         documents, nullptr);
}

void launch_route_list_forward(GpuStream stream, const RouteRows& args, const GpuRouteList& documents,
                               float* sums, int64_t stride) {
  launch("route_list_forward", forward_kernel<GpuRouteList>, {documents.chunks(), kChunkThreads}, stream,
         args, documents, sums, stride);
}

void launch_route_list_backward(GpuStream stream, const RouteRows& args, const GpuRouteList& documents) {
  launch("route_list_backward", backward_kernel<GpuRouteList>, grid_of_rows(documents.rows), stream, args,
         documents, nullptr);
}

}  // namespace ingot::INGOT_ISA
