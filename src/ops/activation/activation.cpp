// See activation.h: the op's description, and its CPU kernel: rows in parallel.
#include "ops/activation/activation.h"

#include "ops/activation/call.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<ActivationAttr>();
  const Tensor &x = call.in[0], &p = call.in[1];
  INGOT_CHECK(x.shape().rank() == 2 && (!is_gated(attr.kind) || x.dim(1) % 2 == 0), "x is {}", x.meta.str());
  INGOT_CHECK(!p.defined() || p.shape() == Shape{x.dim(0)}, "p is {}", p.meta.str());
  INGOT_CHECK(!call.in[2].defined() || (call.in[2].dtype() == DType::i32 && call.in[2].numel() > 0),
              "offsets {}", call.in[2].meta.str());
  out[0] = {Shape{x.dim(0), is_gated(attr.kind) ? x.dim(1) / 2 : x.dim(1)}, attr.out};
}

OpCost cost(const OpCall& call) {
  const double share = live_share(call.in[2], call.in[0].dim(0), call.attr<ActivationAttr>().expected);
  const double n = share * static_cast<double>(call.in[0].numel());
  return {10 * n, 20 * n, 0, live_bytes(call, slot_bit(0) | slot_bit(1), slot_bit(0), share)};
}

LiveRows live_rows(const OpCall& call) {
  return {rows_before_end(call.in[2], call.in[0].dim(0)), slot_bit(0), slot_bit(0) | slot_bit(1)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const ActivationAttr*>(attr_data);
  return fmt::format("{} out={}", name_of(a.kind), name_of(a.out));
}

constexpr int64_t kElements = 1 << 14;  // per piece of work

ActivationRows arguments(const OpCall& call, int64_t width) {
  const auto& attr = call.attr<ActivationAttr>();
  ActivationRows a{};
  a.function = function_of(attr.kind), a.gated = is_gated(attr.kind);
  a.cap = attr.cap.factors();
  a.width = width;
  a.x = call.in[0].data, a.x_type = call.in[0].dtype();
  a.p = device_address<const float>(call.in[1]);
  a.y_type = attr.out;
  return a;
}

void forward(const OpCall& call) {
  parallel_kernel(rows_before_end(call.in[2], call.out[0].dim(0)), row_grain(call.out[0].dim(1), kElements),
                  INGOT_ISA_CALL(activation_forward), activation_forward_rows(call));
}

void backward_input(const OpCall& call) {
  parallel_kernel(rows_before_end(call.in[2], call.d_out[0].dim(0)),
                  row_grain(call.d_out[0].dim(1), kElements / 2), INGOT_ISA_CALL(activation_backward),
                  activation_backward_rows(call));
}

}  // namespace

ActivationFunction function_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu:
      return ActivationFunction::gelu;
    case ActivationKind::gelu_tanh:
    case ActivationKind::geglu:
      return ActivationFunction::gelu_tanh;
    case ActivationKind::relu2:
      return ActivationFunction::relu2;
    case ActivationKind::soft_cap:
      return ActivationFunction::soft_cap;
    case ActivationKind::silu:
    case ActivationKind::swiglu:
      break;
  }
  return ActivationFunction::silu;
}

ActivationRows activation_forward_rows(const OpCall& call) {
  ActivationRows a = arguments(call, call.out[0].dim(1));
  a.y = call.out[0].data;
  return a;
}

ActivationRows activation_backward_rows(const OpCall& call) {
  ActivationRows a = arguments(call, call.d_out[0].dim(1));
  a.d_y = call.d_out[0].data;
  a.d_x = call.d_in[0].tensor.data, a.accumulate_x = call.d_in[0].accumulate;
  a.d_p = device_address<float>(call.d_in[1].tensor), a.accumulate_p = call.d_in[1].accumulate;
  return a;
}

const char* refuse_activation(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  if (call.in[1].defined() && call.in[1].dtype() != DType::f32) return "row weights other than f32";
  if (!call.d_in.empty() && call.d_in[0].wanted() && call.d_in[0].tensor.dtype() != call.in[0].dtype())
    return "a gradient of another type than its input";
  return nullptr;
}

const Op& activation_op() {
  static const Op op{
      .name = "activation",
      .inputs = {{"x"}, {"p", InputKind::activation, true}, {"offsets", InputKind::data, true}},
      .outputs = {{"y"}},
      .reads = always<BackwardReads{.input_in = slot_bit(0) | slot_bit(1) | slot_bit(2)}>,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = with_gpu_kernels("activation", {{"cpu", refuse_activation, forward, backward_input, nullptr},
                                                 activation_reference()}),
      .live_rows = live_rows,
      .axis_rule = {.passes = kElementwise}};
  return op;
}

Value activation(Tape& tape, const ActivationAttr& attr, const Value& x, const Value& p_T,
                 const Value& offsets) {
  return tape.apply(activation_op(), attr, {x, p_T, offsets}).front();
}

}  // namespace ingot
