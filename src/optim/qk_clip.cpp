// See qk_clip.h.
#include "optim/qk_clip.h"

#include <algorithm>

#include "base/error.h"
#include "nn/parameter.h"
#include "optim/power.h"
#include "optim/work.h"

namespace ingot {
namespace {

/// The rows of head `head`, as far as they are in the part that is here.
QkWeights weights_of_head(const QkRows& rows, int64_t head, int64_t query, int64_t key) {
  const ParamView& p = rows.param;
  const int64_t cols = p.shape.rank() > 1 ? p.matrix_cols() : 1;
  const int64_t stride = rows.stride > 0 ? rows.stride : rows.rows_per_head;
  const int64_t begin = (rows.first_row + head * stride) * cols, count = rows.rows_per_head * cols;
  INGOT_CHECK(begin + count <= p.shape.numel(), "'{}' {}: rows of head {}", p.name, p.shape.str(), head);
  INGOT_CHECK(p.master.storage == ValueStorage::f32);
  const int64_t first = std::max(begin, p.begin) - p.begin, end = std::min(begin + count, p.end()) - p.begin;
  return {&p, first, end - first, query, key};
}

void scale_weights(const QkWeights& of, double factor) {
  if (factor == 1.0) return;
  const ParamView& p = *of.param;
  auto* weights = static_cast<float*>(p.master.data);
  const auto f = static_cast<float>(factor);
  for (int64_t i = of.first; i < of.first + of.count; ++i) {
    const float w = weights[i] * f;
    weights[i] = w;
    if (!p.compute) continue;
    if (p.compute_dtype == DType::bf16)
      static_cast<bf16*>(p.compute)[i] = to_bf16(w);
    else
      static_cast<float*>(p.compute)[i] = w;
  }
}

}  // namespace

void validate(const QkClipConfig& c) {
  if (!(c.threshold >= 0)) fail("qk_clip is {}, expected a largest logit, or 0 for none", c.threshold);
  if (!(c.alpha >= 0 && c.alpha <= 1)) fail("qk_clip_alpha is {}, expected in [0, 1]", c.alpha);
}

QkFactors qk_clip_factors(const QkClipConfig& c, int64_t kv_heads, std::span<const double> max_logit) {
  const auto heads = static_cast<int64_t>(max_logit.size());
  INGOT_CHECK(kv_heads > 0 && heads % kv_heads == 0, "{} heads, {} key heads", heads, kv_heads);
  const int64_t group = heads / kv_heads;
  QkFactors f;
  for (const double top : max_logit) {
    f.query.push_back(top > c.threshold ? c.threshold / top : 1.0);
    f.clipped += f.query.back() < 1;
  }
  for (int64_t g = 0; g < kv_heads; ++g) {
    const auto begin = f.query.begin() + g * group;
    const double share = power(*std::min_element(begin, begin + group), 1 - c.alpha);
    f.key.push_back(share);
    for (auto eta = begin; eta != begin + group; ++eta) *eta /= share;
  }
  return f;
}

QkClipConfig qk_clip_of(const QkClipConfig& config, const QkClipLayer& layer) {
  return {config.threshold, layer.temperatures.empty() ? config.alpha : 0};
}

std::vector<QkWeights> qk_weights(const QkClipLayer& layer) {
  std::vector<QkWeights> all;
  const auto add = [&](const QkRows& rows, int64_t head, int64_t query, int64_t key) {
    if (const QkWeights w = weights_of_head(rows, head, query, key); w.count > 0) all.push_back(w);
  };
  const int64_t heads = layer.heads, kv_heads = layer.kv_heads;
  for (const QkRows& rows : layer.queries)
    for (int64_t h = 0; h < heads; ++h) add(rows, h, h, -1);
  for (const QkRows& rows : layer.shared_key_queries)
    for (int64_t h = 0; h < heads; ++h) add(rows, h, h, h / (heads / kv_heads));
  for (const auto* side : {&layer.keys, &layer.temperatures})
    for (const QkRows& rows : *side)
      for (int64_t g = 0; g < kv_heads; ++g) add(rows, g, -1, g);
  return all;
}

int64_t qk_clip(const QkClipConfig& c, const QkClipLayer& layer, std::span<const double> max_logit) {
  INGOT_CHECK(static_cast<int64_t>(max_logit.size()) == layer.heads, "{} maxima for {} heads",
              max_logit.size(), layer.heads);
  const QkFactors f = qk_clip_factors(qk_clip_of(c, layer), layer.kv_heads, max_logit);
  if (f.clipped == 0) return 0;
  for (const QkWeights& w : qk_weights(layer))
    scale_weights(w, (w.query < 0 ? 1.0 : f.query[static_cast<size_t>(w.query)]) *
                         (w.key < 0 ? 1.0 : f.key[static_cast<size_t>(w.key)]));
  return f.clipped;
}

std::vector<QkClipLayer> qk_clip_layers(const ModelConfig& model, std::span<const ParamView> params) {
  if (model.qk_norm)
    throw Error(
        "qk_clip has no effect with model.qk_norm: queries and keys are normalised after their projections",
        "the norms bound the logits already; set optimizer.qk_clip = 0");
  if (model.logit_softcap > 0)
    throw Error(fmt::format("qk_clip with model.logit_softcap = {}: the logits it would see are capped ones",
                            model.logit_softcap),
                "the cap bounds the logits already; set optimizer.qk_clip = 0");
  std::vector<QkClipLayer> layers;
  for (int64_t l = 0; l < model.layers + model.mtp.modules(); ++l) {
    const std::string prefix = layer_prefix(l) + "attention.";
    const auto of_layer = [&](const ParamView& p) { return p.name.starts_with(prefix); };
    if (std::none_of(params.begin(), params.end(), of_layer)) {
      layers.emplace_back();
      continue;
    }
    QkClipLayer layer{model.heads, model.kv_heads, {}, {}, {}, {}};
    for (const ParamView& p : params) {
      if (model.attention == AttentionKind::cca) {
        if (p.name == prefix + "temperature") layer.temperatures.push_back({p, 0, 1});
      } else if (p.name == prefix + "q_up.weight") {
        layer.queries.push_back({p, 0, model.mla.nope_width, model.key_width()});
        layer.shared_key_queries.push_back(
            {p, model.mla.nope_width, model.mla.rope_width, model.key_width()});
      } else if (p.name == prefix + "kv_up.weight") {
        layer.keys.push_back({p, 0, model.mla.nope_width, model.mla.nope_width + model.mla.value_width});
      } else if (p.name == prefix + "qkv.weight" || p.name == prefix + "qkv.bias") {
        layer.queries.push_back({p, 0, model.key_width()});
        layer.keys.push_back({p, model.heads * model.key_width(), model.key_width()});
      }
    }
    INGOT_CHECK(!layer.queries.empty() || !layer.temperatures.empty(), "layer {} has no queries", l);
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace ingot
