// sequence_balance's kernel for GPUs: from tensors and documents to the launches of sequence_balance.cu and
// route.cu.
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/route/scores.h"
#include "ops/sequence_balance/call.h"
#include "ops/sequence_balance/gpu_sequence_balance.h"
#include "ops/sequence_balance/sequence_balance.h"

namespace ingot {
namespace {

/// Calls f(GpuRouteDocuments) for all documents that have rows, as many at a time as fit.
template <class F>
void each_launch(const OpCall& call, F&& f) {
  GpuRouteDocuments d{};
  for (const SequenceSpan& s : balance_documents(call)) {
    if (d.count == GpuRouteDocuments::kMost) {
      const GpuRouteDocuments::Document next = d.of[d.count];
      f(d);
      d.first_document += d.count, d.count = 0, d.of[0] = next;
    }
    const GpuRouteDocuments::Document own = d.of[d.count++];
    d.of[d.count] = {own.first_row + static_cast<int32_t>(s.rows),
                     own.first_chunk + static_cast<int32_t>(parameter_chunks(s.rows))};
  }
  if (d.count > 0) f(d);
}

RouteRows arguments(const OpCall& call) {
  RouteRows r = route_rows(call.attr<SequenceBalanceAttr>().scores);
  r.logits = device_address<const float>(call.in[0]);
  r.ids = device_address<int32_t>(call.out[1]);
  return r;
}

/// Of a call with a list of documents.
void forward_list(const OpCall& call, const GpuRouteList& documents) {
  const RouteRows r = arguments(call);
  auto* const losses = static_cast<double*>(call.scratch);
  auto* const sums = reinterpret_cast<float*>(losses + documents.count());
  const int64_t stride = 2 * r.experts + 2;
  if (documents.rows > 0) {
    INGOT_GPU_CALL(launch_route_list_forward)({}, r, documents, sums, stride);
    INGOT_GPU_CALL(launch_balance_list)({}, documents, sums, stride, r.experts, losses);
  }
  INGOT_GPU_CALL(launch_balance_list_loss)
  ({}, losses, documents, balance_factor(call), device_address<float>(call.out[0]));
}

void forward(const OpCall& call) {
  if (const DocumentList list = documents_of(call, 1); list.words != nullptr)
    return forward_list(call, {list, call.in[0].dim(0)});
  const RouteRows r = arguments(call);
  const auto documents = static_cast<int64_t>(balance_documents(call).size());
  auto* const losses = static_cast<double*>(call.scratch);
  auto* const sums = reinterpret_cast<float*>(losses + documents);
  const int64_t stride = 2 * r.experts + 2;
  each_launch(call, [&](const GpuRouteDocuments& d) {
    INGOT_GPU_CALL(launch_route_documents_forward)({}, r, d, sums, stride);
    INGOT_GPU_CALL(launch_balance_documents)({}, d, sums, stride, r.experts, losses);
  });
  INGOT_GPU_CALL(launch_balance_loss)
  ({}, losses, documents, balance_factor(call), device_address<float>(call.out[0]));
}

void backward(const OpCall& call) {
  if (!call.d_in[0].wanted()) return;
  RouteRows r = arguments(call);
  const DocumentList list = documents_of(call, 1);
  const int64_t documents =
      list.words != nullptr ? list.capacity : static_cast<int64_t>(balance_documents(call).size());
  r.d_logits = device_address<float>(call.d_in[0].tensor), r.accumulate = call.d_in[0].accumulate;
  auto* const d_mass = static_cast<float*>(call.scratch);
  r.d_mass = d_mass;
  const GpuBalanceGradient gradient{r.experts,
                                    r.k,
                                    balance_factor(call),
                                    r.ids,
                                    device_address<const float>(call.d_out[0]),
                                    d_mass + documents * r.experts,
                                    d_mass};
  if (list.words != nullptr) {
    const GpuRouteList all{list, call.in[0].dim(0)};
    if (all.rows == 0) return;
    INGOT_GPU_CALL(launch_balance_list_gradient)({}, gradient, all);
    return INGOT_GPU_CALL(launch_route_list_backward)({}, r, all);
  }
  each_launch(call, [&](const GpuRouteDocuments& d) {
    INGOT_GPU_CALL(launch_balance_gradient)({}, gradient, d);
    INGOT_GPU_CALL(launch_route_documents_backward)({}, r, d);
  });
}

constexpr GpuLaunches kLaunches{refuse_sequence_balance, forward, backward};

}  // namespace

Kernel sequence_balance_gpu() {
  return emulated_kernel<sequence_balance_op, kLaunches>();
}

}  // namespace ingot
