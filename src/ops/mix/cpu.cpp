// mix on the CPU: rows in parallel, the scalars' gradients by chunks of rows.
#include "ops/cpu_rows.h"
#include "ops/mix/kernels.h"
#include "ops/mix/mix.h"
#include "ops/mix/row_kernels.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

using namespace mix_slot;

constexpr int64_t kElements = 1 << 15;  // per piece of work

float scalar(const Tensor& t) {
  return t.defined() ? *t.as<float>() : 1.0f;
}

/// What forward and backward share; absent tensors become nullptr.
MixRows arguments(const OpCall& call, int64_t width) {
  MixRows p{};
  p.width = width, p.first = call.attr<MixAttr>().first;
  p.a = call.in[kA].data, p.a_type = call.in[kA].dtype();
  p.b = call.in[kB].data, p.b_type = call.in[kB].dtype();
  p.alpha = scalar(call.in[kAlpha]), p.beta = scalar(call.in[kBeta]);
  p.y_type = call.attr<MixAttr>().out;
  return p;
}

void forward(const OpCall& call) {
  MixRows p = arguments(call, call.out[0].dim(1));
  p.y = call.out[0].data;
  parallel_for(call.out[0].dim(0), row_grain(p.width, kElements), [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(mix_forward)(p, begin, end);
  });
}

void scalar_gradients(const OpCall& call, const MixRows& p, int64_t rows) {
  auto* partials = static_cast<float*>(call.scratch);
  const int64_t chunks = parameter_chunks(rows);
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) INGOT_ISA_CALL(mix_scalar_sums)
    (p, c * kParameterChunkRows, std::min(rows, (c + 1) * kParameterChunkRows), partials + 2 * c);
  });
  combine_parameter_chunks(partials, chunks, 2, 1, call.d_in[kAlpha]);
  combine_parameter_chunks(partials + 1, chunks, 2, 1, call.d_in[kBeta]);
}

void backward_input(const OpCall& call) {
  const int64_t rows = call.d_out[0].dim(0);
  MixRows p = arguments(call, call.d_out[0].dim(1));
  p.d_y = call.d_out[0].data;
  if (call.d_in[kAlpha].wanted() || call.d_in[kBeta].wanted()) scalar_gradients(call, p, rows);
  const GradSlot &d_a = call.d_in[kA], &d_b = call.d_in[kB];
  p.d_a = d_a.tensor.data, p.accumulate_a = d_a.accumulate;
  p.d_b = d_b.tensor.data, p.accumulate_b = d_b.accumulate;
  if (d_a.wanted()) p.a_type = d_a.tensor.dtype();
  if (d_b.wanted()) p.b_type = d_b.tensor.dtype();
  parallel_for(rows, row_grain(p.width, kElements), [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(mix_backward)(p, begin, end);
  });
}

}  // namespace

int64_t mix_scratch_bytes(const OpCall& call) {
  // Backward's, from either direction: whoever asks once has enough for both.
  const int64_t rows = (call.d_out.empty() ? call.in[kA] : call.d_out[0]).dim(0);
  return parameter_chunks(rows) * 2 * static_cast<int64_t>(sizeof(float));
}

std::vector<Kernel> mix_kernels() {
  return {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, mix_reference()};
}

}  // namespace ingot
