// qk_prepare on the CPU: rows in parallel, weight gradients by chunks of rows.
#include <cstring>

#include "base/parallel.h"
#include "ops/parameter_chunks.h"
#include "ops/qk_prepare/kernels.h"
#include "ops/qk_prepare/qk_prepare.h"

namespace ingot {
namespace {

bool is_16_or_32(DType t) {
  return t == DType::bf16 || t == DType::f32;
}

const char* refuse(const OpCall& call) {
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && t.dtype() != DType::i32 && !is_16_or_32(t.dtype()))
        return "a type other than f32 and bf16";
  const auto& a = call.attr<QkPrepareAttr>();
  return a.head_width > 1024 ? "heads wider than 1024" : nullptr;
}

QkPrepareRows arguments(const OpCall& call) {
  const auto& a = call.attr<QkPrepareAttr>();
  QkPrepareRows p{};
  p.heads = a.heads, p.kv_heads = a.kv_heads, p.width = a.head_width;
  p.norm = a.norm, p.eps = static_cast<float>(a.eps);
  p.rotary = rotary_table(a.rotary);
  p.positions = call.in[1].as<int32_t>();
  p.x = call.in[0].data, p.x_type = call.in[0].dtype();
  p.weights[0] = call.in[2].as<float>(), p.weights[1] = call.in[3].as<float>();
  p.rstd = call.out[1].as<float>();
  p.y_type = a.out;
  return p;
}

void forward(const OpCall& call) {
  QkPrepareRows p = arguments(call);
  const int64_t rows = call.in[1].dim(0);
  check_positions(p.positions, rows);
  p.y = call.out[0].data;
  parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(qk_prepare_forward)(p, begin, end);
  });
}

void backward(const OpCall& call) {
  QkPrepareRows p = arguments(call);
  const int64_t rows = call.in[1].dim(0), width = p.width;
  p.d_y = call.d_out[0].data;
  p.d_x = call.d_in[0].tensor.data, p.accumulate = call.d_in[0].accumulate;
  if (call.d_in[0].wanted()) p.x_type = call.d_in[0].tensor.dtype();
  const bool weights = call.d_in[2].wanted() || call.d_in[3].wanted();
  auto* partials = static_cast<float*>(call.scratch);
  parallel_for(parameter_chunks(rows), 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      float* d_weights = weights ? partials + chunk * 2 * width : nullptr;
      if (weights) std::memset(d_weights, 0, static_cast<size_t>(2 * width) * sizeof(float));
      const int64_t begin = chunk * kParameterChunkRows;
      INGOT_ISA_CALL(qk_prepare_backward)(p, begin, std::min(rows, begin + kParameterChunkRows), d_weights);
    }
  });
  for (int64_t k = 0; k < 2; ++k)
    combine_parameter_chunks(partials + k * width, parameter_chunks(rows), 2 * width, width,
                             call.d_in[static_cast<size_t>(2 + k)]);
}

}  // namespace

int64_t qk_prepare_scratch_bytes(const OpCall& call) {
  const bool weights = call.in[2].defined() || call.in[3].defined();
  return weights ? parameter_chunks(call.in[1].dim(0)) * 2 * call.attr<QkPrepareAttr>().head_width * 4 : 0;
}

std::vector<Kernel> qk_prepare_kernels() {
  return {{"cpu", refuse, forward, backward, nullptr}, qk_prepare_reference()};
}

}  // namespace ingot
