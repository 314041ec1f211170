// See gguf_model.h.
#include "exchange/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace ingot {
namespace {

using Architecture = GgufArchitecture;

constexpr Architecture kGpt2 = {.name = "gpt2", .attention_bias = true, .mlp_bias = true};
constexpr Architecture kGranite = {.name = "granite",
                                   .attention_bias = true,
                                   .mlp_bias = true,
                                   .llama3_rotation = true,
                                   .rotates_neighbours = true};
constexpr Architecture kLlama = {.name = "llama",
                                 .attention_bias = true,
                                 .mlp_bias = true,
                                 .llama3_rotation = true,
                                 .rotates_neighbours = true};
constexpr Architecture kOlmo2 = {
    .name = "olmo2", .fixed_head_width = true, .ties = false, .sliding_period = 4};
constexpr Architecture kPhi3 = {.name = "phi3", .fixed_head_width = true, .fused = true};
constexpr Architecture kQwen2 = {.name = "qwen2", .attention_bias = true, .fixed_head_width = true};

constexpr std::pair<std::string_view, Architecture> kFamilies[] = {
    {"deepseek_v3", {.name = "deepseek2"}},
    {"dots1", {.name = "dots1", .ties = false}},
    {"gemma", {.name = "gemma"}},
    {"gemma2", {.name = "gemma2", .sliding_period = 2}},
    {"gemma3_text", {.name = "gemma3", .sliding_period = 6}},
    {"gpt2", kGpt2},
    {"granite", kGranite},
    {"llama", kLlama},
    {"mistral", kLlama},
    {"mixtral", kLlama},
    {"olmo2", kOlmo2},
    {"olmo3", kOlmo2},
    {"phi3", kPhi3},
    {"qwen2", kQwen2},
    {"qwen3", {.name = "qwen3"}},
    {"qwen3_moe", {.name = "qwen3moe"}},
    {"smollm3", {.name = "smollm3", .rotates_neighbours = true}}};

/// A key of the architecture.
std::string key_of(const Architecture& arch, std::string_view name) {
  return fmt::format("{}.{}", arch.name, name);
}

/// Whether exactly the layers 3, 7, 11, ... have no rotation.
bool every_fourth_has_no_rotation(const ModelConfig& m) {
  for (int64_t l = 0; l < m.layers; ++l)
    if ((m.rotary_of(l).dims == 0) != (l % 4 == 3)) return false;
  return true;
}

using Refuse = std::function<void(bool, const char*)>;

void refuse_rotations(const ModelConfig& m, const Architecture& arch, const Refuse& refuse) {
  const RopeScalingConfig& s = m.rope_scaling;
  const bool yarn = s.kind == RopeScalingKind::yarn, deepseek = arch.name == "deepseek2";
  refuse(arch.name == "smollm3" && !every_fourth_has_no_rotation(m),
         "there exactly every fourth layer has no rotation (rope_pattern = \"RRRN\"); here the pattern is "
         "another one");
  refuse(s.kind == RopeScalingKind::llama3 && !arch.llama3_rotation,
         "its rotation is scaled as Llama 3's, which only archs llama and granite know");
  refuse(s.kind == RopeScalingKind::linear && deepseek,
         "its rotation is scaled linearly, which changes arch deepseek2's attention scale");
  refuse(yarn && (s.beta_fast != 32 || s.beta_slow != 1),
         "YaRN's ramp is fixed there: beta_fast = 32 and beta_slow = 1");
  refuse(yarn && s.factor <= 1, "YaRN's factor must be above 1 there");
  refuse(yarn && s.mscale_all_dim != 0 && !deepseek, "YaRN's mscale_all_dim is known to arch deepseek2 only");
}

void refuse_windows(const ModelConfig& m, const Architecture& arch, const Refuse& refuse) {
  refuse(m.window > 0 && arch.sliding_period == 0, "it has a sliding window");
  if (m.window == 0) return;
  refuse(arch.name == "gemma3" && !m.window_rope_scaling && m.rope_scaling.kind == RopeScalingKind::yarn,
         "there YaRN's factor reaches the layers that slide");
  refuse(arch.name == "olmo2" && m.window_rope_theta != m.rope_theta,
         "there layers that slide rotate with the base of the others (window_rope_theta = rope_theta)");
}

/// What the Gemma architectures fix.
void refuse_gemma(const ModelConfig& m, const Architecture& arch, const Refuse& refuse) {
  if (!arch.name.starts_with("gemma")) return;
  refuse(!m.tied && arch.name != "gemma3", "there the head is the embedding (tied = true)");
  refuse(arch.name == "gemma2" && (m.logit_softcap == 0 || m.head_cap.kind == HeadCapKind::none),
         "there the logits of attention and of the output have caps (logit_softcap, head_cap)");
  const bool by_width =
      (arch.name == "gemma2" && m.layers == 46) || (arch.name == "gemma3" && m.layers == 62);
  const double scale = 1 / std::sqrt(static_cast<double>(by_width ? m.width / m.heads : m.key_width()));
  refuse(
      std::abs(m.attention_scale_of() / scale - 1) > 1e-6,
      "its factor on q . k (attention_scale, query_pre_attn_scalar) is fixed there: one by the root of the "
      "head's width, or, for the layers of the 27B models, of width / heads");
}

/// YaRN multiplies the rotated part of queries and keys by R, and all of q . k by S. llama.cpp computes R as
/// (0.1 ln(factor) + 1) attn_factor. Its architecture deepseek2 also multiplies q . k by R^2 L^2 / sqrt(k),
/// where L = 1 + ln(factor) yarn_log_multiplier; without that key L is 1, and R is as for the others.
void add_yarn_keys(GgufWriter& w, const ModelConfig& m, const Architecture& arch) {
  double r = 1;  // of a layer that is scaled: those that slide need not be
  for (int64_t l = 0; l < m.layers; ++l)
    if (m.rotary_of(l).kind == RotaryKind::yarn) r = m.rotary_of(l).magnitude;
  const double growth = m.rope_scaling.yarn_magnitude(1);
  double attn_factor = r / growth, multiplier = 0;
  if (arch.name == "deepseek2") {
    const double s = m.attention_scale_of() * std::sqrt(static_cast<double>(m.key_width()));
    multiplier = (std::sqrt(s) / r - 1) / std::log(m.rope_scaling.factor);
    if (std::abs(multiplier) < 1e-9)
      multiplier = 0;
    else
      attn_factor = r;
  }
  w.add(key_of(arch, "rope.scaling.original_context_length"),
        static_cast<uint32_t>(m.rope_scaling.original_context));
  if (std::abs(attn_factor - 1) > 1e-9)
    w.add(key_of(arch, "rope.scaling.attn_factor"), static_cast<float>(attn_factor));
  if (multiplier != 0)
    w.add(key_of(arch, "rope.scaling.yarn_log_multiplier"), static_cast<float>(multiplier));
}

uint32_t u32(int64_t n) {
  return static_cast<uint32_t>(n);
}

/// Architecture gemma2 slides with a window of its own unless the file has one; one as long as the context
/// hides nothing.
void add_window_keys(GgufWriter& w, const ModelConfig& m, const Architecture& arch) {
  if (m.window == 0 && arch.name != "gemma2") return;
  w.add(key_of(arch, "attention.sliding_window"), u32(m.window > 0 ? m.window : m.context));
  if (m.window == 0) return;
  w.add(key_of(arch, "rope.freq_base_swa"),
        static_cast<float>(m.window_rope_theta != 0 ? m.window_rope_theta : m.rope_theta));
  std::vector<bool> slides;
  bool usual = true;
  for (int64_t l = 0; l < m.layers; ++l) {
    slides.push_back(m.window_of(l) > 0);
    usual &= slides.back() == (l % arch.sliding_period != arch.sliding_period - 1);
  }
  if (!usual) w.add_flags(key_of(arch, "attention.sliding_window_pattern"), slides);
}

void add_attention_keys(GgufWriter& w, const ModelConfig& m, const Architecture& arch) {
  const auto key = [&](const char* name) { return key_of(arch, name); };
  if (m.is_mla()) {  // one key head: the latent and the rotated part
    w.add(key("attention.head_count_kv"), uint32_t{1});
    w.add(key("attention.key_length"), u32(m.mla.kv_rank + m.mla.rope_width));
    w.add(key("attention.value_length"), u32(m.mla.kv_rank));
    w.add(key("attention.key_length_mla"), u32(m.key_width()));
    w.add(key("attention.value_length_mla"), u32(m.value_width()));
    w.add(key("attention.q_lora_rank"), u32(m.mla.q_rank));
    w.add(key("attention.kv_lora_rank"), u32(m.mla.kv_rank));
  } else {
    w.add(key("attention.head_count_kv"), u32(m.kv_heads));
    w.add(key("attention.key_length"), u32(m.key_width()));
    w.add(key("attention.value_length"), u32(m.key_width()));
  }
  w.add(key("rope.dimension_count"), u32(m.is_mla() ? m.mla.rope_width : m.rotary_dims()));
  w.add(key("rope.freq_base"), static_cast<float>(m.rope_theta));
  if (arch.sliding_period != 0) add_window_keys(w, m, arch);
  const RopeScalingKind kind = m.rope_scaling.kind;
  if (kind != RopeScalingKind::linear && kind != RopeScalingKind::yarn) return;
  w.add(key("rope.scaling.type"), std::string(name_of(kind)));
  w.add(key("rope.scaling.factor"), static_cast<float>(m.rope_scaling.factor));
  if (kind == RopeScalingKind::yarn) add_yarn_keys(w, m, arch);
}

/// Adds the keys of sigmoid scores, selection biases, shared experts and leading dense layers. Architecture
/// deepseek2 needs them for dense models too.
void add_sigmoid_expert_keys(GgufWriter& w, const ModelConfig& m, const Architecture& arch) {
  constexpr uint32_t kSigmoid = 2;
  const auto key = [&](const char* name) { return key_of(arch, name); };
  const bool dense = m.moe.experts == 0;
  w.add(key("leading_dense_block_count"), u32(dense ? m.layers : m.moe.first_dense));
  w.add(key("expert_feed_forward_length"), u32(dense ? m.mlp_hidden() : m.moe.hidden));
  w.add(key("expert_shared_count"), u32(dense ? 0 : m.moe.shared_hidden / m.moe.hidden));
  w.add(key("expert_gating_func"), kSigmoid);
  if (dense) return;
  w.add(key("expert_weights_scale"), static_cast<float>(m.moe.scale));
  w.add_flag(key("expert_weights_norm"), m.moe.normalize);
  if (m.moe.groups_kept == m.moe.groups) return;
  w.add(key("expert_group_count"), u32(m.moe.groups));
  w.add(key("expert_group_used_count"), u32(m.moe.groups_kept));
}

}  // namespace

