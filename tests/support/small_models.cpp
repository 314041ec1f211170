// See small_models.h.
#include "support/small_models.h"

#include "base/error.h"
#include "base/philox.h"
#include "models/presets.h"

namespace ingot::test {

std::vector<std::string> small_model_names() {
  return {"gpt2",
          "llama",
          "llama-window",
          "llama-patterns",
          "llama-half",
          "llama-unrotated",
          "llama-neighbours",
          "mla",
          "mla-direct",
          "moe",
          "moe-shared",
          "moe-sigmoid",
          "moe-latent",
          "llama-lora",
          "mla-lora",
          "mtp",
          "mtp-moe",
          "zaya-dense",
          "zaya",
          "record"};
}

ModelConfig small_model_config(const std::string& name) {
  const bool zaya = name.rfind("zaya", 0) == 0;
  ModelConfig m = model_preset(zaya                        ? "zaya-tiny"
                               : name == "gpt2"            ? "gpt-10m"
                               : name.rfind("moe", 0) == 0 ? "moe-small"
                               : name == "record"          ? "modded-nanogpt"
                                                           : "llama-small");
  m.vocab = 61;
  m.width = 32;
  m.layers = 3;
  m.heads = 4;
  m.kv_heads = name == "gpt2" ? 4 : 2;
  m.head_width = 8;
  m.hidden = 48;
  m.context = 256;
  m.init_std = 0.1;
  m.moe.hidden = 24;
  m.moe.router_width = 12;
  if (name == "zaya-dense") m.moe = {};
  if (name == "llama-window") {
    m.qk_norm = true;
    m.window = 20;
    m.logit_softcap = 30;
    m.tied = false;
    m.mlp = ActivationKind::relu2;
    m.rotary_fraction = 0.5;
  }
  if (name == "llama-patterns") {  // NoPE, windows and a base of their own in some layers, YaRN, a scale
    m.rope_pattern = "RRN";
    m.window = 20;
    m.window_pattern = "SF";
    m.window_rope_theta = 100;
    m.attention_scale = 0.2;
    m.rope_scaling.kind = RopeScalingKind::yarn;
    m.rope_scaling.factor = 4;
    m.rope_scaling.original_context = 64;
  }
  if (name == "llama-half") {
    m.half_truncated_rope = m.qk_norm = true;
    m.rope_theta = 1024;
    m.attention_scale = 0.12;
    m.logit_softcap = 5;
  }
  if (name == "llama-unrotated") {
    m.position = PositionKind::none;
    m.attention_bias = m.norm_bias = m.mlp_bias = true;
    m.norm = NormKind::layer;
    m.mlp = ActivationKind::gelu;
    m.head_cap = {.kind = HeadCapKind::tanh, .cap = 5};
  }
  if (name == "llama-neighbours") {
    m.interleaved_rope = true;
    m.rope_scaling = {.kind = RopeScalingKind::llama3, .factor = 8, .original_context = 32};
    m.window = 20;
    m.window_pattern = "HF";
  }
  if (name.rfind("mla", 0) == 0) {
    m.attention = AttentionKind::mla;
    m.kv_heads = m.heads;
    m.head_width = 0;
    m.interleaved_rope = true;
    m.mla = {12, 16, 6, 4, 10};
  }
  if (name == "mla-direct") {  // queries from the stream, and every other option of attention
    m.mla = {0, 20, 10, 6, 8};
    m.interleaved_rope = false;
    m.window = 20;
    m.window_pattern = "SF";
    m.rope_pattern = "RRN";
    m.logit_softcap = 5;
    m.rope_scaling = {.kind = RopeScalingKind::yarn,
                      .factor = 4,
                      .original_context = 64,
                      .mscale = 1,
                      .mscale_all_dim = 0.7};
  }
  if (name == "mtp") m.mtp = {.depths = 2, .coefficient = 0.3};
  if (name == "mtp-moe") {  // one module for both depths
    m.moe = model_preset("moe-small").moe;
    m.moe.hidden = 24;
    m.moe.balance = BalanceRule::sign;
    m.mtp = {.depths = 2, .shared = true, .coefficient = 0.3};
  }
  if (name == "record") {  // value embeddings, no attention, attention with no table; and their mirror images
    m.layers = 6;
    m.value_embeddings = 2;
    m.attention_pattern = "AAANAA";
    m.window = 32;
    m.window_block = 16;
    m.window_pattern = "SH";
    m.head_multiple = 16;
    m.init.clear();  // no zeros
  }
  if (name == "moe-shared") {
    m.moe.shared_hidden = 16;
    m.moe.first_dense = 1;
    m.moe.z_coefficient = 1e-3;
    m.moe.score = RouteScore::softmax_last;
    m.moe.normalize = false;
    m.moe.balance = BalanceRule::sign;
  }
  if (name == "moe-sigmoid") {
    m.moe.score = RouteScore::sigmoid;
    m.moe.top_k = 4;
    m.moe.groups = 4;
    m.moe.groups_kept = 2;
    m.moe.scale = 2.5;
    m.moe.shared_hidden = 16;
    m.moe.sequence_aux_coefficient = 1e-2;
    m.moe.balance = BalanceRule::sign;
  }
  if (name == "llama-lora") m.lora = {.rank = 5, .alpha = 8};
  if (name == "mla-lora") m.lora = {.rank = 3, .alpha = 0, .targets = {"*.attention.*"}};
  if (name == "moe-latent") {
    m.moe.latent = 12;
    m.mlp = ActivationKind::geglu;
  }
  return m;
}

std::unique_ptr<Model> small_model(const std::string& name, const Precision& precision, uint64_t seed) {
  auto model = std::make_unique<Model>(small_model_config(name), precision);
  WeightSet& w = model->weights();
  w.initialize(seed);
  for (int i = 0; i < w.size(); ++i) {
    if (w.table()[i].init.kind != Init::Kind::constant) continue;
    const Random random(seed, RandomPurpose::test, static_cast<uint64_t>(i));
    const Tensor t = w.master(i);
    for (int64_t j = 0; j < t.numel(); ++j) {
      const double noise = 0.1 * random.normal(static_cast<uint64_t>(j));
      if (t.dtype() == DType::f64)
        t.as<double>()[j] += noise;
      else
        t.as<float>()[j] += static_cast<float>(noise);
    }
  }
  w.refresh_compute();
  if (model->config().moe.balance != BalanceRule::none)
    for (const int64_t layer : model->decoder().moe_layers())
      for (int64_t e = 0; e < model->config().moe.experts; ++e)
        model->router_bias(layer).as<float>()[e] =
            0.01f * static_cast<float>(e % 3) - 0.005f * static_cast<float>(layer);
  return model;
}

data::Batch packed_batch(int64_t rows, int64_t length, const std::vector<int64_t>& documents, int64_t vocab,
                         uint64_t seed) {
  data::Batch b;
  b.rows = rows;
  b.sequence_length = length;
  const Random random(seed, RandomPurpose::test);
  int64_t at = 0;
  for (const int64_t n : documents) {
    INGOT_CHECK(at / length == (at + n - 1) / length, "a document of {} at {} crosses a row of {}", n, at,
                length);
    b.spans.push_back({static_cast<int32_t>(at), static_cast<int32_t>(at + n)});
    for (int64_t i = 0; i < n; ++i) {
      const auto token = [&](int64_t t) {
        return static_cast<int32_t>(
            random.below(static_cast<uint64_t>(at + t), static_cast<uint64_t>(vocab)));
      };
      b.tokens.push_back(token(i));
      b.targets.push_back(i + 1 < n ? token(i + 1) : data::kMasked);
      b.positions.push_back(static_cast<int32_t>(i));
      b.valid_targets += i + 1 < n;
    }
    at += n;
  }
  INGOT_CHECK(at == rows * length, "documents cover {} of {} tokens", at, rows * length);
  for (int64_t r = 0; r < rows; ++r) b.origins.push_back({});
  return b;
}

}  // namespace ingot::test
