// See gguf_model.h.
#include "exchange/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace ingot {
namespace {

/// Collects the tensors of one decoder.
class Items {
 public:
  explicit Items(const Decoder& d) : decoder_(d) {}
  void add(const std::string& name, const std::string& ours, Shape shape, std::vector<int64_t> stride,
           int64_t offset = 0, bool exact = false) {
    items_.push_back(
        {name, shape, {part(name, ours, shape, std::move(stride), offset)}, {}, exact || shape.rank() == 1});
  }
  void whole(const std::string& name, const std::string& ours, bool exact = false) {
    const Shape& s = shape_of(ours);
    if (s.rank() == 1) return add(name, ours, s, {1});
    if (s.rank() == 2) return add(name, ours, s, {s[1], 1}, 0, exact);
    add(name, ours, s, {s[1] * s[2], s[2], 1});
  }
  /// Adds rows of a matrix, or elements of a vector.
  void rows(const std::string& name, const std::string& ours, int64_t begin, int64_t count) {
    const Shape& s = shape_of(ours);
    if (s.rank() == 1) return add(name, ours, {count}, {1}, begin);
    add(name, ours, {count, s[1]}, {s[1], 1}, begin * s[1]);
  }
  /// Adds the rows of `heads` heads of width `k` in the order 0, k/2, 1, k/2 + 1, ...: architecture llama
  /// rotates neighbours.
  void interleaved_rows(const std::string& name, const std::string& ours, int64_t begin, int64_t heads,
                        int64_t k) {
    const Shape& s = shape_of(ours);
    const int64_t d = s.rank() == 1 ? 1 : s[1];
    add(name, ours, {heads, k / 2, 2, d}, {k * d, d, k / 2 * d, 1}, begin * d, s.rank() == 1);
    items_.back().shape = s.rank() == 1 ? Shape{heads * k} : Shape{heads * k, d};
  }
  /// The same for heads of `plain` rows that do not rotate and `rotated` rows that do.
  void half_interleaved_rows(const std::string& name, const std::string& ours, int64_t begin, int64_t heads,
                             int64_t plain, int64_t rotated) {
    const int64_t d = shape_of(ours)[1];
    GgufTensor t{name, {heads * (plain + rotated), d}, {}, {}};
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = begin + h * (plain + rotated);
      t.parts.push_back(part(name, ours, {plain, d}, {d, 1}, row * d));
      t.parts.push_back(part(name, ours, {rotated / 2, 2, d}, {d, rotated / 2 * d, 1}, (row + plain) * d));
    }
    items_.push_back(std::move(t));
  }
  /// Adds rows [begin, begin + count) of every expert.
  void expert_rows(const std::string& name, const std::string& ours, int64_t begin, int64_t count) {
    const Shape& s = shape_of(ours);
    add(name, ours, {s[0], count, s[2]}, {s[1] * s[2], s[2], 1}, begin * s[2]);
  }
  void selection_bias(const std::string& name, int64_t layer, int64_t experts) {
    items_.push_back({name, {experts}, {{name, {experts}, -1, layer, 0, {1}}}, {}, true});
  }
  void values(const std::string& name, std::vector<float> v) {
    items_.push_back({name, {static_cast<int64_t>(v.size())}, {}, std::move(v), true});
  }
  std::vector<GgufTensor> take() { return std::move(items_); }

 private:
  const Shape& shape_of(const std::string& ours) const { return decoder_.table()[index(ours)].shape; }
  int index(const std::string& ours) const {
    const int p = decoder_.table().find(ours);
    INGOT_CHECK(p >= 0, "no parameter '{}'", ours);
    return p;
  }
  ExternalTensor part(const std::string& name, const std::string& ours, Shape shape,
                      std::vector<int64_t> stride, int64_t offset) {
    return {name, shape, index(ours), -1, offset, std::move(stride)};
  }
  const Decoder& decoder_;
  std::vector<GgufTensor> items_;
};

void gpt2_items(const ModelConfig& m, Items& n) {
  n.whole("token_embd.weight", "embed.weight");
  n.whole("position_embd.weight", "position_embed.weight", true);
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l);
    for (const char* part : {".weight", ".bias"})
      for (const auto& [name, ours] : {std::pair<const char*, const char*>{"attn_norm", "attention_norm"},
                                       {"attn_qkv", "attention.qkv"},
                                       {"attn_output", "attention.out"},
                                       {"ffn_norm", "mlp_norm"},
                                       {"ffn_up", "mlp.up"},
                                       {"ffn_down", "mlp.down"}})
        n.whole(e + name + part, o + ours + part);
  }
  n.whole("output_norm.weight", "final_norm.weight");
  n.whole("output_norm.bias", "final_norm.bias");
}

