// attention's kernels for GPUs, the exact one and that of bf16 on tensor cores: from packed rows and
// documents to the launches of device/attention/*.cu. Sequences with a cache have pages in the host's memory,
// which the emulator reaches and a GPU does not.
#include <algorithm>
#include <vector>

#include "device/attention/gpu_attention.h"
#include "ops/attention/attention.h"
#include "ops/attention/call.h"
#include "ops/attention/span_lists.h"
#include "ops/gpu_registry.h"
#include "ops/sequence/documents.h"

namespace ingot {
namespace {

bool has_cache(const OpCall& call) {
  const BatchLayout* const rows = call.attr<AttentionAttr>().rows;
  return rows != nullptr && std::any_of(rows->spans.begin(), rows->spans.end(),
                                        [](const SequenceSpan& s) { return s.state != nullptr; });
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_attention(call)) return reason;
  return has_cache(call) ? "sequences with a cache" : nullptr;
}

const char* refuse_mma(const OpCall& call) {
  if (const char* reason = refuse_attention(call)) return reason;
  if (call.in[0].dtype() != DType::bf16) return "rows of another type than bf16";
  return has_cache(call) && call.in[0].device == DeviceKind::cuda ? "sequences with a cache" : nullptr;
}

/// Where the call has no list of documents.
std::vector<AttentionSpan> spans_of_call(const OpCall& call) {
  SequenceSpan whole;
  std::vector<AttentionSpan> list;
  if (documents_of(call, kAttentionDocuments).words != nullptr) return list;
  for (const SequenceSpan& s : spans_of(call.attr<AttentionAttr>().rows, call.in[0].dim(0), whole))
    list.push_back({.first_row = s.row_begin, .rows = s.rows, .phase = s.phase});
  return list;
}

void set_spans(const OpCall& call, const std::vector<AttentionSpan>& spans, AttentionArgs& args) {
  args.spans = spans.data(), args.span_count = static_cast<int64_t>(spans.size());
  args.documents = documents_of(call, kAttentionDocuments);
  if (args.documents.words != nullptr) args.document_rows = call.in[0].dim(0);
}

/// With max_logit, which a forward raises.
AttentionArgs forward_arguments(const OpCall& call) {
  AttentionArgs args = attention_arguments(call);
  args.max_logit = device_address<float>(call.out[2]);
  if (args.max_logit != nullptr)
    INGOT_GPU_CALL(launch_first_max_logit)({}, args.max_logit, args.heads, call.in[0].dim(0) > 0);
  return args;
}

template <bool kMma>
void forward(const OpCall& call) {
  AttentionArgs args = forward_arguments(call);
  if (kMma && has_cache(call)) {
    const SpanLists& lists = SpanLists::of(call);
    lists.set_in_place(args);
    INGOT_GPU_CALL(launch_mma_attention_forward)({}, args);
    lists.set_paged(call.attr<AttentionAttr>(), args);
    INGOT_GPU_CALL(launch_mma_attention_forward)({}, args);
    return;
  }
  const std::vector<AttentionSpan> spans = spans_of_call(call);
  set_spans(call, spans, args);
  if (kMma)
    INGOT_GPU_CALL(launch_mma_attention_forward)({}, args);
  else
    INGOT_GPU_CALL(launch_attention_forward)({}, args);
}

template <bool kMma>
void backward(const OpCall& call) {
  const std::vector<AttentionSpan> spans = spans_of_call(call);
  const GradSlot& to = call.d_in[0];
  AttentionBackwardArgs args = attention_backward_arguments(call, to.tensor.data);
  set_spans(call, spans, args.forward);
  if (kMma)
    INGOT_GPU_CALL(launch_mma_attention_backward)({}, args, to.accumulate);
  else
    INGOT_GPU_CALL(launch_attention_backward)({}, args, to.accumulate);
}

constexpr GpuLaunches kLaunches{refuse, forward<false>, backward<false>};
constexpr GpuLaunches kMmaLaunches{
    .refuse = refuse_mma, .forward = forward<true>, .backward_input = backward<true>, .exact = false};

}  // namespace

Kernel attention_gpu() {
  return emulated_kernel<attention_op, kLaunches>();
}
Kernel attention_mma_gpu() {
  return emulated_kernel<attention_op, kMmaLaunches>();
}

}  // namespace ingot
