// See route.h: the op's description, and its CPU kernel: chunks of 64 rows in parallel, whose sums are
// added in order.
#include "ops/route/route.h"

#include <cstring>

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/route/isa_route.h"
#include "ops/route/scores.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<RouteAttr>();
  const Tensor& logits = call.in[0];
  INGOT_CHECK(logits.shape().rank() == 2 && logits.dim(1) == a.experts + a.skip_classes &&
                  is_floating(logits.dtype()) && logits.dtype() != DType::bf16,
              "logits {} for {}+{} classes", logits.meta.str(), a.experts, a.skip_classes);
  INGOT_CHECK(a.groups_kept == a.groups ||
                  (a.groups > a.groups_kept && a.groups_kept >= 1 && a.experts % a.groups == 0 &&
                   a.k % a.groups_kept == 0 && a.k / a.groups_kept <= a.experts / a.groups),
              "{} of {} groups, {} experts, k = {}", a.groups_kept, a.groups, a.experts, a.k);
  INGOT_CHECK(1 <= a.k && a.k <= a.experts && !(a.score == RouteScore::softmax_last && a.k == 1), "k = {}",
              a.k);
  const Tensor& bias = call.in[1];
  INGOT_CHECK(!bias.defined() || bias.shape() == Shape{a.experts} ||
                  (bias.shape() == Shape{a.experts + a.skip_classes} && a.groups_kept == a.groups),
              "{}", bias.meta.str());
  const auto has_counts = [&](const Tensor& t, int64_t count) {
    INGOT_CHECK(!t.defined() || t.shape() == Shape{count}, "{}", t.meta.str());
  };
  has_counts(call.in[2], a.experts), has_counts(call.in[4], a.experts + 1);
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

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const RouteAttr*>(attr_data);
  constexpr const char* kScores[] = {"softmax_first", "softmax_last", "sigmoid"};
  std::string text = fmt::format("top{} of {}+{} {}{}", a.k, a.experts, a.skip_classes,
                                 kScores[static_cast<size_t>(a.score)], a.normalize ? " normalize" : "");
  if (a.groups_kept < a.groups) text += fmt::format(" {} of {} groups", a.groups_kept, a.groups);
  return text;
}

RouteRows arguments(const OpCall& call) {
  RouteRows r = route_rows(call.attr<RouteAttr>());
  r.logits = call.in[0].as<float>();
  r.ids = call.out[1].as<int32_t>();
  return r;
}

/// E/n times the expert's share of the choices that the balance loss counts, which multiplies its mass there.
double balance_weight(const OpCall& call, const float* counts, int32_t e, double n) {
  const auto& a = call.attr<RouteAttr>();
  const Tensor &load = call.in[2], &earlier = call.in[4];
  const auto earlier_at = [&earlier](int32_t i) {
    return earlier.defined() ? static_cast<double>(earlier.as<float>()[i]) : 0.0;
  };
  const double counted = (load.defined() ? load.as<float>()[e] : counts[e]) + earlier_at(e);
  const bool own = a.load_tokens == 0 && !load.defined();
  const double choices = own ? static_cast<double>(a.k) * n : a.load_choices();
  return static_cast<double>(a.experts) / n * (counted / (choices * (1 + earlier_at(a.experts))));
}

/// Sums of one chunk, as they lie in scratch: counts [E], mass [E], square, entropy.
int64_t sums_width(const RouteAttr& a) {
  return 2 * int64_t{a.experts} + 2;
}

void forward(const OpCall& call) {
  const auto& a = call.attr<RouteAttr>();
  const int64_t rows = call.in[0].dim(0), E = a.experts, width = sums_width(a),
                chunks = parameter_chunks(rows);
  RouteRows r = arguments(call);
  if (call.in[1].defined()) r.bias = call.in[1].as<float>(), r.choices = call.in[1].numel();
  if (call.in[3].defined()) r.forced = call.in[3].as<int32_t>();
  r.probs = call.out[0].as<float>();
  auto* totals = static_cast<float*>(call.scratch);
  float* partials = totals + width;
  parallel_for(chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      float* s = partials + c * width;
      std::memset(s, 0, static_cast<size_t>(width) * sizeof(float));
      const int64_t begin = c * kParameterChunkRows;
      INGOT_ISA_CALL(route_forward)
      (r, begin, std::min(rows, begin + kParameterChunkRows), {s, s + E, s + 2 * E, s + 2 * E + 1});
    }
  });
  combine_parameter_chunks(partials, chunks, width, width, {Tensor::of(totals, {width}), false});
  const double n = std::max<double>(1, static_cast<double>(rows));
  double aux = 0;
  for (int32_t e = 0; e < a.experts; ++e) {
    call.out[2].as<float>()[e] = totals[e];
    aux += balance_weight(call, totals, e, n) * totals[E + e];
  }
  *call.out[3].as<float>() = static_cast<float>(aux);
  *call.out[4].as<float>() = static_cast<float>(totals[2 * E] / n);
  *call.out[5].as<float>() = static_cast<float>(totals[2 * E + 1] / n);
}

