// See route.h: the op's description.
#include "ops/route/route.h"

#include "ops/route/kernels.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<RouteAttr>();
  const Tensor& logits = call.in[0];
  INGOT_CHECK(logits.shape().rank() == 2 && logits.dim(1) == a.experts + a.skip_classes &&
                  is_floating(logits.dtype()) && logits.dtype() != DType::bf16,
              "logits {} for {}+{} classes", logits.meta.str(), a.experts, a.skip_classes);
  INGOT_CHECK(a.groups >= a.groups_kept && a.groups_kept >= 1 && a.experts % a.groups == 0 &&
                  a.k % a.groups_kept == 0 && a.k / a.groups_kept <= a.experts / a.groups,
              "{} of {} groups, {} experts, k = {}", a.groups_kept, a.groups, a.experts, a.k);
  INGOT_CHECK(1 <= a.k && a.k <= a.experts && !(a.score == RouteScore::softmax_last && a.k == 1), "k = {}",
              a.k);
  for (const int i : {1, 2})
    INGOT_CHECK(!call.in[i].defined() || call.in[i].shape() == Shape{a.experts}, "{}", call.in[i].meta.str());
  const int64_t rows = logits.dim(0);
  INGOT_CHECK(!call.in[3].defined() || call.in[3].shape() == (Shape{rows, a.k}));
  out[0] = {Shape{rows, a.k}, logits.dtype()};
  out[1] = {Shape{rows, a.k}, DType::i32};
  out[2] = {Shape{a.experts}, DType::f32};
  for (const int i : {3, 4, 5}) out[static_cast<size_t>(i)] = {Shape{1}, logits.dtype()};
}

OpCost cost(const OpCall& call) {
  const auto n = static_cast<double>(call.in[0].numel());
  return {12 * n, 12 * n, 0, tensor_bytes(call)};
}

BackwardReads reads(const void*) {
  BackwardReads r;
  r.input_in = slot_bit(0) | slot_bit(2);
  r.input_out = slot_bit(1) | slot_bit(2);
  return r;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const RouteAttr*>(attr_data);
  constexpr const char* kScores[] = {"softmax_first", "softmax_last", "sigmoid"};
  std::string text = fmt::format("top{} of {}+{} {}{}", a.k, a.experts, a.skip_classes,
                                 kScores[static_cast<size_t>(a.score)], a.normalize ? " normalize" : "");
  if (a.groups_kept < a.groups) text += fmt::format(" {} of {} groups", a.groups_kept, a.groups);
  return text;
}

}  // namespace

const Op& route_op() {
  static const Op op{
      "route",
      {{"logits"},
       {"bias", InputKind::data, true},
       {"load", InputKind::data, true},
       {"forced_ids", InputKind::data, true}},
      {{"probs"}, {"ids", false}, {"counts", false}, {"aux_loss"}, {"z_loss"}, {"entropy", false}},
      reads,
      infer,
      cost,
      route_scratch_bytes,
      print,
      route_kernels()};
  return op;
}

RouteResult route(Tape& tape, const RouteAttr& attr, const Value& logits_TE, const Value& bias_E,
                  const Value& load_E, const Value& forced_ids_TK) {
  auto o = tape.apply(route_op(), attr, {logits_TE, bias_E, load_E, forced_ids_TK});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]),
          std::move(o[3]), std::move(o[4]), std::move(o[5])};
}

}  // namespace ingot
