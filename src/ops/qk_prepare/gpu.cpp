// qk_prepare's kernel for GPUs: from tensors to the launches of qk_prepare.cu.
#include <tuple>

#include "ops/gpu_parameter_chunks.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/qk_prepare/call.h"
#include "ops/qk_prepare/gpu_qk_prepare.h"
#include "ops/qk_prepare/qk_prepare.h"
#include "ops/sequence/gpu_rotary.h"

namespace ingot {
namespace {

using namespace qk_prepare_slot;

void forward(const OpCall& call) {
  QkPrepareRows p = qk_prepare_forward_rows(call);
  p.rotary = on_gpu(p.rotary);
  INGOT_GPU_CALL(launch_qk_prepare_forward)({}, p, call.in[kPositions].dim(0));
}

void backward(const OpCall& call) {
  QkPrepareRows p = qk_prepare_backward_rows(call);
  p.rotary = on_gpu(p.rotary);
  const auto& a = call.attr<QkPrepareAttr>();
  const int64_t rows = call.in[kPositions].dim(0), width = a.weight_width(0) + a.weight_width(1);
  if (p.d_x != nullptr) INGOT_GPU_CALL(launch_qk_prepare_backward)({}, p, rows);
  if (!call.d_in[kQWeight].wanted() && !call.d_in[kKWeight].wanted()) return;
  auto* const sums = static_cast<float*>(call.scratch);
  INGOT_GPU_CALL(launch_qk_prepare_sums)({}, p, rows, kParameterChunkRows, sums, width);
  for (const auto& [input, first, own] : {std::tuple{kQWeight, int64_t{0}, a.weight_width(0)},
                                          {kKWeight, a.weight_width(0), a.weight_width(1)}})
    INGOT_GPU_CALL(launch_parameter_sum)
  ({}, {sums + first, parameter_chunks(rows), width, own, nullptr,
        device_address<float>(call.d_in[input].tensor), call.d_in[input].accumulate});
}

constexpr GpuLaunches kLaunches{refuse_qk_prepare, forward, backward};

}  // namespace

Kernel qk_prepare_gpu() {
  return emulated_kernel<qk_prepare_op, kLaunches>();
}

}  // namespace ingot
