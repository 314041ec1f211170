// add_norm on the CPU: rows in parallel, parameter gradients by chunks of rows.
#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "ops/add_norm/add_norm.h"
#include "ops/add_norm/kernels.h"
#include "ops/add_norm/row_kernels.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

using namespace add_norm_slot;

constexpr int64_t kSums = 5;  // of AddNormSums

const char* refuse(const OpCall& call) {
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && t.dtype() != DType::f32 && t.dtype() != DType::bf16)
        return "a type other than f32 and bf16";
  for (const Tensor& t : {call.in[kX], call.in[kWeight], call.out.empty() ? Tensor() : call.out[kRstd]})
    if (t.defined() && t.dtype() != DType::f32) return "a stream other than f32";
  return nullptr;
}

/// What forward and backward share; absent tensors become nullptr.
AddNormRows arguments(const OpCall& call) {
  const auto& a = call.attr<AddNormAttr>();
  AddNormRows p{};
  p.width = add_norm_width(call);
  p.merge = a.merge;
  p.layer = a.norm == NormKind::layer;
  p.eps = static_cast<float>(a.eps);
  p.x = call.in[kX].as<float>();
  p.y = call.in[kY].data, p.y_type = call.in[kY].dtype();
  p.stream_scale = call.in[kStreamScale].as<float>(), p.stream_bias = call.in[kStreamBias].as<float>();
  p.y_scale = call.in[kYScale].as<float>(), p.y_bias = call.in[kYBias].as<float>();
  p.weight = call.in[kWeight].as<float>(), p.bias = call.in[kBias].as<float>();
  p.s = call.out[kStream].as<float>();
  p.h_type = a.h_dtype;
  p.rstd = call.out[kRstd].as<float>(), p.mean = call.out[kMean].as<float>();
  return p;
}

void forward(const OpCall& call) {
  AddNormRows p = arguments(call);
  p.h = call.out[kH].data;
  const int64_t grain = std::clamp<int64_t>(16384 / std::max<int64_t>(p.width, 1), 1, 64);
  parallel_for(call.in[kX].dim(0), grain, [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(add_norm_forward)(p, begin, end);
  });
}

/// Multiplies n partial sums by a vector: the gradients of the merge's biases are scale times the sum over
/// the stream's.
void scaled_copy(float* to, const float* from, const float* scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * scale[i];
}

void backward(const OpCall& call) {
  AddNormRows p = arguments(call);
  const int64_t rows = call.out[kRstd].dim(0), D = p.width, chunks = parameter_chunks(rows),
                stride = kSums * D;
  if (p.merge != MergeKind::none) p.d_s = call.d_out[kStream].as<float>();  // else that output is empty
  p.d_h = call.d_out[kH].data;
  p.d_x = call.d_in[kX].tensor.as<float>(), p.accumulate_x = call.d_in[kX].accumulate;
  p.d_y = call.d_in[kY].tensor.data, p.accumulate_y = call.d_in[kY].accumulate;
  if (p.d_y != nullptr) p.y_type = call.d_in[kY].tensor.dtype();
  auto* partials = static_cast<float*>(call.scratch);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      float* s = partials + chunk * stride;
      std::memset(s, 0, static_cast<size_t>(stride) * sizeof(float));
      const int64_t begin = chunk * kParameterChunkRows;
      INGOT_ISA_CALL(add_norm_backward)
      (p, begin, std::min(rows, begin + kParameterChunkRows), {s, s + D, s + 2 * D, s + 3 * D, s + 4 * D});
    }
  });
  const auto combine = [&](int64_t sum, uint32_t input) {
    combine_parameter_chunks(partials + sum * D, chunks, stride, D, call.d_in[input]);
  };
  combine(0, kWeight);
  combine(1, kBias);
  combine(3, kStreamScale);
  combine(4, kYScale);
  for (const auto& [bias, scale] : {std::pair{kStreamBias, p.stream_scale}, {kYBias, p.y_scale}}) {
    if (!call.d_in[bias].wanted()) continue;
    // The sums of the first two kinds are used up: their place holds the scaled ones, chunk by chunk.
    for (int64_t c = 0; c < chunks; ++c)
      scaled_copy(partials + c * stride, partials + c * stride + 2 * D, scale, D);
    combine(0, bias);
  }
}

}  // namespace

int64_t add_norm_scratch_bytes(const OpCall& call) {
  return parameter_chunks(call.out[kRstd].dim(0)) * kSums * add_norm_width(call) *
         static_cast<int64_t>(sizeof(float));
}

std::vector<Kernel> add_norm_kernels() {
  return {{"cpu", refuse, forward, backward, nullptr}, add_norm_reference()};
}

}  // namespace ingot