const GgufArchitecture& gguf_architecture(const ModelConfig& m) {
  const HuggingfaceLayout layout = huggingface_layout(m);
  huggingface_config(m, layout, {});  // refuses what the family itself cannot express
  const std::string& f = layout.family;
  const auto found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const auto& a) { return f == a.first; });
  if (found == std::end(kFamilies)) {
    std::string known;
    for (const auto& [family, arch] : kFamilies) known += (known.empty() ? "" : ", ") + std::string(family);
    throw Error(f == "zaya" ? "llama.cpp has no architecture for the family zaya"
                            : fmt::format("GGUF export knows no model of family {}", f),
                "families: " + known);
  }
  const Architecture& arch = found->second;
  const Refuse refuse = [&](bool bad, const char* what) {
    if (bad)
      throw Error(fmt::format("llama.cpp would compute this {} model differently: {}", f, what),
                  "export with --format=hf, or change the model");
  };
  refuse(m.moe.experts > 0 && !m.moe.normalize && m.moe.score != RouteScore::sigmoid,
         "its expert weights are not divided by their sum");
  refuse(m.attention_bias && !arch.attention_bias, "it has biases in attention");
  refuse(m.mlp_bias && !arch.mlp_bias, "it has biases in its MLP");
  refuse(arch.fixed_head_width && m.heads * m.key_width() != m.width,
         "there all heads together are as wide as the model (head_width = width / heads)");
  refuse(arch.name == "dots1" && m.kv_heads != m.heads,
         "there every query head has its own key head (kv_heads = heads)");
  if (m.is_mla()) {
    refuse(m.mla.norm_eps != m.norm_eps,
           "there all norms have one epsilon; here mla.norm_eps differs from norm_eps");
    refuse(
        m.mla.q_rank > 0 && (m.layers == 26 || m.layers == 27 || (m.layers == 48 && m.vocab == 128256)),
        "it takes this number of layers for a published model whose queries have no latent (mla.q_rank = 0)");
  }
  refuse_rotations(m, arch, refuse);
  refuse_windows(m, arch, refuse);
  refuse_gemma(m, arch, refuse);
  return arch;
}

