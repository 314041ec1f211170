// group_by_rank's map on a GPU: a block per rank takes tokens in their order, twice: to count its rows, and
// to place them. Its places follow from the tokens before, so no order of threads matters.
#include "device/gpu/block_count.h"
#include "ops/group_by_rank/gpu_group_by_rank.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int kEach = 4;

/// Ranks with the same experts form a group; -1: none has this one.
INGOT_INLINE int32_t group_of(const GpuRankChoices& c, int32_t id) {
  if (id < 0 || id < c.first || id >= c.first + c.experts) return -1;
  return (id - c.first) / c.experts_of_group;
}
INGOT_INLINE int32_t choices_on(const GpuRankChoices& c, int64_t token, int32_t group) {
  int32_t count = 0;
  for (int64_t j = 0; j < c.k; ++j) count += group_of(c, c.ids[token * c.k + j]) == group ? 1 : 0;
  return count;
}
/// Where the ranks of a group begin among the ranks of a token, which ascend.
INGOT_INLINE int64_t first_place(const GpuRankChoices& c, int64_t token, int32_t group) {
  const int32_t* ids = c.ids + token * c.k;
  int64_t below = 0;
  for (int64_t j = 0; j < c.k; ++j) {
    const int32_t other = group_of(c, ids[j]);
    bool is_new = other >= 0 && other < group;
    for (int64_t i = 0; i < j && is_new; ++i) is_new = group_of(c, ids[i]) != other;
    below += is_new ? 1 : 0;
  }
  return below * c.copies;
}

/// The first token whose row has more choices than are left, and what was taken before it.
struct Cut {
  int64_t token;
  int32_t rows, choices;
};

/// f(token, choices) of the tokens begin .. end that have choices on the rank, and not too many.
template <class F>
INGOT_INLINE void each_candidate(const GpuRankChoices& c, int32_t group, int64_t begin, int64_t end,
                                 int64_t most_choices, F&& f) {
  for (int64_t t = begin; t < end && t < c.tokens; ++t) {
    const int32_t n = choices_on(c, t, group);
    if (n > 0 && n <= most_choices) f(t, n);
  }
}

/// f(token, place, choices) of each row that the rank takes; returns how many they are. Every thread of the
/// block comes here. A row that has more choices than are left is passed over, and later ones are looked at
/// again with what is left.
template <class F>
INGOT_INLINE int32_t each_taken(const GpuRankMap& m, int32_t rank, BlockCounts& counts, Cut& cut, F&& f) {
  const GpuRankChoices& c = m.choices;
  const int32_t group = rank / c.copies;
  int64_t rows_left = m.bound > 0 ? m.bound : c.tokens;
  int64_t choices_left = m.most_choices > 0 ? m.most_choices : c.k * c.tokens;
  int32_t taken = 0;
  for (int64_t first = 0; first < c.tokens && rows_left > 0; first += kCountThreads * kEach) {
    const int64_t own = first + thread_index() * kEach;  // the thread's tokens are neighbours
    for (int64_t from = first; from < first + kCountThreads * kEach;) {
      const int64_t begin = own > from ? own : from, end = own + kEach;
      int32_t own_rows = 0, own_choices = 0;
      each_candidate(c, group, begin, end, choices_left,
                     [&](int64_t, int32_t n) { ++own_rows, own_choices += n; });
      const Count rows = count_before(counts, own_rows);
      Cut stop{first + kCountThreads * kEach, rows.all, 0};
      if (m.most_choices > 0) {
        const Count choices = count_before(counts, own_choices);
        Cut own_stop{-1, rows.before, choices.before};
        each_candidate(c, group, begin, end, choices_left, [&](int64_t t, int32_t n) {
          if (own_stop.token >= 0) return;
          if (own_stop.choices + n > choices_left)
            own_stop.token = t;
          else
            ++own_stop.rows, own_stop.choices += n;
        });
        const Count stops = count_before(counts, own_stop.token >= 0 ? 1 : 0);
        if (own_stop.token >= 0 && stops.before == 0) cut = own_stop;
        sync_threads();
        stop.choices = choices.all;
        if (stops.all > 0) stop = cut;
      }
      int32_t place = rows.before;
      each_candidate(c, group, begin, end < stop.token ? end : stop.token, choices_left,
                     [&](int64_t t, int32_t n) {
                       if (place < rows_left) f(t, taken + place, n);
                       ++place;
                     });
      const int64_t more = stop.rows < rows_left ? stop.rows : rows_left;
      taken += static_cast<int32_t>(more), rows_left -= more, choices_left -= stop.choices;
      from = stop.token + 1;
    }
  }
  return taken;
}

/// What rows without a token, and places without a row, have.
INGOT_KERNEL(kCountThreads)
clear_kernel(const GpuRankMap m) {
  const int64_t i = global_thread();
  if (i < m.rows * m.choices.k) m.kept_ids[i] = -1, m.kept_probs[i] = 0.0f;
  if (i < m.rows) m.token[i] = -1;
  if (i < m.choices.tokens * m.choices.most) m.row[i] = -1;
}

