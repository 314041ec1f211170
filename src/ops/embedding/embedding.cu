// embedding on a GPU: four threads a row. For the gradient each token counts those before it in the order of
// (id, token), so that the sort is stable and has no sum whose order matters.
#include "device/simd/loops.h"
#include "device/simd/row_kernels.h"
#include "ops/embedding/gpu_embedding.h"

namespace ingot::INGOT_ISA {
namespace {

template <class Table, class Y>
INGOT_KERNEL(kRowKernelThreads)
forward_kernel(const GpuEmbedding args) {
  const int64_t t = row_of_thread();
  if (t >= args.tokens) return;
  const int64_t id = args.id[t];
  Y* y = static_cast<Y*>(args.y) + t * args.width;
  if (id >= 0 && id < args.vocabulary)
    return copy_n(y, static_cast<const Table*>(args.table) + id * args.width, args.width);
  const Vec missing = set1(id == -1 && args.absent ? 0.0f : as_float_bits(0x7FC00000u));
  each_vector(args.width, [&](int64_t i, int n) { store_n(y + i, missing, n); });
}

INGOT_KERNEL(kRowKernelThreads)
order_kernel(const GpuEmbeddingGradient args) {
  const int64_t t = global_thread();
  if (t >= args.tokens) return;
  const int32_t own = args.id[t];
  int64_t before = 0;
  for (int64_t other = 0; other < args.tokens; ++other)
    before += args.id[other] < own || (args.id[other] == own && other < t);
  args.order[before] = static_cast<int32_t>(t);
}

template <class Y>
INGOT_KERNEL(kRowKernelThreads)
gradient_kernel(const GpuEmbeddingGradient args) {
  const int64_t v = row_of_thread();
  if (v >= args.vocabulary) return;
  int64_t first = 0;  // of the sorted tokens, those with an id below v
  for (int64_t end = args.tokens; first < end;) {
    const int64_t middle = (first + end) / 2;
    if (args.id[args.order[middle]] < v)
      first = middle + 1;
    else
      end = middle;
  }
  float* to = args.d_table + v * args.width;
  each_vector(args.width, [&](int64_t i, int n) {
    Vec sum = args.accumulate ? load_n(to + i, n) : zero();
    for (int64_t k = first; k < args.tokens && args.id[args.order[k]] == v; ++k)
      sum = sum + load_n(static_cast<const Y*>(args.d_y) + args.order[k] * args.width + i, n);
    store_n(to + i, sum, n);
  });
}

}  // namespace

void launch_embedding_forward(GpuStream stream, const GpuEmbedding& args) {
  const auto run = [&]<class Table, class Y>() {
    launch("embedding_forward", forward_kernel<Table, Y>, grid_of_rows(args.tokens), stream, args);
  };
  const auto table = [&]<class Table>() {
    if (args.y_type == DType::bf16)
      run.template operator()<Table, bf16>();
    else
      run.template operator()<Table, float>();
  };
  if (args.rounded) return table.template operator()<RoundedFloat>();
  if (args.table_type == DType::bf16) return table.template operator()<bf16>();
  table.template operator()<float>();
}

void launch_embedding_gradient(GpuStream stream, const GpuEmbeddingGradient& args) {
  launch("embedding_order", order_kernel, grid_of(args.tokens, kRowKernelThreads), stream, args);
  const GpuGrid grid = grid_of_rows(args.vocabulary);
  if (args.y_type == DType::bf16)
    launch("embedding_gradient", gradient_kernel<bf16>, grid, stream, args);
  else
    launch("embedding_gradient", gradient_kernel<float>, grid, stream, args);
}

}  // namespace ingot::INGOT_ISA
