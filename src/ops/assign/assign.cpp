// See assign.h: the op's description.
#include "ops/assign/assign.h"

#include "ops/assign/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<AssignAttr>();
  const Tensor& logits = call.in[0];
  INGOT_CHECK(logits.shape().rank() == 2 && is_floating(logits.dtype()) && logits.dtype() != DType::bf16 &&
                  a.k >= 1 && a.k <= logits.dim(1) && a.factor > 0,
              "logits {}, k = {}", logits.meta.str(), a.k);
  out[0] = {Shape{logits.dim(0), a.rule == AssignRule::sinkhorn ? a.k : logits.dim(1)}, DType::i32};
}

OpCost cost(const OpCall& call) {
  return {12 * static_cast<double>(call.in[0].numel()), 0, 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  return {};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const AssignAttr*>(attr_data);
  if (a.rule == AssignRule::sinkhorn) return fmt::format("sinkhorn top{}", a.k);
  return fmt::format("expert_choice k={} factor={}{}", a.k, a.factor, a.sigmoid ? " sigmoid" : "");
}

}  // namespace

const Op& assign_op() {
  static const Op op{"assign",
                     {{"logits", InputKind::data}},
                     {{"ids", false}},
                     reads,
                     infer,
                     cost,
                     assign_scratch_bytes,
                     print,
                     assign_kernels()};
  return op;
}

Value assign(Tape& tape, const AssignAttr& attr, const Value& logits_TE) {
  return tape.apply(assign_op(), attr, {logits_TE}).front();
}

}  // namespace ingot
