// The presets: published architectures with their exact shapes, and small ones for one machine.
#include "models/presets.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

ModelConfig gpt2(int64_t layers, int64_t heads, int64_t width) {
  ModelConfig m;
  m.vocab = 50257;
  m.width = width;
  m.layers = layers;
  m.heads = m.kv_heads = heads;
  m.context = 1024;
  m.position = PositionKind::learned;
  m.norm = NormKind::layer;
  m.norm_bias = m.attention_bias = m.mlp_bias = true;
  m.mlp = ActivationKind::gelu_tanh;
  m.tied = m.scale_output_init = true;
  return m;
}

ModelConfig llama(int64_t layers, int64_t width, int64_t heads, int64_t kv_heads, int64_t hidden) {
  ModelConfig m;
  m.vocab = 128256;
  m.width = width;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.hidden = hidden;
  m.context = 8192;
  m.rope_theta = 500000;
  return m;
}

/// SmolLM3-3B, final base model: every fourth layer does not rotate.
ModelConfig smollm3() {
  ModelConfig m = llama(36, 2048, 16, 4, 11008);
  m.context = 65536;
  m.rope_theta = 5e6;
  m.rope_pattern = "RRRN";
  m.norm_eps = 1e-6;
  m.tied = true;
  return m;
}

/// Llama 3.2 1B, which is also the shape of the Smol Training Playbook's ablation baseline.
ModelConfig llama32_1b() {
  ModelConfig m = llama(16, 2048, 32, 8, 8192);
  m.context = 131072;
  m.tied = true;
  m.rope_scaling = {.kind = RopeScalingKind::llama3, .factor = 32, .original_context = 8192};
  return m;
}

ModelConfig qwen3(int64_t layers, int64_t width, int64_t heads, int64_t kv_heads, int64_t hidden, bool tied) {
  ModelConfig m;
  m.vocab = 151936;
  m.width = width;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_width = 128;
  m.hidden = hidden;
  m.context = 32768;
  m.rope_theta = 1e6;
  m.qk_norm = true;
  m.norm_eps = 1e-6;
  m.tied = tied;
  return m;
}

ModelConfig qwen3_moe() {  // Qwen3-30B-A3B
  ModelConfig m = qwen3(48, 2048, 32, 4, 0, false);
  m.moe.experts = 128;
  m.moe.top_k = 8;
  m.moe.hidden = 768;
  m.moe.normalize = true;
  m.moe.aux_coefficient = 1e-3;
  return m;
}

ModelConfig qwen3_235b() {  // Qwen3-235B-A22B
  ModelConfig m = qwen3_moe();
  m.layers = 94;
  m.width = 4096;
  m.heads = 64;
  m.moe.hidden = 1536;
  return m;
}

ModelConfig mixtral() {  // Mixtral 8x7B
  ModelConfig m = llama(32, 4096, 32, 8, 14336);
  m.vocab = 32000;
  m.context = 32768;
  m.rope_theta = 1e6;
  m.moe.experts = 8;
  m.moe.top_k = 2;
  m.moe.hidden = 14336;
  m.moe.score = RouteScore::softmax_last;
  m.moe.aux_coefficient = 0.02;
  return m;
}

/// OLMoE-1B-7B.
ModelConfig olmoe() {
  ModelConfig m = llama(16, 2048, 16, 16, 1024);
  m.vocab = 50304;
  m.context = 4096;
  m.rope_theta = 10000;
  m.qk_norm = m.qk_norm_joint = true;
  m.moe.experts = 64;
  m.moe.top_k = 8;
  m.moe.hidden = 1024;
  m.moe.aux_coefficient = 0.01;
  m.moe.z_coefficient = 0.001;
  return m;
}

/// Grok-1: norms on both sides of a sublayer, capped attention logits.
ModelConfig grok_1() {
  ModelConfig m = llama(64, 6144, 48, 8, 32768);
  m.vocab = 131072;
  m.rope_theta = 10000;
  m.norm_position = NormPosition::both;
  m.mlp = ActivationKind::geglu;
  m.logit_softcap = 30;
  m.embedding_scale = 78.38367176906169;
  m.logit_divisor = 1 / 0.5773502691896257;
  m.tied = true;
  m.moe.experts = 8;
  m.moe.top_k = 2;
  m.moe.hidden = 32768;
  return m;
}

/// GLM-4.5-Air without its multi-token prediction module.
ModelConfig glm_45_air() {
  ModelConfig m = llama(46, 4096, 96, 8, 10944);
  m.vocab = 151552;
  m.head_width = 128;
  m.context = 131072;
  m.rope_theta = 1e6;
  m.rotary_fraction = 0.5;
  m.attention_bias = true;
  m.attention_out_bias = false;
  m.moe.experts = 128;
  m.moe.top_k = 8;
  m.moe.hidden = m.moe.shared_hidden = 1408;
  m.moe.first_dense = 1;
  m.moe.score = RouteScore::sigmoid;
  m.moe.normalize = true;
  m.moe.balance = BalanceRule::sign;
  return m;
}

