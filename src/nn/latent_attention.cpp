// See latent_attention.h.
#include "nn/latent_attention.h"

#include <algorithm>

#include "nn/context_region.h"
#include "nn/projection.h"
#include "nn/tensor_region.h"
#include "ops/linear/linear.h"
#include "ops/mla/mla.h"
#include "ops/mla_cached/mla_cached.h"

namespace ingot {
namespace {

bool is_cached(const BatchLayout* rows) {
  return rows != nullptr && std::any_of(rows->spans.begin(), rows->spans.end(),
                                        [](const SequenceSpan& s) { return s.state != nullptr; });
}

}  // namespace

LatentAttention::LatentAttention(ParameterTable& table, const std::string& prefix, const ModelConfig& model,
                                 int64_t layer)
    : config_(model.mla),
      heads_(model.heads),
      softcap_(model.logit_softcap),
      scale_(model.attention_scale_of()),
      cache_layer_(model.cache_layer(layer)),
      rotary_(model.rotary_of(layer)),
      window_(model.window_of(layer)) {
  const MlaConfig& m = config_;
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns, double std,
                          std::vector<int64_t> splits, ShardRule cut) {
    return table.add({prefix + name,
                      {rows, columns},
                      ParamRole::matrix,
                      Init::normal(std),
                      1,
                      std::move(splits),
                      std::move(cut)});
  };
  const auto norm = [&](const char* name, int64_t n) {
    return table.add({prefix + name, {n}, ParamRole::norm, Init::constant(1)});
  };
  const int64_t kv_down = m.kv_rank + m.rope_width;
  const ShardRule by_heads{ShardAxis::tensor, 0, {}};
  down_ = matrix(".down.weight", m.q_rank + kv_down, model.width, model.init_std,
                 m.q_rank > 0 ? std::vector<int64_t>{m.q_rank, kv_down} : std::vector<int64_t>{}, {});
  if (m.q_rank > 0) q_norm_ = norm(".q_norm.weight", m.q_rank);
  kv_norm_ = norm(".kv_norm.weight", m.kv_rank);
  q_up_ = matrix(".q_up.weight", heads_ * (m.nope_width + m.rope_width),
                 m.q_rank > 0 ? m.q_rank : model.width, model.init_std, {}, by_heads);
  kv_up_ = matrix(".kv_up.weight", heads_ * (m.nope_width + m.value_width), m.kv_rank, model.init_std, {},
                  by_heads);
  out_ = matrix(".out.weight", model.width, heads_ * m.value_width, model.output_std(), {},
                {ShardAxis::tensor, 1, {}});
}

LatentAttention::Projected LatentAttention::projections(Context& c, const Value& h_TD) const {
  const DType type = c.precision().compute;
  const Value down_TL = project(c, h_TD, down_);
  const MlaLatentsAttr attr{config_.q_rank, config_.kv_rank,  config_.rope_width,
                            rotary_,        config_.norm_eps, type};
  MlaLatents l =
      mla_latents(c.tape, attr, down_TL, rows_outside(c, c.positions_T), c.param(q_norm_), c.param(kv_norm_));
  const Value& source = config_.q_rank > 0 ? l.q_latent : h_TD;
  return {project(c, enter_tensor_region(c, source), q_up_), enter_tensor_region(c, l.c),
          enter_tensor_region(c, l.k_rope)};
}

Value LatentAttention::attend(Context& c, const Projected& p, int64_t heads, Value& max_logit) const {
  const MlaPackAttr pack{heads, config_.nope_width, config_.rope_width, config_.value_width, rotary_};
  Value kv = linear(c.tape, c.precision().compute, p.c, c.param(kv_up_));
  const Value qkv_TW = mla_pack(c.tape, pack, p.q, c.positions_T, kv, p.k_rope);
  kv = {};
  const AttentionAttr attr{heads,   heads,        config_.nope_width + config_.rope_width,
                           scale_,  window_,      softcap_,
                           nullptr, cache_layer_, config_.value_width};
  AttentionResult a = ingot::attend(c, attr, qkv_TW);
  max_logit = std::move(a.max_logit);
  return std::move(a.o);
}

Value LatentAttention::attend_cached(Context& c, const Projected& p, int64_t heads, Value& max_logit) const {
  INGOT_CHECK(!c.tape.options().record, "latent attention has no backward through a cached sequence");
  const Value q =
      mla_pack(c.tape, {heads, config_.nope_width, config_.rope_width, config_.value_width, rotary_}, p.q,
               c.positions_T);
  const MlaCachedAttr attr{heads,
                           config_.nope_width,
                           config_.rope_width,
                           config_.value_width,
                           config_.kv_rank,
                           scale_,
                           window_,
                           softcap_,
                           c.rows,
                           cache_layer_,
                           c.absorb_latents};
  MlaCachedResult a = mla_cached(c.tape, attr, q, p.c, p.k_rope, c.param(kv_up_));
  max_logit = std::move(a.max_logit);
  return std::move(a.o);
}

Value LatentAttention::forward(Context& c, const Value& h_TD, const Value& ve_TV, int64_t layer) const {
  INGOT_CHECK(!ve_TV.defined(), "latent attention has no values to mix embeddings into");
  const int tp = c.weights.placement().tensor_size;
  if (heads_ % tp != 0) fail("attention with {} heads do not divide among {} tensor ranks", heads_, tp);
  c.tape.begin_segment("attention", static_cast<int>(layer));
  const Projected p = projections(c, h_TD);
  Value max_logit;
  const Value o =
      is_cached(c.rows) ? attend_cached(c, p, heads_ / tp, max_logit) : attend(c, p, heads_ / tp, max_logit);
  c.tape.metric("max_attention_logit", static_cast<int>(layer), Reduce::max, max_logit);
  return leave_tensor_region(c, project(c, o, out_));
}

}  // namespace ingot