INGOT_KERNEL(kCountThreads)
count_kernel(const GpuRankMap m) {
  INGOT_SHARED(BlockCounts, counts);
  INGOT_SHARED(Cut, cut);
  const GpuRankChoices& c = m.choices;
  const auto rank = static_cast<int32_t>(block_index());
  int32_t lost = 0;
  const int32_t taken =
      each_taken(m, rank, counts, cut, [&](int64_t, int32_t, int32_t choices) { lost -= choices; });
  for (int64_t t = thread_index(); t < c.tokens; t += kCountThreads)
    lost += choices_on(c, t, rank / c.copies);
  const Count all = count_before(counts, lost);
  if (thread_index() == 0) m.taken[rank] = taken, m.dropped_of[rank] = all.all;
}

INGOT_INLINE int32_t rows_before(const GpuRankMap& m, int32_t rank) {
  int32_t before = 0;
  for (int32_t r = 0; r < rank; ++r) before += m.taken[r];
  return before;
}

INGOT_KERNEL(kCountThreads)
place_kernel(const GpuRankMap m) {
  INGOT_SHARED(BlockCounts, counts);
  INGOT_SHARED(Cut, cut);
  const GpuRankChoices& c = m.choices;
  const auto rank = static_cast<int32_t>(block_index());
  const int32_t group = rank / c.copies, first = rows_before(m, rank);
  each_taken(m, rank, counts, cut, [&](int64_t t, int32_t place, int32_t) {
    const int64_t to = int64_t{first} + place;
    m.token[to] = static_cast<int32_t>(t);
    m.row[t * c.most + first_place(c, t, group) + rank % c.copies] = static_cast<int32_t>(to);
    for (int64_t j = 0; j < c.k; ++j) {
      const int32_t id = c.ids[t * c.k + j];
      if (group_of(c, id) == group)
        m.kept_ids[to * c.k + j] = id, m.kept_probs[to * c.k + j] = m.probs[t * c.k + j];
    }
  });
}

/// The first of a rank's rows whose token is at least this one.
INGOT_INLINE int32_t first_row_from(const GpuRankMap& m, int32_t begin, int32_t end, int64_t token) {
  while (begin < end) {
    const int32_t middle = begin + (end - begin) / 2;
    if (m.token[middle] < token)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/// A thread for a rank and a block of tokens: the rows of a rank ascend by token.
INGOT_KERNEL(kCountThreads)
numbers_kernel(const GpuRankMap m) {
  const int64_t i = global_thread();
  if (i == 0) {
    int32_t all = 0;
    for (int32_t r = 0; r < m.choices.ranks; r += m.choices.copies) all += m.dropped_of[r];
    *m.dropped = static_cast<float>(all);
  }
  if (i >= m.choices.ranks * m.blocks) return;
  const auto rank = static_cast<int32_t>(i / m.blocks);
  if (m.block_tokens == nullptr) {
    m.count[i] = m.taken[rank];
    return;
  }
  int64_t token = 0;
  for (int64_t b = 0; b < i % m.blocks; ++b) token += m.block_tokens[b];
  const int32_t begin = rows_before(m, rank), end = begin + m.taken[rank];
  m.count[i] = first_row_from(m, begin, end, token + m.block_tokens[i % m.blocks]) -
               first_row_from(m, begin, end, token);
}

INGOT_KERNEL(kCountThreads)
weights_kernel(const GpuRankWeights w) {
  const GpuRankChoices& c = w.choices;
  const int64_t i = global_thread();
  if (i >= c.tokens * c.k) return;
  const int64_t t = i / c.k;
  const int32_t group = group_of(c, c.ids[i]);
  float d = 0;
  if (group >= 0 && w.d_weights != nullptr) {
    const int32_t* row = w.row + t * c.most + first_place(c, t, group);
    for (int32_t copy = 0; copy < c.copies; ++copy)
      if (row[copy] >= 0) d = add_rn(d, w.d_weights[row[copy] * c.k + i % c.k]);
  }
  w.d_probs[i] = w.accumulate ? add_rn(w.d_probs[i], d) : d;
}

}  // namespace

void launch_rank_map(GpuStream stream, const GpuRankMap& m) {
  const int64_t of_rows = m.rows * m.choices.k, of_tokens = m.choices.tokens * m.choices.most;
  launch("rank_map_clear", clear_kernel, grid_of(of_rows > of_tokens ? of_rows : of_tokens, kCountThreads),
         stream, m);
  launch("rank_map_count", count_kernel, {m.choices.ranks, kCountThreads}, stream, m);
  launch("rank_map_place", place_kernel, {m.choices.ranks, kCountThreads}, stream, m);
  launch("rank_map_numbers", numbers_kernel, grid_of(m.choices.ranks * m.blocks + 1, kCountThreads), stream,
         m);
}

void launch_rank_weights(GpuStream stream, const GpuRankWeights& w) {
  launch("rank_weights", weights_kernel, grid_of(w.choices.tokens * w.choices.k, kCountThreads), stream, w);
}

}  // namespace ingot::INGOT_ISA
