// See sequence_balance.h: the op's description, and its CPU kernel: documents in parallel, by the row
// kernels of route.
#include "ops/sequence_balance/sequence_balance.h"

#include <algorithm>

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/route/scores.h"
#include "ops/sequence_balance/call.h"

namespace ingot {
namespace {

/// Sum over experts of count times mass in one document, over its length.
double document_loss(const RouteRows& r, const SequenceSpan& d) {
  float counts[kMaxRouteClasses] = {}, mass[kMaxRouteClasses] = {}, part[kMaxRouteClasses], unused[2] = {};
  for (int64_t begin = d.row_begin; begin < d.row_begin + d.rows; begin += kParameterChunkRows) {
    std::fill(part, part + r.experts, 0.0f);
    INGOT_ISA_CALL(route_forward)
    (r, begin, std::min(begin + kParameterChunkRows, d.row_begin + d.rows),
     {counts, part, unused, unused + 1});
    for (int64_t e = 0; e < r.experts; ++e) mass[e] += part[e];
  }
  double sum = 0;
  for (int64_t e = 0; e < r.experts; ++e)
    sum += static_cast<double>(counts[e]) * static_cast<double>(mass[e]);
  return sum / static_cast<double>(d.rows);
}

RouteRows arguments(const OpCall& call) {
  RouteRows r = route_rows(call.attr<SequenceBalanceAttr>().scores);
  r.logits = call.in[0].as<float>();
  r.ids = call.out[1].as<int32_t>();
  return r;
}

void forward(const OpCall& call) {
  const RouteRows r = arguments(call);
  const auto all = balance_documents(call);
  auto* losses = static_cast<double*>(call.scratch);
  parallel_for(static_cast<int64_t>(all.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t d = first; d < last; ++d) losses[d] = document_loss(r, all[static_cast<size_t>(d)]);
  });
  double sum = 0;
  for (size_t d = 0; d < all.size(); ++d) sum += losses[d];
  *call.out[0].as<float>() = static_cast<float>(balance_factor(call) * sum);
}

void backward_input(const OpCall& call) {
  if (!call.d_in[0].wanted()) return;
  RouteRows r = arguments(call);
  r.d_logits = call.d_in[0].tensor.as<float>(), r.accumulate = call.d_in[0].accumulate;
  const auto all = balance_documents(call);
  const double scale = balance_factor(call) * *call.d_out[0].as<float>();
  parallel_for(static_cast<int64_t>(all.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t d = first; d < last; ++d) {
      const SequenceSpan& s = all[static_cast<size_t>(d)];
      float d_mass[kMaxRouteClasses] = {};
      for (int64_t i = s.row_begin * r.k; i < (s.row_begin + s.rows) * r.k; ++i) d_mass[r.ids[i]] += 1;
      for (int64_t e = 0; e < r.experts; ++e)
        d_mass[e] = static_cast<float>(scale * d_mass[e] / static_cast<double>(s.rows));
      RouteRows mine = r;
      mine.d_mass = d_mass;
      INGOT_ISA_CALL(route_backward)(mine, s.row_begin, s.row_begin + s.rows);
    }
  });
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const RouteAttr& a = call.attr<SequenceBalanceAttr>().scores;
  const Tensor& logits = call.in[0];
  INGOT_CHECK(logits.shape().rank() == 2 && logits.dim(1) == a.experts + a.skip_classes && 1 <= a.k &&
                  a.k <= a.experts,
              "logits {} for top {} of {}+{} classes", logits.meta.str(), a.k, a.experts, a.skip_classes);
  out[0] = {Shape{1}, logits.dtype()};
  out[1] = {Shape{logits.dim(0), a.k}, DType::i32};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[0].numel());
  return {12 * n, 12 * n, 0, tensor_bytes(call)};
}

/// Of each document a double; kernels of GPUs also have sums of chunks, those of each document its own.
int64_t scratch_bytes(const OpCall& call) {
  const auto& a = call.attr<SequenceBalanceAttr>();
  const int64_t rows = call.in[0].dim(0), spans = a.rows != nullptr ? std::ssize(a.rows->spans) : 1,
                documents = std::max(spans, most_documents(rows));
  return documents * int64_t{sizeof(double)} +
         (parameter_chunks(rows) + documents) * (2 * a.scores.experts + 2) * int64_t{sizeof(float)};
}

std::string print(const void* attr_data) {
  const RouteAttr& a = static_cast<const SequenceBalanceAttr*>(attr_data)->scores;
  return fmt::format("top{} of {}", a.k, a.experts);
}

}  // namespace

const char* refuse_sequence_balance(const OpCall& call) {
  if (call.in[0].dtype() != DType::f32) return "a type other than f32";
  const RouteAttr& a = call.attr<SequenceBalanceAttr>().scores;
  return a.experts + a.skip_classes > kMaxRouteClasses ? "more than 1024 classes" : nullptr;
}

std::vector<SequenceSpan> balance_documents(const OpCall& call) {
  const CallSpans of_call(call, call.attr<SequenceBalanceAttr>().rows, 1);
  std::vector<SequenceSpan> found;
  for (const SequenceSpan& s : of_call.spans())
    if (s.rows > 0) found.push_back(s);
  return found;
}

double balance_factor(const OpCall& call) {
  const RouteAttr& a = call.attr<SequenceBalanceAttr>().scores;
  return a.experts / (static_cast<double>(a.k) * std::max<double>(1, static_cast<double>(call.in[0].dim(0))));
}

const Op& sequence_balance_op() {
  static const Op op{
      .name = "sequence_balance",
      .inputs = {{"logits"}, {"documents", InputKind::data, true}},
      .outputs = {{"loss"}, {"ids", false}},
      .reads = always<BackwardReads{.input_in = slot_bit(0) | slot_bit(1), .input_out = slot_bit(1)}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "sequence_balance",
          {{"cpu", refuse_sequence_balance, forward, backward_input, nullptr}, sequence_balance_reference()}),
      .axis_rule = {.passes = kRowwise, .along_sequence = true}};
  return op;
}

Value sequence_balance(Tape& tape, const SequenceBalanceAttr& attr, const Value& logits_TE,
                       const Value& documents) {
  return tape.apply(sequence_balance_op(), attr, {logits_TE, documents}).front();
}

}  // namespace ingot