void grouped_attention_items(const ModelConfig& m, Items& n, int64_t l, bool interleaved) {
  const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l) + "attention.";
  const int64_t k = m.key_width(), q = m.heads * k, kv = m.kv_heads * k;
  for (const char* part : {".weight", ".bias"}) {
    if (part[1] == 'b' && !m.attention_bias) continue;
    const std::string qkv = o + "qkv" + part;
    if (interleaved) {
      n.interleaved_rows(e + "attn_q" + part, qkv, 0, m.heads, k);
      n.interleaved_rows(e + "attn_k" + part, qkv, q, m.kv_heads, k);
    } else {
      n.rows(e + "attn_q" + part, qkv, 0, q);
      n.rows(e + "attn_k" + part, qkv, q, kv);
    }
    n.rows(e + "attn_v" + part, qkv, q + kv, kv);
    n.whole(e + "attn_output" + part, o + "out" + part);
  }
  if (!m.qk_norm) return;
  n.whole(e + "attn_q_norm.weight", o + "q_norm.weight");
  n.whole(e + "attn_k_norm.weight", o + "k_norm.weight");
}

/// llama.cpp always attends in the latent space, so the projection from the latent to keys is stored
/// transposed, head by head.
void latent_attention_items(const ModelConfig& m, Items& n, int64_t l) {
  const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l) + "attention.";
  const MlaConfig& a = m.mla;
  const auto rotated_rows = [&](const char* name, const char* ours, int64_t begin, int64_t heads,
                                int64_t plain) {
    if (m.interleaved_rope)
      n.rows(e + name, o + ours, begin, heads * (plain + a.rope_width));
    else
      n.half_interleaved_rows(e + name, o + ours, begin, heads, plain, a.rope_width);
  };
  if (a.q_rank > 0) {
    n.rows(e + "attn_q_a.weight", o + "down.weight", 0, a.q_rank);
    n.whole(e + "attn_q_a_norm.weight", o + "q_norm.weight");
  }
  rotated_rows(a.q_rank > 0 ? "attn_q_b.weight" : "attn_q.weight", "q_up.weight", 0, m.heads, a.nope_width);
  rotated_rows("attn_kv_a_mqa.weight", "down.weight", a.q_rank, 1, a.kv_rank);
  n.whole(e + "attn_kv_a_norm.weight", o + "kv_norm.weight");
  const int64_t c = a.kv_rank, head = (a.nope_width + a.value_width) * c;
  n.add(e + "attn_k_b.weight", o + "kv_up.weight", {m.heads, c, a.nope_width}, {head, 1, c});
  n.add(e + "attn_v_b.weight", o + "kv_up.weight", {m.heads, a.value_width, c}, {head, c, 1},
        a.nope_width * c);
  n.whole(e + "attn_output.weight", o + "out.weight");
}

void expert_items(const ModelConfig& m, Items& n, int64_t l) {
  const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l) + "moe.";
  const std::string gate_up = o + "experts.gate_up.weight", shared = o + "shared.gate_up.weight";
  n.whole(e + "ffn_gate_inp.weight", o + "router.weight", true);
  if (m.moe.score == RouteScore::sigmoid) n.selection_bias(e + "exp_probs_b.bias", l, m.moe.experts);
  n.expert_rows(e + "ffn_gate_exps.weight", gate_up, 0, m.moe.hidden);
  n.expert_rows(e + "ffn_up_exps.weight", gate_up, m.moe.hidden, m.moe.hidden);
  n.whole(e + "ffn_down_exps.weight", o + "experts.down.weight");
  if (m.moe.shared_hidden == 0) return;
  n.rows(e + "ffn_gate_shexp.weight", shared, 0, m.moe.shared_hidden);
  n.rows(e + "ffn_up_shexp.weight", shared, m.moe.shared_hidden, m.moe.shared_hidden);
  n.whole(e + "ffn_down_shexp.weight", o + "shared.down.weight");
}

/// The frequency scaling of Llama 3 as divisors of the frequencies.
std::vector<float> frequency_divisors(const ModelConfig& m) {
  const RopeScalingConfig& s = m.rope_scaling;
  const double original = static_cast<double>(s.original_context), k = static_cast<double>(m.key_width());
  std::vector<float> divisors;
  for (int64_t i = 0; i < m.key_width() / 2; ++i) {
    const double length = 2 * std::numbers::pi * std::pow(m.rope_theta, 2 * static_cast<double>(i) / k);
    const double smooth = std::clamp(
        (original / length - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - smooth) / s.factor + smooth)));
  }
  return divisors;
}

