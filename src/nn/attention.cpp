// See attention.h.
#include "nn/attention.h"

#include <algorithm>

#include "nn/context_region.h"
#include "nn/projection.h"
#include "nn/tensor_region.h"
#include "ops/mix/mix.h"
#include "ops/qk_prepare/qk_prepare.h"

namespace ingot {

GroupedAttention::GroupedAttention(ParameterTable& table, const std::string& prefix, const ModelConfig& m,
                                   int64_t layer)
    : model_(m),
      cache_layer_(m.cache_layer(layer)),
      rotary_(m.rotary_of(layer)),
      window_(m.window_of(layer)) {
  const int64_t head = m.key_width(), q = m.heads * head, kv = m.kv_heads * head, packed = q + 2 * kv;
  // CCA projects v in two halves (current and delayed), which the sources orthogonalise apart. Tensor ranks
  // cut their concatenation, so that each has the values of its heads.
  const std::vector<int64_t> blocks{q, kv, kv},
      matrices = is_cca() ? std::vector<int64_t>{q, kv, kv / 2, kv / 2} : blocks;
  qkv_ = table.add({prefix + ".qkv.weight",
                    {packed, m.width},
                    ParamRole::matrix,
                    Init::normal(m.init_std),
                    1,
                    matrices,
                    {ShardAxis::tensor, 0, blocks}});
  if (m.attention_bias)
    qkv_bias_ = table.add({prefix + ".qkv.bias",
                           {packed},
                           ParamRole::bias,
                           Init::constant(0),
                           1,
                           {},
                           {ShardAxis::tensor, 0, blocks}});
  if (m.qk_norm && m.norm_weight) {
    const auto norm = [&](const char* name, int64_t joint) {
      return table.add({prefix + name,
                        {m.qk_norm_joint ? joint : head},
                        ParamRole::norm,
                        Init::constant(1 - m.norm_offset),
                        1,
                        {},
                        {},
                        TensorGradient::partial});
    };
    q_norm_ = norm(".q_norm.weight", q);
    k_norm_ = norm(".k_norm.weight", kv);
  }
  if (is_cca()) {
    const int64_t heads = m.heads + m.kv_heads, channels = heads * head;
    const auto add = [&](const char* name, const Shape& shape, ParamRole role, const Init& init,
                         std::vector<int64_t> cut) {
      return table.add({prefix + name, shape, role, init, 1, {}, {ShardAxis::tensor, 0, std::move(cut)}});
    };
    depthwise_ =
        add(".conv_depthwise.weight", {channels, 2}, ParamRole::conv, Init::normal(m.init_std), {q, kv});
    depthwise_bias_ = add(".conv_depthwise.bias", {channels}, ParamRole::bias, Init::constant(0), {q, kv});
    grouped_ = add(".conv_grouped.weight", {heads, head, 2 * head}, ParamRole::conv, Init::normal(m.init_std),
                   {m.heads, m.kv_heads});
    grouped_bias_ = add(".conv_grouped.bias", {channels}, ParamRole::bias, Init::constant(0), {q, kv});
    temperature_ = add(".temperature", {m.kv_heads}, ParamRole::temperature, Init::constant(1), {});
  }
  if (m.value_embeddings > 0) {
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
                    {m.width, q},
                    ParamRole::matrix,
                    Init::normal(m.output_std()),
                    1,
                    {},
                    {ShardAxis::tensor, 1, {}}});
  if (m.attention_bias && m.attention_out_bias)
    out_bias_ = table.add({prefix + ".out.bias",
                           {m.width},
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
  const int64_t heads = model_.heads / tp, kv_heads = model_.kv_heads / tp, width = model_.key_width();
  if (is_cca()) {
    CcaAttr attr{heads, kv_heads, width, rotary_, type, nullptr, cache_layer_};
    // This rank's part of the values, of which the second half is delayed.
    const int64_t values = kv_heads * width, end = (c.weights.placement().tensor_rank + 1) * values;
    attr.delayed = std::clamp<int64_t>(end - model_.kv_heads * width / 2, 0, values);
    qkv_TW = prepare_cca(c, attr, qkv_TW,
                         {c.param(depthwise_), c.param(depthwise_bias_), c.param(grouped_),
                          c.param(grouped_bias_), c.param(temperature_)});
  } else if (rotary_.dims > 0 || model_.qk_norm) {
    const QkPrepareAttr attr{heads,
                             kv_heads,
                             width,
                             rotary_,
                             model_.qk_norm,
                             model_.norm_eps,
                             type,
                             model_.qk_norm_joint,
                             model_.norm_offset};
    qkv_TW = qk_prepare(c.tape, attr, qkv_TW, c.positions_T, c.param(q_norm_), c.param(k_norm_));
  }
  if (model_.value_embeddings == 0) return qkv_TW;
  return mix(c.tape, type, qkv_TW, ve_TV, c.param(value_own_), c.param(value_table_),
             (heads + kv_heads) * width);
}

Value GroupedAttention::forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const {
  const int tp = c.weights.placement().tensor_size;
  if (model_.heads % tp != 0 || model_.kv_heads % tp != 0)
    throw Error(
        fmt::format("attention with {} query and {} key-value heads do not divide among {} tensor ranks",
                    model_.heads, model_.kv_heads, tp),
        "tensor ranks shard whole heads: their number must divide both");
  if (tp > 1 && model_.qk_norm_joint)
    throw Error("qk_norm_joint norms all query heads at once, of which tensor ranks have parts",
                "take tp = 1");
  c.tape.begin_segment("attention", static_cast<int>(layer));
  const Value qkv_TW = prepare(c, project(c, enter_tensor_region(c, h_TD), qkv_, c.param(qkv_bias_)), ve_TV);
  AttentionAttr attr{model_.heads / tp,
                     model_.kv_heads / tp,
                     model_.key_width(),
                     model_.attention_scale_of(),
                     window_,
                     model_.logit_softcap,
                     nullptr,
                     cache_layer_};
  attr.window_block = model_.window_block;
  const AttentionResult a = attend(c, attr, qkv_TW);
  c.tape.metric("max_attention_logit", static_cast<int>(layer), Reduce::max, a.max_logit);
  return leave_tensor_region(c, project(c, a.o, out_, row_bias(c, out_bias_)));
}

}  // namespace ingot
