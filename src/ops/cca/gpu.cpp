// cca's kernel for GPUs: from tensors and documents to the launches of cca.cu, cca_backward.cu and, for the
// grouped weights' gradient, product.cu. Not for sequences with a cache.
#include <algorithm>
#include <utility>
#include <vector>

#include "device/gemm/gpu_product.h"
#include "ops/cca/call.h"
#include "ops/cca/cca.h"
#include "ops/cca/gpu_cca.h"
#include "ops/gpu_parameter_chunks.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/sequence/documents.h"
#include "ops/sequence/gpu_rotary.h"

namespace ingot {
namespace {

using namespace cca_input;

static_assert(kParameterChunkRows == 64, "GpuCca::sums");

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_cca(call)) return reason;
  if (call.in[kGrouped].packed() != nullptr) return "packed weights";
  const BatchLayout* const rows = call.attr<CcaAttr>().rows;
  const auto has_cache = [](const SequenceSpan& s) { return s.state != nullptr; };
  return rows != nullptr && std::any_of(rows->spans.begin(), rows->spans.end(), has_cache)
             ? "sequences with a cache"
             : nullptr;
}

/// A call, its buffers in the scratch memory, and what they hold before the first kernel of a pass.
class Problem {
 public:
  Problem(const OpCall& call, bool backward) {
    GpuCca& a = args;
    CcaRows& p = a.rows;
    p = cca_rows(call);
    p.rotary = on_gpu(p.rotary);
    a.count = call.in[kQkv].dim(0);
    const Tensor& grouped = call.in[kGrouped];
    a.taps = device_address<const float>(call.in[kDepthwise]);
    a.grouped = grouped.data, a.grouped_type = grouped.dtype(), a.grouped_is_rounded = grouped.rounded();
    a.grouped_bias = device_address<const float>(call.in[kGroupedBias]);
    a.listed = documents_of(call, kDocuments);
    std::vector<int32_t> begins;
    SequenceSpan whole;
    for (const SequenceSpan& s : spans_of(call.attr<CcaAttr>().rows, a.count, whole))
      if (s.rows > 0) begins.push_back(static_cast<int32_t>(s.row_begin));
    const auto documents =
        a.listed.words != nullptr ? a.listed.capacity : static_cast<int64_t>(begins.size());
    heads = p.heads + p.kv_heads, channels = heads * p.width;
    p.view_rows = p.block_rows = a.count + documents;
    auto* floats = static_cast<float*>(call.scratch);
    const auto take = [&](int64_t count) { return std::exchange(floats, floats + count); };
    if (backward) {
      const int64_t buffer = channels * p.view_rows + p.width;
      p.u = take(buffer), p.d_c = take(buffer), p.d_u = p.u;
      a.sum_stride = cca_sum_floats(p);
      a.sums = take(parameter_chunks(a.count) * a.sum_stride);
    }
    a.own_taps = take(2 * channels), p.older = a.own_taps, p.newer = p.older + channels;
    a.views = reinterpret_cast<int32_t*>(take(a.count));
    a.offsets = reinterpret_cast<int32_t*>(take(heads + 1));
    if (a.listed.words != nullptr)
      INGOT_GPU_CALL(launch_cca_begin_listed)({}, a);
    else
      INGOT_GPU_CALL(launch_cca_begin)({}, a, begins.data(), documents);
  }

  GpuCca args{};
  int64_t heads, channels;
};

void forward(const OpCall& call) {
  Problem problem(call, false);
  problem.args.rows.y = call.out[0].data;
  problem.args.rows.inverse_norms = device_address<float>(call.out[1]);
  INGOT_GPU_CALL(launch_cca_forward)({}, problem.args);
}

/// Products of d_c_t and [u_{t-1} | u_t], which lie beside each other.
void weight_gradient(const Problem& problem, const GradSlot& slot) {
  const CcaRows& p = problem.args.rows;
  GpuGroupedProduct g{{}, problem.args.offsets, problem.heads, 2 * p.width * p.width};
  g.product.m = p.width, g.product.n = 2 * p.width;
  g.product.a = p.d_c + p.width, g.product.a_row = 1, g.product.a_k = p.width;
  g.product.b = p.u, g.product.b_k = p.width;
  g.product.c = device_address<float>(slot.tensor), g.product.c_row = 2 * p.width;
  g.product.accumulate = slot.accumulate;
  INGOT_GPU_CALL(launch_grouped_depth)({}, g);
}

void backward(const OpCall& call) {
  Problem problem(call, true);
  GpuCca& a = problem.args;
  set_cca_gradients(call, a.rows);
  INGOT_GPU_CALL(launch_cca_heads_backward)({}, a);
  if (call.d_in[kGrouped].wanted()) weight_gradient(problem, call.d_in[kGrouped]);
  INGOT_GPU_CALL(launch_cca_grouped_backward)({}, a);
  INGOT_GPU_CALL(launch_cca_depthwise_backward)({}, a);
  const int64_t C = problem.channels;
  const auto sum = [&](int64_t first, int64_t width, const GradSlot& slot, int64_t to = 0, int64_t step = 1) {
    if (slot.wanted()) INGOT_GPU_CALL(launch_parameter_sum)
    ({}, {a.sums + first, parameter_chunks(a.count), a.sum_stride, width, nullptr,
          device_address<float>(slot.tensor) + to, slot.accumulate, step});
  };
  sum(0, C, call.d_in[kDepthwise], 0, 2), sum(C, C, call.d_in[kDepthwise], 1, 2);
  sum(2 * C, C, call.d_in[kDepthwiseBias]);
  sum(3 * C, C, call.d_in[kGroupedBias]);
  sum(4 * C, a.rows.kv_heads, call.d_in[kTemperature]);
}

constexpr GpuLaunches kLaunches{refuse, forward, backward, nullptr, {.rounded = slot_bit(kGrouped)}};

}  // namespace

Kernel cca_gpu() {
  return emulated_kernel<cca_op, kLaunches>();
}

}  // namespace ingot