void llama_items(const ModelConfig& m, Items& n, const std::string& arch) {
  const bool interleaved = arch == "llama" || arch == "smollm3";
  n.whole("token_embd.weight", "embed.weight");
  if (m.rope_scaling.kind == RopeScalingKind::llama3) n.values("rope_freqs.weight", frequency_divisors(m));
  for (int64_t l = 0; l < m.layers; ++l) {
    const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l);
    n.whole(e + "attn_norm.weight", o + "attention_norm.weight");
    if (m.is_mla())
      latent_attention_items(m, n, l);
    else
      grouped_attention_items(m, n, l, interleaved);
    n.whole(e + "ffn_norm.weight", o + "mlp_norm.weight");
    if (m.is_moe(l)) {
      expert_items(m, n, l);
      continue;
    }
    n.rows(e + "ffn_gate.weight", o + "mlp.gate_up.weight", 0, m.mlp_hidden());
    n.rows(e + "ffn_up.weight", o + "mlp.gate_up.weight", m.mlp_hidden(), m.mlp_hidden());
    n.whole(e + "ffn_down.weight", o + "mlp.down.weight");
  }
  n.whole("output_norm.weight", "final_norm.weight");
  if (!m.tied)
    n.whole("output.weight", "lm_head.weight");
  else if (arch == "dots1")
    n.whole("output.weight", "embed.weight");  // llama.cpp cannot tie it to the embedding
}

constexpr std::pair<const char*, const char*> kArchitectures[] = {
    {"deepseek_v3", "deepseek2"}, {"dots1", "dots1"},        {"gpt2", "gpt2"},
    {"llama", "llama"},           {"mistral", "llama"},      {"mixtral", "llama"},
    {"qwen3", "qwen3"},           {"qwen3_moe", "qwen3moe"}, {"smollm3", "smollm3"}};

/// Whether exactly the layers 3, 7, 11, ... have no rotation.
bool every_fourth_has_no_rotation(const ModelConfig& m) {
  for (int64_t l = 0; l < m.layers; ++l)
    if ((m.rotary_of(l).dims == 0) != (l % 4 == 3)) return false;
  return true;
}

using Refuse = std::function<void(bool, const char*)>;

void refuse_rotations(const ModelConfig& m, const std::string& arch, const Refuse& refuse) {
  const RopeScalingConfig& s = m.rope_scaling;
  const bool yarn = s.kind == RopeScalingKind::yarn, deepseek = arch == "deepseek2";
  refuse(arch == "smollm3" && !every_fourth_has_no_rotation(m),
         "there exactly every fourth layer has no rotation (rope_pattern = \"RRRN\"); here the pattern is "
         "another one");
  refuse(s.kind == RopeScalingKind::llama3 && arch != "llama",
         "its rotation is scaled as Llama 3's, which only arch llama knows");
  refuse(s.kind == RopeScalingKind::linear && deepseek,
         "its rotation is scaled linearly, which changes arch deepseek2's attention scale");
  refuse(yarn && (s.beta_fast != 32 || s.beta_slow != 1),
         "YaRN's ramp is fixed there: beta_fast = 32 and beta_slow = 1");
  refuse(yarn && s.factor <= 1, "YaRN's factor must be above 1 there");
  refuse(yarn && s.mscale_all_dim != 0 && !deepseek, "YaRN's mscale_all_dim is known to arch deepseek2 only");
}

/// YaRN multiplies the rotated part of queries and keys by R, and all of q . k by S. llama.cpp computes R as
/// (0.1 ln(factor) + 1) attn_factor. Its architecture deepseek2 also multiplies q . k by R^2 L^2 / sqrt(k),
/// where L = 1 + ln(factor) yarn_log_multiplier; without that key L is 1, and R is as for the others.
void add_yarn_keys(GgufWriter& w, const ModelConfig& m, const std::string& arch) {
  const double growth = m.rope_scaling.yarn_magnitude(1), r = m.rotary_of(0).magnitude;
  double attn_factor = r / growth, multiplier = 0;
  if (arch == "deepseek2") {
    const double s = m.attention_scale_of() * std::sqrt(static_cast<double>(m.key_width()));
    multiplier = (std::sqrt(s) / r - 1) / std::log(m.rope_scaling.factor);
    if (std::abs(multiplier) < 1e-9)
      multiplier = 0;
    else
      attn_factor = r;
  }
  w.add(arch + ".rope.scaling.original_context_length",
        static_cast<uint32_t>(m.rope_scaling.original_context));
  if (std::abs(attn_factor - 1) > 1e-9)
    w.add(arch + ".rope.scaling.attn_factor", static_cast<float>(attn_factor));
  if (multiplier != 0) w.add(arch + ".rope.scaling.yarn_log_multiplier", static_cast<float>(multiplier));
}

