// The kernels of mla_latents and mla_pack for GPUs: from tensors to the launches of mla.cu.
#include <tuple>

#include "ops/gpu_parameter_chunks.h"
#include "ops/gpu_registry.h"
#include "ops/mla/call.h"
#include "ops/mla/gpu_mla.h"
#include "ops/mla/mla.h"
#include "ops/parameter_chunks.h"
#include "ops/sequence/gpu_rotary.h"

namespace ingot {
namespace {

template <class Rows>
Rows on_gpu(Rows p) {
  p.rotary = ingot::on_gpu(p.rotary);
  return p;
}

void forward_latents(const OpCall& call) {
  INGOT_GPU_CALL(launch_mla_latents_forward)
  ({}, on_gpu(mla_latents_forward_rows(call)), call.in[mla_latents_slot::kDown].dim(0));
}

void backward_latents(const OpCall& call) {
  using namespace mla_latents_slot;
  const MlaLatentRows p = on_gpu(mla_latents_backward_rows(call));
  const int64_t rows = call.in[kDown].dim(0), q = p.ranks[0], c = p.ranks[1];
  if (p.d_x != nullptr) INGOT_GPU_CALL(launch_mla_latents_backward)({}, p, rows);
  if (!call.d_in[kQWeight].wanted() && !call.d_in[kKvWeight].wanted()) return;
  auto* const sums = static_cast<float*>(call.scratch);
  INGOT_GPU_CALL(launch_mla_latents_sums)({}, p, rows, kParameterChunkRows, sums);
  for (const auto& [input, first, width] : {std::tuple{kQWeight, int64_t{0}, q}, std::tuple{kKvWeight, q, c}})
    INGOT_GPU_CALL(launch_parameter_sum)
  ({}, {sums + first, parameter_chunks(rows), q + c, width, nullptr,
        device_address<float>(call.d_in[input].tensor), call.d_in[input].accumulate});
}

void forward_pack(const OpCall& call) {
  INGOT_GPU_CALL(launch_mla_pack_forward)({}, on_gpu(mla_pack_forward_rows(call)), call.out[0].dim(0));
}

void backward_pack(const OpCall& call) {
  INGOT_GPU_CALL(launch_mla_pack_backward)({}, on_gpu(mla_pack_backward_rows(call)), call.d_out[0].dim(0));
}

constexpr GpuLaunches kLatents{refuse_mla_latents, forward_latents, backward_latents};
constexpr GpuLaunches kPack{refuse_mla_pack, forward_pack, backward_pack};

}  // namespace

Kernel mla_latents_gpu() {
  return emulated_kernel<mla_latents_op, kLatents>();
}
Kernel mla_pack_gpu() {
  return emulated_kernel<mla_pack_op, kPack>();
}

}  // namespace ingot
