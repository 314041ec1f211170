// See head.h: the op's description.
#include "ops/head/head.h"

#include "ops/activation/activation.h"
#include "ops/head/kernels.h"
#include "ops/linear/linear.h"

namespace ingot {
namespace {

using namespace head_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<HeadAttr>();
  const Tensor &x_in = call.in[x], &w = call.in[weight], &t = call.in[targets];
  INGOT_CHECK(x_in.shape().rank() == 2 && w.shape().rank() == 2 && x_in.dim(1) == w.dim(1),
              "x {} by weight {}", x_in.meta.str(), w.meta.str());
  INGOT_CHECK(t.dtype() == DType::i32 && t.shape() == Shape{x_in.dim(0)}, "targets {}", t.meta.str());
  INGOT_CHECK(a.mode != HeadMode::automatic, "nobody has chosen a mode");
  INGOT_CHECK(call.in[row_weight].defined() == (a.mode == HeadMode::gradient));
  INGOT_CHECK(a.mode != HeadMode::gradient || (!a.entropy && !call.in[teacher].defined()),
              "mode gradient knows the cotangents of logprob and lse only");
  const int64_t rows = x_in.dim(0), vocabulary = w.dim(0);
  const DType statistic = x_in.dtype() == DType::f64 ? DType::f64 : DType::f32;
  out[logprob] = out[lse] = {Shape{rows}, statistic};
  out[entropy] = {Shape{a.entropy ? rows : 0}, statistic};
  out[kl] = {Shape{call.in[teacher].defined() ? rows : 0}, statistic};
  out[best] = {Shape{rows}, DType::i32};
  out[logits] = {a.mode == HeadMode::store ? Shape{rows, vocabulary} : Shape{0, vocabulary}, statistic};
  out[d_x] = {a.mode == HeadMode::gradient ? x_in.shape() : Shape{0, x_in.dim(1)}, x_in.dtype()};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  const auto vocabulary = static_cast<double>(call.in[weight].dim(0));
  const auto rows = static_cast<double>(call.in[targets].dim(0));
  const double product = 2.0 * rows * vocabulary * static_cast<double>(call.in[weight].dim(1));
  const double back = a.mode == HeadMode::recompute ? 3 * product
                      : a.mode == HeadMode::store   ? 2 * product
                                                    : 0;
  return {a.mode == HeadMode::gradient ? 3 * product : product, back, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr_data) {
  const auto& a = *static_cast<const HeadAttr*>(attr_data);
  BackwardReads r;
  if (a.mode == HeadMode::gradient) {
    r.input_out = slot_bit(d_x);
    return r;
  }
  r.input_in = slot_bit(x) | slot_bit(weight) | slot_bit(targets) | slot_bit(teacher);
  r.input_out = slot_bit(lse) | slot_bit(entropy);
  if (a.mode == HeadMode::store) r.input_out |= slot_bit(logits);
  return r;
}

int64_t scratch_bytes(const OpCall& call) {
  // One chunk of logits, and one of a bf16 input gradient formed in fp32.
  const auto& a = call.attr<HeadAttr>();
  if (!call.in[weight].defined()) return 0;  // mode gradient has no work left
  const int64_t vocabulary = call.in[weight].dim(0), width = call.in[weight].dim(1);
  return int64_t{4} * head_chunk(a.chunk, call.in[x].dim(0), vocabulary, width) *
         (head_row_stride(vocabulary) + width);
}

uint32_t early_gradients(const void* attr_data) {
  return static_cast<const HeadAttr*>(attr_data)->mode == HeadMode::gradient ? slot_bit(weight) : 0;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const HeadAttr*>(attr_data);
  return fmt::format("{} chunk={}{}{}", name_of(a.mode), a.chunk, a.entropy ? " entropy" : "",
                     a.cap.on() ? fmt::format(" cap={}", a.cap.cap) : "");
}

}  // namespace

const Op& head_op() {
  static const Op op{
      "head",
      {{"x"},
       {"weight", InputKind::parameter},
       {"targets", InputKind::data},
       {"teacher", InputKind::data, true},
       {"row_weight", InputKind::data, true}},
      {{"logprob"}, {"lse"}, {"entropy"}, {"kl"}, {"best", false}, {"logits", false}, {"kept_d_x", false}},
      reads,
      infer,
      cost,
      scratch_bytes,
      print,
      head_kernels(),
      false,
      nullptr,
      false,
      nullptr,
      nullptr,
      early_gradients};
  return op;
}

HeadResult head(Tape& tape, const HeadAttr& attr, const Value& x_TD, const Value& weight_VD,
                const Value& targets_T, const Value& teacher_TV, const Value& weight_T) {
  auto o = tape.apply(head_op(), attr, {x_TD, weight_VD, targets_T, teacher_TV, weight_T});
  return {std::move(o[logprob]), std::move(o[lse]), std::move(o[entropy]), std::move(o[kl]),
          std::move(o[best])};
}

Value head_logits(Tape& tape, const SoftCap& cap, const Value& x_TD, const Value& weight_VD) {
  const DType type = x_TD.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Value logits_TV = linear(tape, type, x_TD, weight_VD);
  return cap.on() ? activation(tape, {ActivationKind::soft_cap, type, cap}, logits_TV) : logits_TV;
}

}  // namespace ingot
