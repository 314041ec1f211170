// See qk_prepare.h: the op's description, and its CPU kernel: rows in parallel, weight gradients by
// chunks of rows.
#include "ops/qk_prepare/qk_prepare.h"

#include <cstring>

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/qk_prepare/call.h"

namespace ingot {
namespace {

using namespace qk_prepare_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<QkPrepareAttr>();
  const Tensor& qkv = call.in[kQkv];
  INGOT_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_width > 0 && a.rotary.dims >= 0 &&
                  a.rotary.dims % 2 == 0 && a.rotary.dims <= a.head_width,
              "{} + {} heads of {}, {} of them rotary", a.heads, a.kv_heads, a.head_width, a.rotary.dims);
  INGOT_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == (a.heads + 2 * a.kv_heads) * a.head_width, "qkv is {}",
              qkv.meta.str());
  INGOT_CHECK(
      call.in[kPositions].meta.shape == Shape{qkv.dim(0)} && call.in[kPositions].dtype() == DType::i32,
      "positions are {}", call.in[kPositions].meta.str());
  const DType statistic = statistic_of(qkv);
  for (const uint32_t i : {kQWeight, kKWeight})
    INGOT_CHECK(
        !call.in[i].defined() || (a.norm && call.in[i].meta.shape == Shape{a.weight_width(i - kQWeight)} &&
                                  call.in[i].dtype() == statistic),
        "norm {}, weight is {}", a.norm, call.in[i].meta.str());
  out[0] = {qkv.shape(), a.out};
  out[1] = {Shape{a.norm ? qkv.dim(0) : 0, a.norms()}, statistic};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[kQkv].numel());
  return {8 * n, 16 * n, 0, static_cast<double>(call.in[kQkv].bytes() + call.out[0].bytes())};
}

BackwardReads reads(const void* attr_data) {
  BackwardReads r;
  r.input_in = 1u << kPositions;
  if (static_cast<const QkPrepareAttr*>(attr_data)->norm) {
    r.input_in |= 1u << kQkv | 1u << kQWeight | 1u << kKWeight;
    r.input_out = 0b10;
  }
  return r;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const QkPrepareAttr*>(attr_data);
  return fmt::format("heads={}/{}x{} rotary={} {} theta={} norm={} joint={} offset={} eps={} out={}", a.heads,
                     a.kv_heads, a.head_width, a.rotary.dims, name_of(a.rotary.kind), a.rotary.theta, a.norm,
                     a.joint, a.weight_offset, a.eps, name_of(a.out));
}

void forward(const OpCall& call) {
  const QkPrepareRows p = qk_prepare_forward_rows(call);
  const int64_t rows = call.in[kPositions].dim(0);
  check_positions(p.positions, rows);
  parallel_kernel(rows, 16, INGOT_ISA_CALL(qk_prepare_forward), p);
}

void backward(const OpCall& call) {
  const QkPrepareRows p = qk_prepare_backward_rows(call);
  const auto& a = call.attr<QkPrepareAttr>();
  const int64_t rows = call.in[kPositions].dim(0), q_width = a.weight_width(0),
                width = q_width + a.weight_width(1);
  const bool weights = call.d_in[kQWeight].wanted() || call.d_in[kKWeight].wanted();
  auto* partials = static_cast<float*>(call.scratch);
  parallel_for(parameter_chunks(rows), 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      float* d_weights = weights ? partials + chunk * width : nullptr;
      if (weights) std::memset(d_weights, 0, static_cast<size_t>(width) * sizeof(float));
      const int64_t begin = chunk * kParameterChunkRows;
      INGOT_ISA_CALL(qk_prepare_backward)(p, begin, std::min(rows, begin + kParameterChunkRows), d_weights);
    }
  });
  combine_parameter_chunks(partials, parameter_chunks(rows), width, q_width, call.d_in[kQWeight]);
  combine_parameter_chunks(partials + q_width, parameter_chunks(rows), width, width - q_width,
                           call.d_in[kKWeight]);
}

int64_t scratch_bytes(const OpCall& call) {
  const auto& a = call.attr<QkPrepareAttr>();
  if (!call.in[kQWeight].defined() && !call.in[kKWeight].defined()) return 0;
  return parameter_chunks(call.in[kPositions].dim(0)) * (a.weight_width(0) + a.weight_width(1)) * 4;
}

/// What forward and backward share; absent tensors become nullptr.
QkPrepareRows arguments(const OpCall& call) {
  const auto& a = call.attr<QkPrepareAttr>();
  QkPrepareRows p{};
  p.heads = a.heads, p.kv_heads = a.kv_heads, p.width = a.head_width;
  p.norm = a.norm, p.joint = a.joint;
  p.eps = static_cast<float>(a.eps), p.weight_offset = static_cast<float>(a.weight_offset);
  p.rotary = rotary_table(a.rotary);
  p.positions = device_address<const int32_t>(call.in[kPositions]);
  p.x = call.in[kQkv].data, p.x_type = call.in[kQkv].dtype();
  p.weights[0] = device_address<const float>(call.in[kQWeight]);
  p.weights[1] = device_address<const float>(call.in[kKWeight]);
  p.rstd = device_address<float>(call.out[1]);
  p.y_type = a.out;
  return p;
}

}  // namespace

const char* refuse_qk_prepare(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  return call.attr<QkPrepareAttr>().head_width > 1024 ? "heads wider than 1024" : nullptr;
}

QkPrepareRows qk_prepare_forward_rows(const OpCall& call) {
  QkPrepareRows p = arguments(call);
  p.y = call.out[0].data;
  return p;
}

QkPrepareRows qk_prepare_backward_rows(const OpCall& call) {
  QkPrepareRows p = arguments(call);
  const GradSlot& d_x = call.d_in[kQkv];
  p.d_y = call.d_out[0].data;
  p.d_x = d_x.tensor.data, p.accumulate = d_x.accumulate;
  if (d_x.wanted()) p.x_type = d_x.tensor.dtype();
  return p;
}

const Op& qk_prepare_op() {
  static const Op op{
      .name = "qk_prepare",
      .inputs = {{"qkv"},
                 {"positions", InputKind::data},
                 {"q_weight", InputKind::parameter, true},
                 {"k_weight", InputKind::parameter, true}},
      .outputs = {{"qkv"}, {"rstd", false}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "qk_prepare", {{"cpu", refuse_qk_prepare, forward, backward, nullptr}, qk_prepare_reference()}),
      .axis_rule = {.passes = kElementwise}};
  return op;
}

Value qk_prepare(Tape& tape, const QkPrepareAttr& attr, const Value& qkv_TW, const Value& positions_T,
                 const Value& q_weight, const Value& k_weight) {
  return tape.apply(qk_prepare_op(), attr, {qkv_TW, positions_T, q_weight, k_weight})[0];
}

}  // namespace ingot
