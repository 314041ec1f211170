// mla_latents and mla_pack on the CPU: rows in parallel, norm weights' gradients by chunks of rows.
#include <cstring>

#include "ops/cpu_rows.h"
#include "ops/mla/kernels.h"
#include "ops/mla/row_kernels.h"
#include "ops/parameter_chunks.h"

namespace ingot {
namespace {

constexpr int64_t kMaxRope = 1024;  // kept on the stack by the kernels

namespace latents {
using namespace mla_latents_slot;

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  return call.attr<MlaLatentsAttr>().rope > kMaxRope ? "more than 1024 rotary channels" : nullptr;
}

MlaLatentRows arguments(const OpCall& call) {
  const auto& a = call.attr<MlaLatentsAttr>();
  MlaLatentRows p{};
  p.ranks[0] = a.q_rank, p.ranks[1] = a.kv_rank, p.rope = a.rope, p.eps = static_cast<float>(a.eps);
  p.rotary = rotary_table(a.rotary);
  p.positions = call.in[kPositions].as<int32_t>();
  p.x = call.in[kDown].data, p.x_type = call.in[kDown].dtype();
  p.weights[0] = call.in[kQWeight].as<float>(), p.weights[1] = call.in[kKvWeight].as<float>();
  p.rstd = call.out[kRstd].as<float>();
  p.y_type = a.out;
  return p;
}

void forward(const OpCall& call) {
  MlaLatentRows p = arguments(call);
  check_positions(p.positions, call.in[kDown].dim(0));
  for (const size_t o : {0, 1, 2}) p.y[o] = call.out[o].data;
  parallel_for(call.in[kDown].dim(0), 16, [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(mla_latents_forward)(p, begin, end);
  });
}

void backward(const OpCall& call) {
  MlaLatentRows p = arguments(call);
  const int64_t rows = call.in[kDown].dim(0), width = p.ranks[0] + p.ranks[1];
  for (const size_t o : {0, 1, 2}) p.d_y[o] = call.d_out[o].data;
  p.d_x = call.d_in[kDown].tensor.data, p.accumulate = call.d_in[kDown].accumulate;
  const bool weights = call.d_in[kQWeight].wanted() || call.d_in[kKvWeight].wanted();
  auto* partials = static_cast<float*>(call.scratch);
  parallel_for(parameter_chunks(rows), 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      float* d_weights = weights ? partials + chunk * width : nullptr;
      if (weights) std::memset(d_weights, 0, static_cast<size_t>(width) * sizeof(float));
      const int64_t begin = chunk * kParameterChunkRows;
      INGOT_ISA_CALL(mla_latents_backward)(p, begin, std::min(rows, begin + kParameterChunkRows), d_weights);
    }
  });
  combine_parameter_chunks(partials, parameter_chunks(rows), width, p.ranks[0], call.d_in[kQWeight]);
  combine_parameter_chunks(partials + p.ranks[0], parameter_chunks(rows), width, p.ranks[1],
                           call.d_in[kKvWeight]);
}
}  // namespace latents

namespace pack {
using namespace mla_pack_slot;

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  return call.attr<MlaPackAttr>().rope > kMaxRope ? "more than 1024 rotary channels" : nullptr;
}

MlaPackRows arguments(const OpCall& call) {
  const auto& a = call.attr<MlaPackAttr>();
  MlaPackRows p{};
  p.heads = a.heads, p.nope = a.nope, p.rope = a.rope, p.value = a.value;
  p.rotary = rotary_table(a.rotary);
  p.positions = call.in[kPositions].as<int32_t>();
  return p;
}

void forward(const OpCall& call) {
  MlaPackRows p = arguments(call);
  const int64_t rows = call.in[kQ].dim(0);
  check_positions(p.positions, rows);
  p.type = call.in[kQ].dtype();
  p.q = call.in[kQ].data, p.kv = call.in[kKv].data, p.k_rope = call.in[kKRope].data;
  p.queries_only = !call.in[kKv].defined();
  p.y = call.out[0].data;
  parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(mla_pack_forward)(p, begin, end);
  });
}

void backward(const OpCall& call) {
  MlaPackRows p = arguments(call);
  const Tensor& d_y = call.d_out[0];
  p.type = d_y.dtype();
  p.queries_only = d_y.dim(1) == p.heads * (p.nope + p.rope);
  p.d_y = d_y.data;
  p.d_q = call.d_in[kQ].tensor.data, p.accumulate_q = call.d_in[kQ].accumulate;
  p.d_kv = call.d_in[kKv].tensor.data, p.accumulate_kv = call.d_in[kKv].accumulate;
  p.d_k_rope = call.d_in[kKRope].tensor.data, p.accumulate_k_rope = call.d_in[kKRope].accumulate;
  parallel_for(d_y.dim(0), 16, [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(mla_pack_backward)(p, begin, end);
  });
}
}  // namespace pack

}  // namespace

int64_t mla_latents_scratch_bytes(const OpCall& call) {
  const auto& a = call.attr<MlaLatentsAttr>();
  return parameter_chunks(call.in[mla_latents_slot::kPositions].dim(0)) * (a.q_rank + a.kv_rank) * 4;
}

std::vector<Kernel> mla_latents_kernels() {
  return {{"cpu", latents::refuse, latents::forward, latents::backward, nullptr}, mla_latents_reference()};
}
std::vector<Kernel> mla_pack_kernels() {
  return {{"cpu", pack::refuse, pack::forward, pack::backward, nullptr}, mla_pack_reference()};
}

}  // namespace ingot
