// See shard_index.h: the ops' descriptions, and one kernel each.
#include "ops/shard_index/shard_index.h"

#include <algorithm>

#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/reference.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  const auto& a = call.attr<ShardIndexAttr>();
  const auto* x = call.in[0].as<int32_t>();
  auto* y = call.out[0].as<int32_t>();
  for (int64_t t = 0; t < call.in[0].numel(); ++t) {
    const int32_t local = x[t] - a.first;
    y[t] = x[t] < 0 ? -1 : 0 <= local && local < a.count ? local : a.elsewhere;
  }
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  INGOT_CHECK(call.in[0].dtype() == DType::i32, "{}", call.in[0].meta.str());
  out[0] = call.in[0].meta;
}

void forward_rows(const OpCall& call) {
  std::copy_n(call.in[0].as<int32_t>() + call.attr<ShardRowsAttr>().first, call.out[0].numel(),
              call.out[0].as<int32_t>());
}

void infer_rows(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<ShardRowsAttr>();
  INGOT_CHECK(call.in[0].dtype() == DType::i32 && a.first >= 0 && a.first + a.count <= call.in[0].dim(0),
              "[{}, {}) of {}", a.first, a.first + a.count, call.in[0].meta.str());
  out[0] = {Shape{a.count}, DType::i32};
}

std::string print_rows(const void* attr_data) {
  const auto& a = *static_cast<const ShardRowsAttr*>(attr_data);
  return fmt::format("[{}, {})", a.first, a.first + a.count);
}

OpCost cost(const OpCall& call) {
  return {0, 0, 0, tensor_bytes(call)};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const ShardIndexAttr*>(attr_data);
  return fmt::format("{}..{}, else {}", a.first, a.first + a.count - 1, a.elsewhere);
}

}  // namespace

const Op& shard_index_op() {
  static const Op op{
      .name = "shard_index",
      .inputs = {{"x", InputKind::data}},
      .outputs = {{"y", false}},
      .reads = reads_nothing,
      .infer = infer,
      .cost = cost,
      .print = print,
      .kernels =
          with_gpu_kernels("shard_index", {{"cpu", reference::accept, forward, nullptr, nullptr},
                                           {"reference", reference::accept, forward, nullptr, nullptr}}),
      .axis_rule = {
          .passes = kRowwise, .on = AxisRule::On::tensor, .change = {AxisType::replicate, AxisType::shards}}};
  return op;
}

const Op& shard_rows_op() {
  static const Op op{
      .name = "shard_rows",
      .inputs = {{"x", InputKind::data}},
      .outputs = {{"y", false}},
      .reads = reads_nothing,
      .infer = infer_rows,
      .cost = cost,
      .print = print_rows,
      .kernels =
          with_gpu_kernels("shard_rows", {{"cpu", reference::accept, forward_rows, nullptr, nullptr},
                                          {"reference", reference::accept, forward_rows, nullptr, nullptr}}),
      .axis_rule = {
          .passes = kRowwise, .on = AxisRule::On::tensor, .change = {AxisType::replicate, AxisType::rows}}};
  return op;
}

Value shard_rows(Tape& tape, const ShardRowsAttr& attr, const Value& x_T) {
  return tape.apply(shard_rows_op(), attr, {x_T}).front();
}

Value shard_index(Tape& tape, const ShardIndexAttr& attr, const Value& x_T) {
  return tape.apply(shard_index_op(), attr, {x_T}).front();
}

}  // namespace ingot