void backward_input(const OpCall& call) {
  if (!call.d_in[0].wanted()) return;
  const auto& a = call.attr<RouteAttr>();
  const Tensor &d_probs = call.d_out[0], &d_aux = call.d_out[3], &d_z = call.d_out[4];
  const int64_t rows = call.in[0].dim(0);
  const double n = std::max<double>(1, static_cast<double>(rows));
  RouteRows r = arguments(call);
  if (d_probs.defined()) r.d_probs = d_probs.as<float>();
  if (d_aux.defined()) {
    auto* d_mass = static_cast<float*>(call.scratch);
    for (int32_t e = 0; e < a.experts; ++e)
      d_mass[e] =
          static_cast<float>(*d_aux.as<float>() * balance_weight(call, call.out[2].as<float>(), e, n));
    r.d_mass = d_mass;
  }
  if (d_z.defined()) r.d_square = static_cast<float>(*d_z.as<float>() / n);
  r.d_logits = call.d_in[0].tensor.as<float>(), r.accumulate = call.d_in[0].accumulate;
  parallel_kernel(rows, kParameterChunkRows, INGOT_ISA_CALL(route_backward), r);
}

int64_t scratch_bytes(const OpCall& call) {
  return (1 + parameter_chunks(call.in[0].dim(0))) * sums_width(call.attr<RouteAttr>()) *
         int64_t{sizeof(float)};
}

}  // namespace

const char* refuse_route(const OpCall& call) {
  if (const char* reason = refuse_other_than_f32(call)) return reason;
  const auto& a = call.attr<RouteAttr>();
  return a.experts + a.skip_classes > kMaxRouteClasses ? "more than 1024 classes" : nullptr;
}

RouteRows route_rows(const RouteAttr& a) {
  RouteRows r{};
  r.experts = r.choices = a.experts, r.classes = a.experts + a.skip_classes, r.k = a.k;
  r.groups = a.groups, r.groups_kept = a.groups_kept;
  r.logits_score = a.score == RouteScore::softmax_last;
  r.sigmoid = a.score == RouteScore::sigmoid;
  r.divide = a.normalize || a.score == RouteScore::softmax_last;
  r.epsilon = r.sigmoid ? static_cast<float>(kSigmoidEpsilon) : 0.0f;
  r.scale = static_cast<float>(a.scale);
  return r;
}

const Op& route_op() {
  static const Op op{
      .name = "route",
      .inputs = {{"logits"},
                 {"bias", InputKind::data, true},
                 {"load", InputKind::data, true},
                 {"forced_ids", InputKind::data, true},
                 {"earlier", InputKind::data, true}},
      .outputs = {{"probs"}, {"ids", false}, {"counts", false}, {"aux_loss"}, {"z_loss"}, {"entropy", false}},
      .reads = always<BackwardReads{.input_in = slot_bit(0) | slot_bit(2) | slot_bit(4),
                                    .input_out = slot_bit(1) | slot_bit(2)}>,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels(
          "route", {{"cpu", refuse_route, forward, backward_input, nullptr}, route_reference()}),
      .axis_rule = {.passes = kRowwise, .counts = {2}}};
  return op;
}

RouteResult route(Tape& tape, const RouteAttr& attr, const Value& logits_TE, const Value& bias,
                  const Value& load_E, const Value& forced_ids_TK, const Value& earlier_E1) {
  auto o = tape.apply(route_op(), attr, {logits_TE, bias, load_E, forced_ids_TK, earlier_E1});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]),
          std::move(o[3]), std::move(o[4]), std::move(o[5])};
}

}  // namespace ingot
