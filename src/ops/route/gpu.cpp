// route's kernel for GPUs: from tensors to the launches of route.cu.
#include <algorithm>

#include "ops/common.h"
#include "ops/gpu_parameter_chunks.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/route/gpu_route.h"
#include "ops/route/route.h"
#include "ops/route/scores.h"

namespace ingot {
namespace {

static_assert(kGpuRouteChunk == kParameterChunkRows);

RouteRows arguments(const OpCall& call) {
  RouteRows r = route_rows(call.attr<RouteAttr>());
  r.logits = device_address<const float>(call.in[0]);
  r.ids = device_address<int32_t>(call.out[1]);
  return r;
}

double rows_of(const OpCall& call) {
  return std::max<double>(1, static_cast<double>(call.in[0].dim(0)));
}

/// `counts`: of the choices of this call.
GpuRouteBalance balance_of(const OpCall& call, const float* counts) {
  const auto& a = call.attr<RouteAttr>();
  const Tensor &load = call.in[2], &earlier = call.in[4];
  const bool own = a.load_tokens == 0 && !load.defined();
  return {a.experts, static_cast<double>(a.experts) / rows_of(call),
          own ? static_cast<double>(a.k) * rows_of(call) : a.load_choices(),
          load.defined() ? device_address<const float>(load) : counts, device_address<const float>(earlier)};
}

void forward(const OpCall& call) {
  const int64_t rows = call.in[0].dim(0), experts = call.attr<RouteAttr>().experts, width = 2 * experts + 2;
  RouteRows r = arguments(call);
  if (call.in[1].defined()) r.bias = device_address<const float>(call.in[1]), r.choices = call.in[1].numel();
  r.forced = device_address<const int32_t>(call.in[3]);
  r.probs = device_address<float>(call.out[0]);
  auto* const totals = static_cast<float*>(call.scratch);
  float* const partials = totals + width;
  INGOT_GPU_CALL(launch_route_forward)({}, r, rows, partials, width);
  INGOT_GPU_CALL(launch_parameter_sum)
  ({}, {partials, parameter_chunks(rows), width, width, nullptr, totals, false});
  INGOT_GPU_CALL(launch_route_losses)
  ({}, {balance_of(call, totals), totals, rows_of(call), device_address<float>(call.out[2]),
        device_address<float>(call.out[3]), device_address<float>(call.out[4]),
        device_address<float>(call.out[5])});
}

void backward(const OpCall& call) {
  if (!call.d_in[0].wanted()) return;
  RouteRows r = arguments(call);
  r.d_probs = device_address<const float>(call.d_out[0]);
  r.d_logits = device_address<float>(call.d_in[0].tensor), r.accumulate = call.d_in[0].accumulate;
  auto* const d_mass = static_cast<float*>(call.scratch);
  INGOT_GPU_CALL(launch_route_backward)
  ({}, r, call.in[0].dim(0),
   {balance_of(call, device_address<const float>(call.out[2])), rows_of(call),
    device_address<const float>(call.d_out[3]), device_address<const float>(call.d_out[4]), d_mass,
    d_mass + r.experts});
}

const char* refuse(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  if (a.groups_kept < a.groups && a.groups > kMaxGpuRouteGroups)
    return "some of more than 64 groups of experts";
  return refuse_route(call);
}

constexpr GpuLaunches kLaunches{refuse, forward, backward};

}  // namespace

Kernel route_gpu() {
  return emulated_kernel<route_op, kLaunches>();
}

}  // namespace ingot
