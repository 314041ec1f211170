// The forward of cca on a GPU: a block for a head of 64 rows, from the rows of its input to those of its
// result, and one for their values. And what all its kernels need before: where documents begin, the taps.
#include "ops/cca/head_block.h"

namespace ingot::INGOT_ISA {
namespace {

/// Part of the documents of a call: those of one launch.
struct DocumentTable {
  static constexpr int kMost = 480;
  int32_t count, end;  ///< end: the row behind their last one
  int32_t before;      ///< documents of launches before
  int32_t begin[kMost];
};

/// What does not depend on documents; by thread i of at least as many as there are channels.
INGOT_INLINE void begin_call(const GpuCca& a, int64_t i) {
  const CcaRows& p = a.rows;
  const int64_t C = channels(p), K = p.width;
  if (i < C) a.own_taps[i] = a.taps[2 * i], a.own_taps[C + i] = a.taps[2 * i + 1];
  if (p.d_c == nullptr) return;
  if (i <= heads_of(p)) a.offsets[i] = static_cast<int32_t>(i * p.view_rows);
  if (i < K) p.u[heads_of(p) * p.view_rows * K + i] = 0, p.d_c[heads_of(p) * p.view_rows * K + i] = 0;
}

INGOT_KERNEL(kRowKernelThreads)
begin_kernel(const GpuCca a, const DocumentTable table) {
  const int64_t i = global_thread(), t = table.begin[0] + i;
  if (table.count > 0 && t < table.end) {
    int low = 0;
    for (int high = table.count; high - low > 1;) {
      const int middle = (low + high) / 2;
      if (table.begin[middle] <= t)
        low = middle;
      else
        high = middle;
    }
    a.views[t] = static_cast<int32_t>(t) + table.before + low + 1;
  }
  if (table.before == 0) begin_call(a, i);
}

/// The same from the list of documents; then zeros as u and d_c of those that are not there, whose view rows
/// are behind all others of a head: they add nothing to the products that take all of them.
INGOT_KERNEL(kRowKernelThreads)
begin_listed_kernel(const GpuCca a) {
  const CcaRows& p = a.rows;
  const int64_t i = global_thread();
  if (i < a.count) a.views[i] = static_cast<int32_t>(i + a.listed.of_row(i) + 1);
  begin_call(a, i);
  if (p.d_c == nullptr) return;
  const int64_t K = p.width, places = a.listed.capacity * K, n = i / places, at = i % places;
  if (n >= heads_of(p) || at / K < a.listed.count()) return;
  const int64_t to = (n * p.view_rows + a.count) * K + at;
  p.u[to] = 0, p.d_c[to] = 0;
}

/// Four threads a row: the token's own values, and the delayed ones of the row before.
template <class X, class Y>
INGOT_INLINE void copy_values(const GpuCca& a, int64_t t) {
  const CcaRows& p = a.rows;
  const int64_t C = channels(p), width = row_width(p), late = p.delayed;
  const X* x = static_cast<const X*>(p.x) + t * width;
  Y* y = static_cast<Y*>(p.y) + t * width;
  copy_n(y + C, x + C, current(p));
  if (is_first_of_span(a, t))
    each_vector(late, [&](int64_t i, int m) { store_n(y + width - late + i, zero(), m); });
  else
    copy_n(y + width - late, x - late, late);
}

/// From c in `head` to a head of the result.
template <class X, class Y>
INGOT_INLINE void finish_head(const CcaRows& p, int64_t t, int64_t n, float* head) {
  const int64_t K = p.width, width = row_width(p);
  const float inverse = head_before_norm<0>(p, static_cast<const X*>(p.x) + t * width, head, n, head);
  if (writes_scalars()) p.inverse_norms[t * heads_of(p) + n] = inverse;
  const float scale = scale_of(p, root_of_width(p), n, inverse);
  const auto scaled = [&](int64_t c) { return mul_rn(head[c], scale); };
  Y* y = static_cast<Y*>(p.y) + t * width + n * K;
  sync_row();
  each_vector(K, [&](int64_t i, int m) {
    store_n(y + i, turned_n(p.rotary, p.positions[t], false, i, m, scaled), m);
  });
}

/// Blocks: the heads of the first 64 rows and then their values, the same of the second, ...
template <class X, class Y, int kParts>
INGOT_KERNEL(kTileThreads)
forward_kernel(const GpuCca a) {
  INGOT_SHARED(ConvolutionTiles, tiles);
  INGOT_SHARED(HeadTile, heads);
  const CcaRows& p = a.rows;
  const auto parts = static_cast<unsigned>(heads_of(p)) + 1;
  const int64_t n = block_index() % parts, begin = int64_t{block_index() / parts} * kTile,
                end = min64(a.count, begin + kTile);
  const int row = whole_row_of_thread();
  if (n == heads_of(p)) {
    if (begin + row < end) copy_values<X, Y>(a, begin + row);
    return;
  }
  for (int64_t first = begin; first < end; first += head_rows(p)) {
    const int count = static_cast<int>(min64(head_rows(p), end - first));
    convolve<X, kParts>(a, tiles, heads, n, first, count);
    sync_threads();
    // The next rows' convolution meets the block before it writes heads.
    if (row < count) finish_head<X, Y>(p, first + row, n, heads.x + row * head_stride(p));
  }
}

}  // namespace

void launch_cca_begin(GpuStream stream, const GpuCca& a, const int32_t* begins, int64_t documents) {
  DocumentTable table{};
  do {
    const int64_t left = documents - table.before;
    table.count = static_cast<int32_t>(left < DocumentTable::kMost ? left : DocumentTable::kMost);
    for (int i = 0; i < table.count; ++i) table.begin[i] = begins[table.before + i];
    const int64_t next = table.before + table.count;
    table.end = next < documents ? begins[next] : static_cast<int32_t>(a.count);
    // Channels are at least as many as heads, or as a head's.
    const int64_t own = table.before == 0 ? (a.rows.heads + a.rows.kv_heads) * a.rows.width + 1 : 0,
                  rows = table.end - table.begin[0];
    launch("cca_begin", begin_kernel, grid_of(rows > own ? rows : own, kRowKernelThreads), stream, a, table);
    table.before = static_cast<int32_t>(next);
  } while (table.before < documents);
}

void launch_cca_begin_listed(GpuStream stream, const GpuCca& a) {
  // Channels are at least as many as heads, or as a head's.
  const int64_t channels = (a.rows.heads + a.rows.kv_heads) * a.rows.width, own = channels + 1,
                zeros = a.rows.d_c != nullptr ? channels * a.listed.capacity : 0,
                most = zeros > own ? zeros : own;
  launch("cca_begin_listed", begin_listed_kernel, grid_of(a.count > most ? a.count : most, kRowKernelThreads),
         stream, a);
}

void launch_cca_forward(GpuStream stream, const GpuCca& a) {
  with_types(a, [&]<class X, class Y, int kParts>() {
    launch("cca_forward", forward_kernel<X, Y, kParts>,
           {chunks_of(a) * (a.rows.heads + a.rows.kv_heads + 1), kTileThreads}, stream, a);
  });
}

}  // namespace ingot::INGOT_ISA
