// See mix.h: the op's description.
#include "ops/mix/mix.h"

#include "ops/mix/kernels.h"

namespace ingot {
namespace {

using namespace mix_slot;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& attr = call.attr<MixAttr>();
  const Tensor &a = call.in[kA], &b = call.in[kB];
  INGOT_CHECK(a.shape().rank() == 2 && attr.first >= 0 && attr.first <= a.dim(1), "{} mixed from column {}",
              a.meta.str(), attr.first);
  INGOT_CHECK(!b.defined() || b.shape() == Shape({a.dim(0), a.dim(1) - attr.first}), "{} + {} from column {}",
              a.meta.str(), b.meta.str(), attr.first);
  INGOT_CHECK(call.in[kAlpha].defined() == attr.alpha && call.in[kBeta].defined() == attr.beta);
  for (const uint32_t i : {kAlpha, kBeta})
    INGOT_CHECK(!call.in[i].defined() || call.in[i].shape() == Shape{1}, "a scalar is {}",
                call.in[i].meta.str());
  out[0] = {a.shape(), attr.out};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[kA].numel());
  return {3 * n, 6 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr_data) {
  const auto& attr = *static_cast<const MixAttr*>(attr_data);
  BackwardReads r;
  if (attr.alpha) r.input_in |= slot_bit(kA) | slot_bit(kAlpha);
  if (attr.beta) r.input_in |= slot_bit(kB) | slot_bit(kBeta);
  return r;
}

std::string print(const void* attr_data) {
  const auto& attr = *static_cast<const MixAttr*>(attr_data);
  return fmt::format("first={} out={}", attr.first, name_of(attr.out));
}

}  // namespace

const Op& mix_op() {
  static const Op op{"mix",
                     {{"a"},
                      {"b", InputKind::activation, true},
                      {"alpha", InputKind::parameter, true},
                      {"beta", InputKind::parameter, true}},
                     {{"y"}},
                     reads,
                     infer,
                     cost,
                     mix_scratch_bytes,
                     print,
                     mix_kernels()};
  return op;
}

Value mix(Tape& tape, DType out, const Value& a_TW, const Value& b_TN, const Value& alpha_1,
          const Value& beta_1, int64_t first) {
  const MixAttr attr{out, first, alpha_1.defined(), beta_1.defined()};
  return tape.apply(mix_op(), attr, {a_TW, b_TN, alpha_1, beta_1}).front();
}

}  // namespace ingot