void add_gguf_model_keys(GgufWriter& w, const ModelConfig& m, const Architecture& arch) {
  const auto key = [&](const char* name) { return key_of(arch, name); };
  const bool gpt2 = arch.name == "gpt2", mixtral = arch.name == "llama" && m.moe.experts > 0;
  w.add(key("context_length"), u32(m.context));
  w.add(key("embedding_length"), u32(m.width));
  w.add(key("block_count"), u32(m.layers));
  w.add(key("feed_forward_length"), u32(mixtral ? m.moe.hidden : m.mlp_hidden()));
  w.add(key("attention.head_count"), u32(m.heads));
  w.add(key("vocab_size"), u32(m.vocab));
  w.add(key(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
        static_cast<float>(m.norm_eps));
  if (gpt2) return;
  add_attention_keys(w, m, arch);
  if (arch.name == "granite") {
    w.add(key("embedding_scale"), static_cast<float>(m.embedding_scale));
    w.add(key("residual_scale"), static_cast<float>(m.sublayer_scale));
    w.add(key("attention.scale"), static_cast<float>(m.attention_scale_of()));
    w.add(key("logit_scale"), static_cast<float>(m.logit_divisor));
  }
  if (m.logit_softcap != 0) w.add(key("attn_logit_softcapping"), static_cast<float>(m.logit_softcap));
  if (m.head_cap.kind != HeadCapKind::none)
    w.add(key("final_logit_softcapping"), static_cast<float>(m.head_cap.cap));
  if (m.moe.experts > 0) {
    w.add(key("expert_count"), u32(m.moe.experts));
    w.add(key("expert_used_count"), u32(m.moe.top_k));
  }
  if (arch.name == "qwen3moe") w.add(key("expert_feed_forward_length"), u32(m.moe.hidden));
  if (arch.name == "dots1" || arch.name == "deepseek2") add_sigmoid_expert_keys(w, m, arch);
}

}  // namespace ingot
