// grouped_linear on the CPU: one product per expert; see device/gemm/gemm.h for the contract of their bits.
#include "device/gemm/gemm.h"
#include "device/gemm/packed_registry.h"
#include "device/memory/scratch.h"
#include "ops/cpu_rows.h"
#include "ops/grouped_linear/grouped_linear.h"
#include "ops/grouped_linear/kernels.h"

namespace ingot {
namespace {

/// The experts' row ranges and sizes; offsets live in the thread's scratch until its next use.
GroupedGemmArgs arguments(const Tensor& offsets, int64_t rows) {
  const int64_t count = offsets.numel();
  auto* wide = static_cast<int64_t*>(scratch(ScratchSlot::kernel, count * int64_t{sizeof(int64_t)}));
  for (int64_t e = 0; e < count; ++e) wide[e] = offsets.as<int32_t>()[e];
  for (int64_t e = 0; e + 1 < count; ++e)
    INGOT_CHECK(wide[e] <= wide[e + 1], "expert {} owns the rows {} .. {}", e, wide[e], wide[e + 1]);
  INGOT_CHECK(wide[0] == 0 && wide[count - 1] <= rows, "offsets {} .. {} for {} rows", wide[0],
              wide[count - 1], rows);
  GroupedGemmArgs g;
  g.experts = count - 1;
  g.offsets = wide;
  return g;
}

void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &y = call.out[0];
  if (x.dim(0) == 0) return;
  GroupedGemmArgs g = arguments(call.in[2], x.dim(0));
  g.n = w.dim(1), g.k = w.dim(2);
  g.a = x.data, g.a_type = x.dtype(), g.lda = g.k;
  g.b = w.data, g.b_type = w.dtype(), g.b_transposed = true, g.ldb = g.k, g.b_stride = g.n * g.k;
  g.packed = packed_at(w.data);
  g.c = y.data, g.c_type = y.dtype(), g.ldc = g.n;
  gemm_grouped(g);
}

bool through_scratch(const GradSlot& d_x) {
  return d_x.wanted() && d_x.accumulate && d_x.tensor.dtype() == DType::bf16;
}

void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot& d_x = call.d_in[0];
  if (!d_x.wanted() || d_y.dim(0) == 0) return;
  const bool in_scratch = through_scratch(d_x);
  GroupedGemmArgs g = arguments(call.in[2], d_y.dim(0));
  g.n = w.dim(2), g.k = w.dim(1);
  g.a = d_y.data, g.a_type = d_y.dtype(), g.lda = g.k;
  g.b = w.data, g.b_type = w.dtype(), g.ldb = g.n, g.b_stride = g.n * g.k;
  g.c = in_scratch ? call.scratch : d_x.tensor.data, g.ldc = g.n;
  g.c_type = in_scratch ? DType::f32 : d_x.tensor.dtype();
  g.accumulate = d_x.accumulate && !in_scratch;
  gemm_grouped(g);
  const int64_t owned = rows_before_end(call.in[2], d_y.dim(0));
  if (in_scratch) copy_tensor(d_x.tensor.data, DType::bf16, call.scratch, DType::f32, owned * g.n, true);
}

void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0], &d_w = call.d_in[1].tensor;
  GroupedGemmArgs g = arguments(call.in[2], x.dim(0));
  g.n = d_w.dim(1), g.k = d_w.dim(2);
  g.a = d_y.data, g.a_type = d_y.dtype(), g.lda = g.n;
  g.b = x.data, g.b_type = x.dtype(), g.ldb = g.k;
  g.c = d_w.data, g.ldc = g.k, g.c_stride = g.n * g.k;
  g.accumulate = call.d_in[1].accumulate;
  gemm_grouped_weight(g);
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call, 1)) return reason;
  if (call.d_in.size() > 1 && call.d_in[1].wanted() && call.d_in[1].tensor.dtype() != DType::f32)
    return "a weight gradient other than f32";
  return nullptr;
}

}  // namespace

int64_t grouped_linear_scratch_bytes(const OpCall& call) {
  return !call.d_in.empty() && through_scratch(call.d_in[0]) ? call.d_in[0].tensor.numel() * 4 : 0;
}

std::vector<Kernel> grouped_linear_kernels() {
  return {{"cpu", refuse, forward, backward_input, backward_weight}, grouped_linear_reference()};
}

}  // namespace ingot
