// attention's kernel for GPUs: from packed rows and documents to the launches of device/attention/*.cu. Not
// for sequences with a cache.
#include <algorithm>
#include <vector>

#include "device/attention/gpu_attention.h"
#include "ops/attention/attention.h"
#include "ops/attention/call.h"
#include "ops/gpu_registry.h"
#include "ops/sequence/documents.h"

namespace ingot {
namespace {

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_attention(call)) return reason;
  const BatchLayout* const rows = call.attr<AttentionAttr>().rows;
  const auto has_cache = [](const SequenceSpan& s) { return s.state != nullptr; };
  return rows != nullptr && std::any_of(rows->spans.begin(), rows->spans.end(), has_cache)
             ? "sequences with a cache"
             : nullptr;
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

void forward(const OpCall& call) {
  const std::vector<AttentionSpan> spans = spans_of_call(call);
  AttentionArgs args = attention_arguments(call);
  set_spans(call, spans, args);
  args.max_logit = device_address<float>(call.out[2]);
  INGOT_GPU_CALL(launch_attention_forward)({}, args);
}

void backward(const OpCall& call) {
  const std::vector<AttentionSpan> spans = spans_of_call(call);
  const GradSlot& to = call.d_in[0];
  AttentionBackwardArgs args = attention_backward_arguments(call, to.tensor.data);
  set_spans(call, spans, args.forward);
  INGOT_GPU_CALL(launch_attention_backward)({}, args, to.accumulate);
}

constexpr GpuLaunches kLaunches{refuse, forward, backward};

}  // namespace

Kernel attention_gpu() {
  return emulated_kernel<attention_op, kLaunches>();
}

}  // namespace ingot
