// add on a GPU: four threads for 16 columns of a row, or of all rows' sums.
#include "device/simd/row_kernels.h"
#include "ops/add/gpu_add.h"
#include "ops/add/rows.h"

namespace ingot::INGOT_ISA {
namespace {

/// The 16 columns of a row, or fewer, that four threads work on.
struct Part {
  int64_t row, i;
  int n;
};
INGOT_INLINE Part part_of_thread(int64_t width) {
  const int64_t parts = (width + kLanes - 1) / kLanes, i = row_of_thread() % parts * kLanes;
  return {row_of_thread() / parts, i, static_cast<int>(min64(kLanes, width - i))};
}

template <class A, class B, class Y>
INGOT_KERNEL(kRowKernelThreads)
forward_kernel(const AddRows p) {
  const Part at = part_of_thread(p.width);
  if (at.row < p.rows)
    sum_n(p, static_cast<const A*>(p.a), static_cast<const B*>(p.b), static_cast<Y*>(p.y), at.row * p.width,
          at.i, at.n);
}

template <class B, class Y>
INGOT_KERNEL(kRowKernelThreads)
gated_gradient_kernel(const AddRows p) {
  const Part at = part_of_thread(p.width);
  if (at.row < p.rows)
    gated_gradient_n(p, static_cast<B*>(p.d_b), static_cast<const Y*>(p.d_y), at.row * p.width, at.i, at.n);
}

constexpr int kChunksAtOnce = kRowKernelThreads / kThreadsOfRow;

struct ChunkSums {
  alignas(16) float x[kChunksAtOnce][kLanes];
};

/// A block for 16 columns: its groups of four threads take a chunk each, then the first adds their sums.
template <class B, class Y>
INGOT_KERNEL(kRowKernelThreads)
gate_gradient_kernel(const AddRows p, int64_t chunk) {
  INGOT_SHARED(ChunkSums, sums);
  const int own = static_cast<int>(thread_index()) / kThreadsOfRow;
  const int64_t i = int64_t{block_index()} * kLanes, chunks = (p.rows + chunk - 1) / chunk;
  const int n = static_cast<int>(min64(kLanes, p.width - i));
  Vec total = zero();
  for (int64_t first = 0; first < chunks; first += kChunksAtOnce) {
    const int64_t begin = (first + own) * chunk, end = min64(begin + chunk, p.rows);
    Vec sum = zero();
    for (int64_t t = begin; t < end; ++t)
      sum = plus_products(static_cast<const B*>(p.b), static_cast<const Y*>(p.d_y), t * p.width, i, n, sum);
    store(sums.x[own], sum);
    sync_threads();
    if (own == 0)
      for (int64_t c = 0; c < kChunksAtOnce && first + c < chunks; ++c) total = total + load(sums.x[c]);
    sync_threads();
  }
  if (own == 0) put_n(p.d_gate + i, total, n, p.accumulate);
}

GpuGrid grid_of_parts(const AddRows& p) {
  return grid_of_rows(p.rows * ((p.width + kLanes - 1) / kLanes));
}

}  // namespace

void launch_add_forward(GpuStream stream, const AddRows& p) {
  const GpuGrid grid = grid_of_parts(p);
  typed(p.a, p.a_type, [&]<class A>(const A*) {
    typed(p.b, p.b_type, [&]<class B>(const B*) {
      typed(p.y, p.y_type,
            [&]<class Y>(Y*) { launch("add_forward", forward_kernel<A, B, Y>, grid, stream, p); });
    });
  });
}

void launch_add_gated_gradient(GpuStream stream, const AddRows& p) {
  const GpuGrid grid = grid_of_parts(p);
  typed(p.d_b, p.b_type, [&]<class B>(B*) {
    typed(p.d_y, p.y_type, [&]<class Y>(const Y*) {
      launch("add_gated_gradient", gated_gradient_kernel<B, Y>, grid, stream, p);
    });
  });
}

void launch_add_gate_gradient(GpuStream stream, const AddRows& p, int64_t chunk) {
  const GpuGrid grid{(p.width + kLanes - 1) / kLanes, kRowKernelThreads};
  typed(p.b, p.b_type, [&]<class B>(const B*) {
    typed(p.d_y, p.y_type, [&]<class Y>(const Y*) {
      launch("add_gate_gradient", gate_gradient_kernel<B, Y>, grid, stream, p, chunk);
    });
  });
}

}  // namespace ingot::INGOT_ISA
