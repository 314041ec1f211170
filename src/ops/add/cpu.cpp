// add on the CPU: rows in parallel; the gate's gradient by columns.
#include "ops/add/add.h"
#include "ops/add/kernels.h"
#include "ops/add/row_kernels.h"
#include "ops/cpu_rows.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

constexpr int64_t kElements = 1 << 15;  // per piece of work

void forward(const OpCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &gate = call.in[2], &y = call.out[0];
  AddRows p{};
  p.rows = a.dim(0), p.width = a.dim(1);
  p.a = a.data, p.a_type = a.dtype();
  p.b = b.data, p.b_type = b.dtype();
  if (gate.defined()) p.gate = gate.as<float>();
  p.y = y.data, p.y_type = y.dtype();
  parallel_for(p.rows, row_grain(p.width, kElements), [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(add_forward)(p, begin, end);
  });
}

void backward_input(const OpCall& call) {
  const Tensor &gate = call.in[2], &d_y = call.d_out[0];
  const GradSlot &d_a = call.d_in[0], &d_b = call.d_in[1], &d_gate = call.d_in[2];
  copy_tensor(d_a, d_y);
  if (!gate.defined()) return copy_tensor(d_b, d_y);
  AddRows p{};
  p.rows = d_y.dim(0), p.width = d_y.dim(1);
  p.gate = gate.as<float>();
  p.d_y = d_y.data, p.y_type = d_y.dtype();
  if (d_b.wanted()) {
    p.d_b = d_b.tensor.data, p.b_type = d_b.tensor.dtype(), p.accumulate = d_b.accumulate;
    parallel_for(p.rows, row_grain(p.width, kElements), [&](int64_t begin, int64_t end) {
      INGOT_ISA_CALL(add_gated_gradient)(p, begin, end);
    });
  }
  if (d_gate.wanted()) {
    p.b = call.in[1].data, p.b_type = call.in[1].dtype();
    p.d_gate = d_gate.tensor.as<float>(), p.accumulate = d_gate.accumulate;
    parallel_for(p.width, column_grain(p.rows, p.width), [&](int64_t begin, int64_t end) {
      INGOT_ISA_CALL(add_gate_gradient)(p, kParameterChunkRows, begin, end);
    });
  }
}

}  // namespace

std::vector<Kernel> add_kernels() {
  return {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, add_reference()};
}

}  // namespace ingot
