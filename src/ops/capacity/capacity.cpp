// See capacity.h: the op's description.
#include "ops/capacity/capacity.h"

#include <cmath>

#include "ops/capacity/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &probs = call.in[0], &ids = call.in[1];
  INGOT_CHECK(probs.shape().rank() == 2 && ids.shape() == probs.shape() && ids.dtype() == DType::i32 &&
                  call.attr<CapacityAttr>().factor > 0,
              "probs {} ids {}", probs.meta.str(), ids.meta.str());
  out[0] = probs.meta;
  out[1] = ids.meta;
  out[2] = {Shape{1}, DType::f32};
}

OpCost cost(const OpCall& call) {
  return {0, 0, 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_out = slot_bit(1);
  return r;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const CapacityAttr*>(attr_data);
  return fmt::format("{} experts, factor {} by {}", a.experts, a.factor, name_of(a.drop));
}

}  // namespace

int64_t expert_capacity(int64_t tokens, int64_t k, int64_t experts, double factor) {
  return static_cast<int64_t>(
      std::ceil(static_cast<double>(tokens * k) / static_cast<double>(experts) * factor));
}

const Op& capacity_op() {
  static const Op op{"capacity",
                     {{"probs"}, {"ids", InputKind::data}},
                     {{"kept_probs"}, {"kept_ids", false}, {"dropped", false}},
                     reads,
                     infer,
                     cost,
                     nullptr,
                     print,
                     capacity_kernels()};
  return op;
}

CapacityResult capacity(Tape& tape, const CapacityAttr& attr, const Value& probs_TK, const Value& ids_TK) {
  auto o = tape.apply(capacity_op(), attr, {probs_TK, ids_TK});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2])};
}

}  // namespace ingot