uint32_t u32(int64_t n) {
  return static_cast<uint32_t>(n);
}

void add_attention_keys(GgufWriter& w, const ModelConfig& m, const std::string& arch) {
  const auto key = [&](const char* name) { return arch + "." + name; };
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
  w.add(key("rope.dimension_count"), u32(m.is_mla() ? m.mla.rope_width : m.key_width()));
  w.add(key("rope.freq_base"), static_cast<float>(m.rope_theta));
  const RopeScalingKind kind = m.rope_scaling.kind;
  if (kind != RopeScalingKind::linear && kind != RopeScalingKind::yarn) return;
  w.add(key("rope.scaling.type"), std::string(name_of(kind)));
  w.add(key("rope.scaling.factor"), static_cast<float>(m.rope_scaling.factor));
  if (kind == RopeScalingKind::yarn) add_yarn_keys(w, m, arch);
}

/// Adds the keys of sigmoid scores, selection biases, shared experts and leading dense layers. Architecture
/// deepseek2 needs them for dense models too.
void add_sigmoid_expert_keys(GgufWriter& w, const ModelConfig& m, const std::string& arch) {
  constexpr uint32_t kSigmoid = 2;
  const auto key = [&](const char* name) { return arch + "." + name; };
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

std::string gguf_architecture(const ModelConfig& m) {
  const HuggingfaceLayout layout = huggingface_layout(m);
  huggingface_config(m, layout, {});  // refuses what the family itself cannot express
  const std::string& f = layout.family;
  const auto found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                  [&](const auto& a) { return f == a.first; });
  if (found == std::end(kArchitectures)) {
    std::string known;
    for (const auto& [family, arch] : kArchitectures)
      known += (known.empty() ? "" : ", ") + std::string(family);
    throw Error(f == "zaya" ? "llama.cpp has no architecture for the family zaya"
                            : fmt::format("GGUF export knows no model of family {}", f),
                "families: " + known);
  }
  const std::string arch = found->second;
  const Refuse refuse = [&](bool bad, const char* what) {
    if (bad)
      throw Error(fmt::format("llama.cpp would compute this {} model differently: {}", f, what),
                  "export with --format=hf, or change the model");
  };
  refuse(m.window > 0, "it has a sliding window");
  refuse(m.moe.experts > 0 && !m.moe.normalize && m.moe.score != RouteScore::sigmoid,
         "its expert weights are not divided by their sum");
  refuse(m.attention_bias && f != "gpt2" && f != "llama", "it has biases in attention");
  refuse(m.mlp_bias && f != "gpt2", "it has biases in its MLP");
  refuse(arch == "dots1" && m.kv_heads != m.heads,
         "there every query head has its own key head (kv_heads = heads)");
  if (m.is_mla()) {
    refuse(m.mla.norm_eps != m.norm_eps,
           "there all norms have one epsilon; here mla.norm_eps differs from norm_eps");
    refuse(
        m.mla.q_rank > 0 && (m.layers == 26 || m.layers == 27 || (m.layers == 48 && m.vocab == 128256)),
        "it takes this number of layers for a published model whose queries have no latent (mla.q_rank = 0)");
  }
  refuse_rotations(m, arch, refuse);
  return arch;
}

void add_gguf_model_keys(GgufWriter& w, const ModelConfig& m, const std::string& arch) {
  const auto key = [&](const char* name) { return arch + "." + name; };
  const bool gpt2 = arch == "gpt2", mixtral = arch == "llama" && m.moe.experts > 0;
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
  if (m.moe.experts > 0) {
    w.add(key("expert_count"), u32(m.moe.experts));
    w.add(key("expert_used_count"), u32(m.moe.top_k));
  }
  if (arch == "qwen3moe") w.add(key("expert_feed_forward_length"), u32(m.moe.hidden));
  if (arch == "dots1" || arch == "deepseek2") add_sigmoid_expert_keys(w, m, arch);
}

std::vector<GgufTensor> gguf_tensors(const Decoder& decoder, const std::string& arch) {
  Items items(decoder);
  if (arch == "gpt2")
    gpt2_items(decoder.config(), items);
  else
    llama_items(decoder.config(), items, arch);
  return items.take();
}

}  // namespace ingot
