// add on the CPU: one pass per row; the gate's gradient in chunks of 64 rows combined in order.
#include <vector>

#include "ops/add/add.h"
#include "ops/add/kernels.h"
#include "ops/cpu_rows.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

constexpr int64_t kElements = 1 << 15;  // of a piece of work

char* row_at(const Tensor& t, int64_t row) {
  return static_cast<char*>(t.data) + row * t.dim(1) * size_of(t.dtype());
}

/// Rows of a tensor as floats: in place for f32, else through `buffer`.
const float* as_floats(const Tensor& t, int64_t row, std::vector<float>& buffer) {
  if (t.dtype() == DType::f32) return reinterpret_cast<const float*>(row_at(t, row));
  buffer.resize(static_cast<size_t>(t.dim(1)));
  INGOT_ISA_CALL(array_copy)(buffer.data(), DType::f32, row_at(t, row), t.dtype(), t.dim(1), false);
  return buffer.data();
}

void forward(const OpCall& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &gate = call.in[2], &y = call.out[0];
  const int64_t width = a.dim(1);
  const float* g = gate.defined() ? gate.as<float>() : nullptr;
  parallel_for(a.dim(0), row_grain(width, kElements), [&](int64_t begin, int64_t end) {
    std::vector<float> a_row, b_row, sum(static_cast<size_t>(width));
    for (int64_t t = begin; t < end; ++t) {
      const float *x = as_floats(a, t, a_row), *z = as_floats(b, t, b_row);
      for (int64_t d = 0; d < width; ++d) sum[static_cast<size_t>(d)] = x[d] + (g != nullptr ? g[d] * z[d] : z[d]);
      INGOT_ISA_CALL(array_copy)(row_at(y, t), y.dtype(), sum.data(), DType::f32, width, false);
    }
  });
}

/// d_b = gate * d_y, and the gate's gradient.
void backward_gated(const OpCall& call) {
  const Tensor &b = call.in[1], &d_y = call.d_out[0];
  const GradSlot &d_b = call.d_in[1], &d_gate = call.d_in[2];
  const auto* gate = call.in[2].as<float>();
  const int64_t width = d_y.dim(1), rows = d_y.dim(0), chunks = parameter_chunks(rows);
  std::vector<float> partials(static_cast<size_t>(chunks * width), 0.0f);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    std::vector<float> b_row, d_row, out(static_cast<size_t>(width));
    for (int64_t c = first; c < last; ++c)
      for (int64_t t = c * kParameterChunkRows; t < std::min(rows, (c + 1) * kParameterChunkRows); ++t) {
        const float *z = as_floats(b, t, b_row), *d = as_floats(d_y, t, d_row);
        float* sum = &partials[static_cast<size_t>(c * width)];
        for (int64_t i = 0; i < width; ++i) {
          sum[i] += z[i] * d[i];
          out[static_cast<size_t>(i)] = gate[i] * d[i];
        }
        if (d_b.wanted())
          INGOT_ISA_CALL(array_copy)
        (row_at(d_b.tensor, t), d_b.tensor.dtype(), out.data(), DType::f32, width, d_b.accumulate);
      }
  });
  combine_parameter_chunks(partials.data(), chunks, width, width, d_gate);
}

void backward_input(const OpCall& call) {
  copy_tensor(call.d_in[0], call.d_out[0]);
  if (call.attr<AddAttr>().gated) backward_gated(call);
  else copy_tensor(call.d_in[1], call.d_out[0]);
}

}  // namespace

std::vector<Kernel> add_kernels() {
  return {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, add_reference()};
}

}  // namespace ingot
