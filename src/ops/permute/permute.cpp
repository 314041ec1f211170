// See permute.h: the op's description, and its CPU kernel: both directions gather rows through the map.
#include "ops/permute/permute.h"

#include <cstring>

#include "ops/common.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &x = call.in[0], &probs = call.in[1], &ids = call.in[2];
  INGOT_CHECK(x.shape().rank() == 2 && ids.shape().rank() == 2 && ids.dim(0) == x.dim(0) &&
                  ids.dtype() == DType::i32 && probs.shape() == ids.shape(),
              "x {} probs {} ids {}", x.meta.str(), probs.meta.str(), ids.meta.str());
  const auto& a = call.attr<PermuteAttr>();
  INGOT_CHECK(a.bound >= 0 && (a.bound > 0 || !a.pad || ids.numel() == 0), "pad to a bound of {}", a.bound);
  const int64_t bounded = a.experts * a.bound;
  int64_t rows = a.pad ? bounded : a.bound > 0 ? std::min(ids.numel(), bounded) : ids.numel();
  if (a.capacity > 0 && !a.pad) rows = std::min(rows, a.capacity);
  out[0] = {Shape{rows, x.dim(1)}, x.dtype()};
  out[1] = {Shape{rows}, probs.dtype()};
  out[2] = {Shape{a.experts + 1}, DType::i32};
  out[3] = {Shape{rows}, DType::i32};
  out[4] = {ids.shape(), DType::i32};
}

OpCost cost(const OpCall& call) {
  const double share = live_share(call.out[2], call.out[0].dim(0), call.attr<PermuteAttr>().expected);
  return {0, 2.0 * static_cast<double>(call.in[0].numel()), 0, live_bytes(call, 0, slot_bit(0), share)};
}

LiveRows live_rows(const OpCall& call) {
  if (!call.d_out.empty()) return {};
  return {rows_before_end(call.out[2], call.out[0].dim(0)), slot_bit(0), 0};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const PermuteAttr*>(attr_data);
  std::string text = fmt::format("experts {}..{}", a.first, a.first + a.experts - 1);
  if (a.capacity > 0) text += fmt::format(" capacity {}", a.capacity);
  if (a.bound > 0) text += fmt::format(" {} {} rows", a.pad ? "padded to" : "at most", a.bound);
  return text;
}

void infer_back(const OpCall& call, std::span<TensorMeta> out) {
  const Tensor &rows = call.in[0], &row = call.in[1], &token = call.in[2];
  INGOT_CHECK(rows.shape().rank() == 2 && row.shape().rank() == 2 && token.shape() == Shape{rows.dim(0)},
              "rows {} map {}", rows.meta.str(), row.meta.str());
  out[0] = {Shape{row.dim(0), rows.dim(1)}, call.attr<UnpermuteAttr>().out};
}

OpCost cost_back(const OpCall& call) {
  const double share = live_share(call.in[3], call.in[0].dim(0), call.attr<UnpermuteAttr>().expected);
  const double added = static_cast<double>(call.in[0].numel()) * share;
  return {0, 2.0 * added, 0, live_bytes(call, slot_bit(0) | slot_bit(2), 0, share)};
}

LiveRows live_rows_back(const OpCall& call) {
  return {rows_before_end(call.in[3], call.in[2].dim(0)), 0, slot_bit(0)};
}

std::string print_back(const void* attr) {
  return fmt::format("out={}", name_of(static_cast<const UnpermuteAttr*>(attr)->out));
}

void forward(const OpCall& call) {
  const Tensor &ids = call.in[2], &p = call.out[1];
  const auto *token = call.out[3].as<int32_t>(), *row = call.out[4].as<int32_t>();
  build_row_map(call);
  const int64_t rows = rows_before_end(call.out[2], call.out[0].dim(0));
  gather_tensor_rows({call.out[0].slice(0, rows), false}, call.in[0], token, 1);
  if (p.numel() > 0) std::memset(p.data, 0, static_cast<size_t>(p.bytes()));
  for (int64_t s = 0; s < ids.numel(); ++s)
    if (row[s] >= 0) p.as<float>()[row[s]] = call.in[1].as<float>()[s];
}

void backward_input(const OpCall& call) {
  const Tensor& map = call.out[4];
  const auto* row = map.as<int32_t>();
  const Tensor &d_rows = call.d_out[0], &d_p = call.d_out[1];
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  if (d_x.wanted()) {
    if (d_rows.defined())
      gather_tensor_rows(d_x, d_rows, row, map.dim(1));
    else if (!d_x.accumulate && d_x.tensor.numel() > 0)
      std::memset(d_x.tensor.data, 0, static_cast<size_t>(d_x.tensor.bytes()));
  }
  if (!d_probs.wanted()) return;
  auto* to = d_probs.tensor.as<float>();
  for (int64_t s = 0; s < map.numel(); ++s) {
    const float d = d_p.defined() && row[s] >= 0 ? d_p.as<float>()[row[s]] : 0.0f;
    to[s] = d_probs.accumulate ? to[s] + d : d;
  }
}

