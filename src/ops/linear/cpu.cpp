// linear on the CPU: matrix products; see device/gemm/gemm.h for the contract of their bits.
#include "device/gemm/gemm.h"
#include "device/gemm/packed_registry.h"
#include "ops/cpu_rows.h"
#include "ops/linear/kernels.h"
#include "ops/linear/linear.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  const Tensor &x = call.in[0], &w = call.in[1], &bias = call.in[2], &y = call.out[0];
  GemmArgs g;
  g.m = x.dim(0), g.n = w.dim(0), g.k = x.dim(1);
  g.a = x.data, g.a_type = x.dtype(), g.lda = g.k;
  g.b = w.data, g.b_type = w.dtype(), g.b_transposed = true, g.ldb = g.k;
  g.packed = packed_at(w.data);
  g.c = y.data, g.c_type = y.dtype(), g.ldc = g.n;
  if (bias.defined()) g.bias = bias.data, g.bias_type = bias.dtype();
  gemm(g);
}

/// Whether the input's gradient is formed in fp32 and then added: a sum in bf16 cannot carry a chain.
bool through_scratch(const GradSlot& d_x) {
  return d_x.wanted() && d_x.accumulate && d_x.tensor.dtype() == DType::bf16;
}

void backward_input(const OpCall& call) {
  const Tensor &w = call.in[1], &d_y = call.d_out[0];
  const GradSlot &d_x = call.d_in[0], &d_bias = call.d_in[2];
  if (d_x.wanted()) {
    const bool scratch = through_scratch(d_x);
    GemmArgs g;
    g.m = d_y.dim(0), g.n = w.dim(1), g.k = w.dim(0);
    g.a = d_y.data, g.a_type = d_y.dtype(), g.lda = g.k;
    g.b = w.data, g.b_type = w.dtype(), g.ldb = g.n;
    g.c = scratch ? call.scratch : d_x.tensor.data, g.ldc = g.n;
    g.c_type = scratch ? DType::f32 : d_x.tensor.dtype();
    g.accumulate = d_x.accumulate && !scratch;
    gemm(g);
    if (scratch)
      copy_tensor(d_x.tensor.data, DType::bf16, call.scratch, DType::f32, d_x.tensor.numel(), true);
  }
  if (d_bias.wanted()) {
    const int64_t rows = d_y.dim(0), n = d_y.dim(1);
    const auto sums = [&](int64_t begin, int64_t end) {
      INGOT_ISA_CALL(column_sums)
      (d_bias.tensor.as<float>(), d_y.data, d_y.dtype(), rows, n, kParameterChunkRows, begin, end,
       d_bias.accumulate);
    };
    parallel_for(n, column_grain(rows, n), sums);
  }
}

void backward_weight(const OpCall& call) {
  const Tensor &x = call.in[0], &d_y = call.d_out[0], &d_w = call.d_in[1].tensor;
  GemmArgs g;
  g.m = d_y.dim(1), g.n = x.dim(1), g.k = x.dim(0);
  g.a = d_y.data, g.a_type = d_y.dtype(), g.a_transposed = true, g.lda = g.m;
  g.b = x.data, g.b_type = x.dtype(), g.ldb = g.n;
  g.c = d_w.data, g.ldc = g.n;
  g.accumulate = call.d_in[1].accumulate;
  gemm(g);
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call, 1)) return reason;
  if (call.d_in.size() > 1 && call.d_in[1].wanted() && call.d_in[1].tensor.dtype() != DType::f32)
    return "a weight gradient other than f32";
  return nullptr;
}

}  // namespace

int64_t linear_scratch_bytes(const OpCall& call) {
  return !call.d_in.empty() && through_scratch(call.d_in[0]) ? call.d_in[0].tensor.numel() * 4 : 0;
}

std::vector<Kernel> linear_kernels() {
  return {{"cpu", refuse, forward, backward_input, backward_weight}, linear_reference()};
}

}  // namespace ingot
