// The backward of cca on a GPU: a block for a head of 64 rows makes d_c, and u again; a block for 64 view
// rows of a head makes d_u; and four threads for 16 channels of 64 rows make d_x. Sums over the 64 rows are
// taken in their order.
#include "ops/cca/head_block.h"

namespace ingot::INGOT_ISA {
namespace {

struct RowScalars {
  float x[kTile];
};

/// u of head n of row t, and where a document begins that of t = -1, with zeros as its d_c; four threads.
template <class X>
INGOT_INLINE void store_u(const GpuCca& a, int64_t t, int64_t n) {
  const CcaRows& p = a.rows;
  const int64_t K = p.width, to = at(p, n, a.views[t]);
  const int before = rows_before(a, t);
  each_vector(K, [&](int64_t i, int m) {
    store_n(p.u + to + i, u_n<X>(a, t, before, n * K + i, m), m);
    if (before > 0) return;
    store_n(p.u + to - K + i, u_n<X>(a, t - 1, -1, n * K + i, m), m);
    store_n(p.d_c + to - K + i, zero(), m);
  });
}

/// The head over its norm goes to `head`, from the result or from c, which is there; returns 1 / |head|.
template <class X, class Y>
INGOT_INLINE float unit_head(const CcaRows& p, int64_t t, int64_t n, bool from_result, float* head) {
  const int64_t K = p.width, width = row_width(p);
  if (!from_result) {
    const float inverse = head_before_norm<0>(p, static_cast<const X*>(p.x) + t * width, head, n, head);
    each_vector(K, [&](int64_t i, int m) { store_n(head + i, load_n(head + i, m) * set1(inverse), m); });
    return inverse;
  }
  const Y* y = static_cast<const Y*>(p.y) + t * width + n * K;
  const Vec undo = set1(1.0f / factor_of(p, root_of_width(p), n));
  each_vector(K, [&](int64_t i, int m) {
    const Vec turned =
        turned_n(p.rotary, p.positions[t], true, i, m, [&](int64_t c) { return widened(y[c]); });
    store_n(head + i, turned * undo, m);
  });
  return p.inverse_norms[t * heads_of(p) + n];
}

/// d_c of a head goes to its place and to `head`; returns what the temperature's gradient gets. Four threads.
template <class X, class Y>
INGOT_INLINE float head_backward(const GpuCca& a, int64_t t, int64_t n, bool from_result, float* head) {
  const CcaRows& p = a.rows;
  const int64_t K = p.width;
  const float root = root_of_width(p), inverse = unit_head<X, Y>(p, t, n, from_result, head);
  const Y* d_y = static_cast<const Y*>(p.d_y) + t * row_width(p) + n * K;
  const auto grad_n = [&](int64_t i, int m) {
    return turned_n(p.rotary, p.positions[t], true, i, m, [&](int64_t c) { return widened(d_y[c]); });
  };
  Lanes sum = lanes(0.0f);
  each_lane(K, [&](int v, int64_t i, int m) { sum.v[v] = fma(grad_n(i, m), load_n(head + i, m), sum.v[v]); });
  const float dot = tree_sum(sum), scale = scale_of(p, root, n, inverse);
  float* d_c = p.d_c + at(p, n, a.views[t]);
  each_vector(K, [&](int64_t i, int m) {
    const Vec g = through_norm(grad_n(i, m), load_n(head + i, m), dot, scale);
    store_n(d_c + i, g, m);
    store_n(head + i, g, m);
  });
  return mul_rn(root, dot);
}

/// Blocks: the heads of the first 64 rows, of the second, ...
template <class X, class Y, int kParts>
INGOT_KERNEL(kTileThreads)
heads_kernel(const GpuCca a) {
  INGOT_SHARED(ConvolutionTiles, tiles);
  INGOT_SHARED(HeadTile, heads);
  INGOT_SHARED(RowScalars, of_temperature);
  const CcaRows& p = a.rows;
  const auto parts = static_cast<unsigned>(heads_of(p));
  const int64_t K = p.width, n = block_index() % parts, chunk = block_index() / parts, begin = chunk * kTile,
                end = min64(a.count, begin + kTile);
  const bool from_result = p.y != nullptr && can_be_divided_by(p.temperature, p.kv_heads, root_of_width(p));
  const int row = whole_row_of_thread(), stride = head_stride(p);
  float* const sums = a.sums + chunk * a.sum_stride;
  for (int64_t first = begin; first < end; first += head_rows(p)) {
    const int count = static_cast<int>(min64(head_rows(p), end - first));
    if (!from_result) {
      convolve<X, kParts>(a, tiles, heads, n, first, count);
      sync_threads();
    }
    if (row < count) {
      store_u<X>(a, first + row, n);
      const float part = head_backward<X, Y>(a, first + row, n, from_result, heads.x + row * stride);
      if (writes_scalars()) of_temperature.x[row] = part;
    }
    sync_threads();
    const auto add = [&](float& to, const float* of_row, int step) {
      float sum = first == begin ? 0.0f : to;
      for (int r = 0; r < count; ++r) sum = add_rn(sum, of_row[r * step]);
      to = sum;
    };
    for (int64_t i = thread_index(); i < K; i += kTileThreads)
      add(sums[3 * channels(p) + n * K + i], heads.x + i, stride);
    if (n >= p.heads && thread_index() == 0) add(sums[4 * channels(p) + n - p.heads], of_temperature.x, 1);
    sync_threads();
  }
}

/// Blocks: the parts of a head of 64 view rows, of the next head, ..., of the next 64 view rows, ...
template <int kParts>
INGOT_KERNEL(kTileThreads)
grouped_kernel(const GpuCca a, unsigned column_parts) {
  INGOT_SHARED(ConvolutionTiles, tiles);
  const CcaRows& p = a.rows;
  const auto of_heads = static_cast<unsigned>(heads_of(p));
  const int64_t K = p.width, part_of_head = block_index() % column_parts,
                n = block_index() / column_parts % of_heads,
                first = int64_t{block_index() / column_parts / of_heads} * kTile,
                column = part_of_head * kParts * kTile + vector_of_thread();
  const int64_t view = first + whole_row_of_thread();
  const int k_of_thread = first_row_of_thread() / kEach;
  Outputs sums[kParts];
  INGOT_UNROLL
  for (int part = 0; part < kParts; ++part) sums[part] = no_outputs();
  // d_u_t = G1^T d_c_t + G0^T d_c_{t+1}
  for (int later = 0; later < 2; ++later)
    for (int64_t k = 0; k < K; k += kDepth) {
      const int depth = static_cast<int>(min64(kDepth, K - k));
      if (view < p.view_rows) put_turned(tiles.u, load_n(p.d_c + at(p, n, view + later) + k, depth));
      INGOT_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const int m = static_cast<int>(min64(kLanes, K - column - part * kTile));
        const int64_t weight = ((n * K + k + k_of_thread) * 2 + 1 - later) * K + column + part * kTile;
        if (m > 0 && k_of_thread < depth)
          put_columns(tiles.weights[part].x[k_of_thread], grouped_n(a, weight, m));
      }
      sync_threads();
      INGOT_UNROLL
      for (int part = 0; part < kParts; ++part) add_channels(sums[part], tiles.u, tiles.weights[part], depth);
      sync_threads();
    }
  INGOT_UNROLL
  for (int part = 0; part < kParts; ++part) {
    const int m = static_cast<int>(min64(kLanes, K - column - part * kTile));
    INGOT_UNROLL
    for (int r = 0; r < kEach; ++r) {
      const int64_t v = first + first_row_of_thread() + r;
      if (m > 0 && v < p.view_rows)
        store_n(p.d_u + at(p, n, v) + column + part * kTile, sums[part].row[r], m);
    }
  }
}

/// Vectors of channels, which four threads each take through a chunk of rows.
INGOT_INLINE int64_t vectors(int64_t channels) {
  return (channels + kLanes - 1) / kLanes;
}

template <class X, class Y>
INGOT_INLINE void values_backward(const GpuCca& a, int64_t t, int64_t i, int m, bool are_late) {
  const CcaRows& p = a.rows;
  const int64_t width = row_width(p), to = t * width + channels(p) + (are_late ? current(p) : 0) + i;
  X* d_x = static_cast<X*>(p.d_x) + to;
  const Y* d_y = static_cast<const Y*>(p.d_y) + to;
  if (!are_late)
    put_n(d_x, load_n(d_y, m), m, p.accumulate);
  else if (!is_last_of_span(a, t))
    put_n(d_x, load_n(d_y + width, m), m, p.accumulate);
  else if (!p.accumulate)
    store_n(d_x, zero(), m);
}

/// Groups of four threads: 16 channels of the first head, ..., of the last, of the token's own values, of the
/// delayed ones, in the first 64 rows; then in the second; ...
template <class X, class Y>
INGOT_KERNEL(kRowKernelThreads)
depthwise_kernel(const GpuCca a) {
  const CcaRows& p = a.rows;
  const int64_t of_heads = heads_of(p) * vectors(p.width), of_current = vectors(current(p));
  // 32 bits, which a GPU divides without a call.
  const auto unit = static_cast<unsigned>(row_of_thread()),
             parts = static_cast<unsigned>(of_heads + of_current + vectors(p.delayed)),
             of_head = static_cast<unsigned>(vectors(p.width)), part = unit % parts;
  const int64_t chunk = unit / parts, begin = chunk * kTile, end = min64(a.count, begin + kTile);
  if (begin >= a.count) return;
  if (part >= of_heads) {
    const bool are_late = part - of_heads >= of_current;
    const int64_t i = (part - of_heads - (are_late ? of_current : 0)) * kLanes;
    const int m = static_cast<int>(min64(kLanes, (are_late ? p.delayed : current(p)) - i));
    for (int64_t t = begin; t < end && p.d_x != nullptr; ++t) values_backward<X, Y>(a, t, i, m, are_late);
    return;
  }
  const int64_t C = channels(p), n = part / of_head, i = int64_t{part % of_head} * kLanes,
                e = n * p.width + i;
  const int m = static_cast<int>(min64(kLanes, p.width - i));
  const Group group = group_of(p, n);
  DepthwiseSums sums{zero(), zero(), zero()};
  for (int64_t t = begin; t < end; ++t) {
    const SpanRow row{t, a.views[t], is_first_of_span(a, t), is_last_of_span(a, t)};
    depthwise_backward_n<0, X>(p, row, group, n, i, m, sums);
  }
  float* const to = a.sums + chunk * a.sum_stride + e;
  store_n(to, sums.older, m), store_n(to + C, sums.newer, m), store_n(to + 2 * C, sums.bias, m);
}

}  // namespace