ModelConfig glm_45() {
  ModelConfig m = glm_45_air();
  m.layers = 92;
  m.width = 5120;
  m.hidden = 12288;
  m.qk_norm = true;
  m.moe.experts = 160;
  m.moe.hidden = m.moe.shared_hidden = 1536;
  m.moe.first_dense = 3;
  m.moe.scale = 2.5;
  return m;
}

/// DeepSeek-V3 without its multi-token prediction module; context extended by YaRN.
ModelConfig deepseek_v3() {
  ModelConfig m;
  m.vocab = 129280;
  m.width = 7168;
  m.layers = 61;
  m.heads = m.kv_heads = 128;
  m.hidden = 18432;
  m.context = 163840;
  m.attention = AttentionKind::mla;
  m.mla = {.q_rank = 1536, .kv_rank = 512, .nope_width = 128, .rope_width = 64, .value_width = 128};
  m.interleaved_rope = true;
  m.rope_scaling = {.kind = RopeScalingKind::yarn,
                    .factor = 40,
                    .original_context = 4096,
                    .mscale = 1,
                    .mscale_all_dim = 1};
  m.norm_eps = 1e-6;
  m.init_std = 0.006;
  m.moe.experts = 256;
  m.moe.top_k = 8;
  m.moe.hidden = m.moe.shared_hidden = 2048;
  m.moe.first_dense = 3;
  m.moe.score = RouteScore::sigmoid;
  m.moe.normalize = true;
  m.moe.scale = 2.5;
  m.moe.groups = 8;
  m.moe.groups_kept = 4;
  m.moe.balance = BalanceRule::sign;
  m.moe.sequence_aux_coefficient = 1e-4;
  return m;
}

/// Kimi K2: DeepSeek-V3's layers with half of the heads and more experts, not in groups.
ModelConfig kimi_k2() {
  ModelConfig m = deepseek_v3();
  m.vocab = 163840;
  m.heads = m.kv_heads = 64;
  m.context = 131072;
  m.rope_theta = 50000;
  m.rope_scaling.factor = 32;
  m.rope_scaling.beta_fast = 1.000001;  // 1, as beta_slow: the same pairs, and a range that is not empty
  m.init_std = 0.02;
  m.moe.experts = 384;
  m.moe.first_dense = 1;
  m.moe.scale = 2.827;
  m.moe.groups = m.moe.groups_kept = 1;
  return m;
}

/// ZAYA1 ([ZAYA1-AMD] Tables II and III, [ZAYA1-8B] Table I).
ModelConfig zaya1(int64_t context, double theta) {
  ModelConfig m;
  m.vocab = 262272;
  m.width = 2048;
  m.layers = 40;
  m.heads = 8;
  m.kv_heads = 2;
  m.head_width = 128;
  m.context = context;
  m.attention = AttentionKind::cca;
  m.rope_theta = theta;
  m.rotary_fraction = 0.5;
  m.residual = ResidualKind::scaled;
  m.tied = m.scale_output_init = true;
  m.moe.experts = 16;
  m.moe.hidden = 2048;
  m.moe.router = RouterKind::zaya;
  m.moe.router_width = 256;
  m.moe.skip_class = true;
  m.moe.balance = BalanceRule::adamw;
  return m;
}

/// ZAYA1's code paths at a size for one machine. A small router starts from 1/sqrt(fan_in): with 0.02 its
/// logits are all but equal and one expert takes everything.
ModelConfig zaya_small(int64_t layers, int64_t width, int64_t heads, int64_t kv_heads, int64_t head_width,
                       int64_t experts, int64_t hidden, int64_t router_width) {
  ModelConfig m = zaya1(1024, 10000);
  m.vocab = 0;
  m.width = width;
  m.layers = layers;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_width = head_width;
  m.moe.experts = experts;
  m.moe.hidden = hidden;
  m.moe.router_width = router_width;
  m.moe.router_init = RouterInit::fan_in;
  m.moe.balance_rate = 0.01;  // hundreds of steps, not hundreds of thousands, to balance in
  return m;
}

/// modded-nanogpt at its record of 2.979 minutes ([NanoGPT-II]): 275,598,388 parameters.
ModelConfig modded_nanogpt() {
  ModelConfig m;
  m.vocab = 50257;
  m.width = 768;
  m.layers = 12;
  m.heads = m.kv_heads = 6;
  m.head_width = 128;
  m.context = 65536;
  m.rope_theta = 1024;
  m.half_truncated_rope = m.qk_norm = true;
  m.attention_scale = 0.12;
  m.attention_pattern = "AAAAAAANAAAA";
  m.window = 1792;
  m.window_block = 128;
  m.window_pattern = "SHHHSHHSHHHS";
  m.norm_weight = false;
  m.norm_eps = 0x1p-23;
  m.mlp = ActivationKind::relu2;
  m.embedding_norm = m.input_mix = m.unet_skips = true;
  m.value_embeddings = 3;
  m.head_cap.kind = HeadCapKind::sigmoid;
  m.head_multiple = 128;
  const auto start = [&](const char* pattern, InitChoice kind) {
    m.init.push_back({.pattern = pattern, .kind = kind});
  };
  start("*", InitChoice::uniform);
  for (const char* table : {"embed.weight", "value_embed.*"})
    m.init.push_back({.pattern = table, .std = 1.0});
  for (const char* last : {"*.attention.out.weight", "*.mlp.down.weight", "lm_head.weight"})
    start(last, InitChoice::zero);
  return m;
}