void forward_back(const OpCall& call) {
  gather_tensor_rows({call.out[0], false}, call.in[0], call.in[1].as<int32_t>(), call.in[1].dim(1));
}

void backward_back(const OpCall& call) {
  const GradSlot& d_rows = call.d_in[0];
  if (!d_rows.wanted()) return;
  const int64_t rows = rows_before_end(call.in[3], d_rows.tensor.dim(0));
  gather_tensor_rows({d_rows.tensor.slice(0, rows), d_rows.accumulate}, call.d_out[0],
                     call.in[2].as<int32_t>(), 1);
}

}  // namespace

const char* refuse_permute(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  if (call.in[1].defined() && call.in[1].dtype() != DType::f32) return "choice weights other than f32";
  return nullptr;
}

void build_row_map(const OpCall& call) {
  const auto& [first, experts, bound, pad, capacity, expected] = call.attr<PermuteAttr>();
  const int64_t slots = call.in[2].numel(), k = call.in[2].dim(1);
  const auto* ids = call.in[2].as<int32_t>();
  auto *offsets = call.out[2].as<int32_t>(), *token = call.out[3].as<int32_t>(),
       *row = call.out[4].as<int32_t>();
  std::fill(offsets, offsets + experts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) {
    const int32_t e = ids[s] - first;
    if (ids[s] >= 0 && 0 <= e && e < experts) ++offsets[e + 1];
  }
  for (int32_t e = 0; e < experts; ++e) {
    INGOT_CHECK(bound == 0 || offsets[e + 1] <= bound, "expert {} has {} rows, at most {}", first + e,
                offsets[e + 1], bound);
    offsets[e + 1] = offsets[e] + (pad ? static_cast<int32_t>(bound) : offsets[e + 1]);
  }
  if (offsets[experts] > call.out[3].numel())
    throw Error(fmt::format("{} choices came for the experts of this rank, which has a capacity of {}",
                            offsets[experts], call.out[3].numel()),
                "raise the dispatch capacity, allow drops, or balance the routers");
  std::vector<int32_t> next(offsets, offsets + experts);
  std::fill(token, token + call.out[3].numel(), -1);
  for (int64_t s = 0; s < slots; ++s) {
    const int32_t e = ids[s] - first;
    row[s] = -1;
    if (ids[s] < 0 || e < 0 || e >= experts) continue;
    row[s] = next[static_cast<size_t>(e)]++;
    token[row[s]] = static_cast<int32_t>(s / k);
  }
}

const Op& permute_op() {
  static const Op op{
      .name = "permute",
      .inputs = {{"x"}, {"probs"}, {"ids", InputKind::data}},
      .outputs = {{"rows"}, {"p"}, {"offsets", false}, {"token", false}, {"row", false}},
      .reads = always<BackwardReads{.input_out = slot_bit(4)}>,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels = with_gpu_kernels(
          "permute", {{"cpu", refuse_permute, forward, backward_input, nullptr}, permute_reference()}),
      .live_rows = live_rows,
      .axis_rule = {
          .passes = kRowwise, .on = AxisRule::On::experts, .change = {AxisType::shared, AxisType::shards}}};
  return op;
}

const Op& unpermute_op() {
  static const Op op{
      .name = "unpermute",
      .inputs = {{"rows"},
                 {"row", InputKind::data},
                 {"token", InputKind::data},
                 {"offsets", InputKind::data, true}},
      .outputs = {{"y"}},
      .reads = always<BackwardReads{.input_in = slot_bit(2) | slot_bit(3)}>,
      .infer = infer_back,
      .cost = cost_back,
      .print = print_back,
      .kernels = with_gpu_kernels(
          "unpermute",
          {{"cpu", refuse_other_floats, forward_back, backward_back, nullptr}, unpermute_reference()}),
      .live_rows = live_rows_back,
      .axis_rule = {
          .passes = kSummable, .on = AxisRule::On::values, .change = {AxisType::shards, AxisType::partial}}};
  return op;
}

Permutation permute(Tape& tape, const PermuteAttr& attr, const Value& x_TD, const Value& probs_TK,
                    const Value& ids_TK) {
  auto o = tape.apply(permute_op(), attr, {x_TD, probs_TK, ids_TK});
  return {std::move(o[0]), std::move(o[1]), std::move(o[2]), std::move(o[3]), std::move(o[4])};
}

Value unpermute(Tape& tape, DType out, const Value& rows_RD, const Value& row_TK, const Value& token_R,
                const Value& offsets, double expected) {
  return tape.apply(unpermute_op(), UnpermuteAttr{out, expected}, {rows_RD, row_TK, token_R, offsets})
      .front();
}

}  // namespace ingot