void launch_cca_heads_backward(GpuStream stream, const GpuCca& a) {
  with_types(a, [&]<class X, class Y, int kParts>() {
    launch("cca_heads_backward", heads_kernel<X, Y, kParts>,
           {chunks_of(a) * (a.rows.heads + a.rows.kv_heads), kTileThreads}, stream, a);
  });
}

void launch_cca_grouped_backward(GpuStream stream, const GpuCca& a) {
  const CcaRows& p = a.rows;
  const int64_t tiles = (p.view_rows + kTile - 1) / kTile * (p.heads + p.kv_heads);
  const auto run = [&]<int kParts>() {
    const auto column_parts = static_cast<unsigned>((p.width + kParts * kTile - 1) / (kParts * kTile));
    launch("cca_grouped_backward", grouped_kernel<kParts>, {tiles * column_parts, kTileThreads}, stream, a,
           column_parts);
  };
  if (p.width <= kTile)
    run.template operator()<1>();
  else
    run.template operator()<2>();
}

void launch_cca_depthwise_backward(GpuStream stream, const GpuCca& a) {
  const CcaRows& p = a.rows;
  const auto vectors_of = [](int64_t n) { return (n + kLanes - 1) / kLanes; };
  const int64_t values = p.kv_heads * p.width, parts = (p.heads + p.kv_heads) * vectors_of(p.width) +
                                                       vectors_of(values - p.delayed) + vectors_of(p.delayed);
  typed(p.x, p.x_type, [&]<class X>(const X*) {
    typed(p.d_y, p.y_type, [&]<class Y>(const Y*) {
      launch("cca_depthwise_backward", depthwise_kernel<X, Y>, grid_of_rows(chunks_of(a) * parts), stream, a);
    });
  });
}

}  // namespace ingot::INGOT_ISA