const std::map<std::string, std::function<ModelConfig()>>& presets() {
  static const std::map<std::string, std::function<ModelConfig()>> all = {
      {"gpt2", [] { return gpt2(12, 12, 768); }},
      {"gpt2-medium", [] { return gpt2(24, 16, 1024); }},
      {"gpt2-large", [] { return gpt2(36, 20, 1280); }},
      {"gpt2-xl", [] { return gpt2(48, 25, 1600); }},
      {"llama", [] { return llama(32, 4096, 32, 8, 14336); }},
      {"llama3-8b", [] { return llama(32, 4096, 32, 8, 14336); }},
      {"llama-3.2-1b", llama32_1b},
      {"smollm3-3b", smollm3},
      {"deepseek-v3", deepseek_v3},
      {"qwen3-0.6b", [] { return qwen3(28, 1024, 16, 8, 3072, true); }},
      {"qwen3-1.7b", [] { return qwen3(28, 2048, 16, 8, 6144, true); }},
      {"qwen3-4b", [] { return qwen3(36, 2560, 32, 8, 9728, true); }},
      {"qwen3-8b", [] { return qwen3(36, 4096, 32, 8, 12288, false); }},
      {"qwen3-14b", [] { return qwen3(40, 5120, 40, 8, 17408, false); }},
      {"qwen3-32b", [] { return qwen3(64, 5120, 64, 8, 25600, false); }},
      {"mixtral", mixtral},
      {"olmoe", olmoe},
      {"grok-1", grok_1},
      {"glm-4.5-air", glm_45_air},
      {"glm-4.5", glm_45},
      {"kimi-k2", kimi_k2},
      {"modded-nanogpt", modded_nanogpt},
      {"qwen3-moe", qwen3_moe},
      {"qwen3-235b", qwen3_235b},
      {"zaya1-base", [] { return zaya1(32768, 1e6); }},
      {"zaya1-8b", [] { return zaya1(131072, 5e6); }},
      {"gpt-10m",
       [] {
         ModelConfig m = gpt2(6, 6, 384);
         m.vocab = 0;
         m.context = 256;
         return m;
       }},
      {"llama-small",
       [] {
         ModelConfig m = llama(6, 256, 4, 2, 704);
         m.vocab = 0;
         m.context = 1024;
         m.rope_theta = 10000;
         m.tied = m.scale_output_init = true;
         return m;
       }},
      {"moe-small",
       [] {
         ModelConfig m = llama(6, 256, 4, 2, 704);
         m.vocab = 0;
         m.context = 1024;
         m.rope_theta = 10000;
         m.tied = m.scale_output_init = m.qk_norm = true;
         m.moe.experts = 8;
         m.moe.top_k = 2;
         m.moe.hidden = 352;
         m.moe.normalize = true;
         m.moe.aux_coefficient = 1e-2;
         return m;
       }},
      {"zaya-tiny", [] { return zaya_small(4, 128, 4, 2, 32, 4, 128, 32); }},
      {"zaya-mini", [] { return zaya_small(4, 192, 4, 2, 48, 8, 192, 48); }},
      {"zaya-small", [] { return zaya_small(6, 256, 4, 2, 64, 8, 256, 64); }},
  };
  return all;
}

/// Published models that a ModelConfig cannot say, and why: a preset would be another model.
constexpr std::pair<const char*, const char*> kOutside[] = {
    {"grok-2", "its router's logits are capped"},
    {"gpt-oss-20b", "its heads have learned sinks, its experts and router biases, and its SwiGLU is clamped"},
    {"gpt-oss-120b",
     "its heads have learned sinks, its experts and router biases, and its SwiGLU is clamped"},
    {"step-3", "its queries come from a latent, its one key-value head does not"},
    {"deepseek-v2", "a group of its experts counts by its best expert alone, here by top_k / groups_kept"},
    {"qwen3-next-80b", "three of four layers are gated delta rules, the others have gates on their output"}};

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : presets()) names.push_back(name);
  return names;
}

ModelConfig model_preset(const std::string& name) {
  const auto it = presets().find(name);
  if (it != presets().end()) {
    ModelConfig m = it->second();
    m.preset = name;
    return m;
  }
  for (const auto& [outside, why] : kOutside)
    if (name == outside)
      throw Error(fmt::format("'{}' is no preset: {}", name, why),
                  "docs/moe.md lists the published models that are presets, and those that are not");
  std::string list;
  for (const auto& n : preset_names()) list += (list.empty() ? "" : ", ") + n;
  const std::string nearest = nearest_name(name, preset_names());
  throw Error(fmt::format("there is no preset '{}'", name),
              (nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest)) + "presets: " + list);
}

}  // namespace ingot
