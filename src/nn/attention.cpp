// See attention.h.
#include "nn/attention.h"

#include <algorithm>

#include "nn/context_region.h"
#include "nn/projection.h"
#include "nn/tensor_region.h"
#include "ops/mix/mix.h"
#include "ops/qk_prepare/qk_prepare.h"

namespace ingot {

GroupedAttention::GroupedAttention(ParameterTable& table, const std::string& prefix,
                                   const AttentionOptions& o)
    : o_(o) {
  const int64_t q = o.heads * o.head_width, kv = o.kv_heads * o.head_width, packed = q + 2 * kv;
  // CCA projects v in two halves (current and delayed), which the sources orthogonalise apart. Tensor ranks cut their
  // concatenation, so that each has the values of its heads.
  const std::vector<int64_t> blocks{q, kv, kv},
      matrices = o.cca ? std::vector<int64_t>{q, kv, kv / 2, kv / 2} : blocks;
  qkv_ = table.add({prefix + ".qkv.weight",
                    {packed, o.width},
                    ParamRole::matrix,
                    Init::normal(o.init_std),
                    1,
                    matrices,
                    {ShardAxis::tensor, 0, blocks}});
  if (o.bias)
    qkv_bias_ = table.add({prefix + ".qkv.bias",
                           {packed},
                           ParamRole::bias,
                           Init::constant(0),
                           1,
                           {},
                           {ShardAxis::tensor, 0, blocks}});
  if (o.qk_norm && o.norm_weight) {
    q_norm_ = table.add({prefix + ".q_norm.weight",
                         {o.head_width},
                         ParamRole::norm,
                         Init::constant(1),
                         1,
                         {},
                         {},
                         TensorGradient::partial});
    k_norm_ = table.add({prefix + ".k_norm.weight",
                         {o.head_width},
                         ParamRole::norm,
                         Init::constant(1),
                         1,
                         {},
                         {},
                         TensorGradient::partial});
  }
  if (o.cca) {
    const int64_t heads = o.heads + o.kv_heads, channels = heads * o.head_width, k = o.head_width;
    const auto add = [&](const char* name, const Shape& shape, ParamRole role, const Init& init,
                         std::vector<int64_t> cut) {
      return table.add({prefix + name, shape, role, init, 1, {}, {ShardAxis::tensor, 0, std::move(cut)}});
    };
    depthwise_ =
        add(".conv_depthwise.weight", {channels, 2}, ParamRole::conv, Init::normal(o.init_std), {q, kv});
    depthwise_bias_ = add(".conv_depthwise.bias", {channels}, ParamRole::bias, Init::constant(0), {q, kv});
    grouped_ = add(".conv_grouped.weight", {heads, k, 2 * k}, ParamRole::conv, Init::normal(o.init_std),
                   {o.heads, o.kv_heads});
    grouped_bias_ = add(".conv_grouped.bias", {channels}, ParamRole::bias, Init::constant(0), {q, kv});
    temperature_ = add(".temperature", {o.kv_heads}, ParamRole::temperature, Init::constant(1), {});
  }
  if (o.value_mix) {
    const auto scalar = [&](const char* name) {
      return table.add({prefix + ".value_scale" + name,
                        {1},
                        ParamRole::scale,
                        Init::constant(0.5),
                        1,
                        {},
                        {},
                        TensorGradient::partial});
    };
    value_own_ = scalar(".own");
    value_table_ = scalar(".table");
  }
  out_ = table.add({prefix + ".out.weight",
                    {o.width, q},
                    ParamRole::matrix,
                    Init::normal(o.out_std),
                    1,
                    {},
                    {ShardAxis::tensor, 1, {}}});
  if (o.bias)
    out_bias_ = table.add({prefix + ".out.bias",
                           {o.width},
                           ParamRole::bias,
                           Init::constant(0),
                           1,
                           {},
                           {},
                           TensorGradient::partial});
}

Value GroupedAttention::prepare(Context& c, Value qkv_TW, const Value& ve_TV) const {
  const DType type = c.precision().compute;
  const int tp = c.weights.placement().tensor_size;
  const int64_t heads = o_.heads / tp, kv_heads = o_.kv_heads / tp;
  if (o_.cca) {
    CcaAttr attr{heads, kv_heads, o_.head_width, o_.rotary, type, nullptr, o_.cache_layer};
    // This rank's part of the values, of which the second half is delayed.
    const int64_t values = kv_heads * o_.head_width, end = (c.weights.placement().tensor_rank + 1) * values;
    attr.delayed = std::clamp<int64_t>(end - o_.kv_heads * o_.head_width / 2, 0, values);
    qkv_TW = prepare_cca(c, attr, qkv_TW,
                         {c.param(depthwise_), c.param(depthwise_bias_), c.param(grouped_),
                          c.param(grouped_bias_), c.param(temperature_)});
  } else if (o_.rotary.dims > 0 || o_.qk_norm) {
    const QkPrepareAttr attr{heads, kv_heads, o_.head_width, o_.rotary, o_.qk_norm, o_.eps, type};
    qkv_TW = qk_prepare(c.tape, attr, qkv_TW, c.positions_T, c.param(q_norm_), c.param(k_norm_));
  }
  if (!o_.value_mix) return qkv_TW;
  return mix(c.tape, type, qkv_TW, ve_TV, c.param(value_own_), c.param(value_table_),
             (heads + kv_heads) * o_.head_width);
}

Value GroupedAttention::forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const {
  const int tp = c.weights.placement().tensor_size;
  if (o_.heads % tp != 0 || o_.kv_heads % tp != 0)
    throw Error(
        fmt::format("attention with {} query and {} key-value heads do not divide among {} tensor ranks",
                    o_.heads, o_.kv_heads, tp),
        "tensor ranks share out whole heads: their number must divide both");
  c.tape.begin_segment("attention", static_cast<int>(layer));
  const Value qkv_TW = prepare(c, project(c, enter_tensor_region(c, h_TD), qkv_, c.param(qkv_bias_)), ve_TV);
  AttentionAttr attr{o_.heads / tp, o_.kv_heads / tp, o_.head_width, o_.scale,
                     o_.window,     o_.softcap,       nullptr,       o_.cache_layer};
  attr.window_block = o_.window_block;
  const AttentionResult a = attend(c, attr, qkv_TW);
  c.tape.metric("max_attention_logit", static_cast<int>(layer), Reduce::max, a.max_logit);
  return leave_tensor_region(c, project(c, a.o, out_, row_bias(c, out_bias_)));
}

}  // namespace ingot
