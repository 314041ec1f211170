// See huggingface.h: writing config.json, and what makes two models the same.
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/huggingface.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* architecture_of(const std::string& family) {
  if (family == "deepseek_v3") return "DeepseekV3ForCausalLM";
  if (family == "dots1") return "Dots1ForCausalLM";
  if (family == "gpt2") return "GPT2LMHeadModel";
  if (family == "gemma") return "GemmaForCausalLM";
  if (family == "gemma2") return "Gemma2ForCausalLM";
  if (family == "gemma3_text") return "Gemma3ForCausalLM";
  if (family == "granite") return "GraniteForCausalLM";
  if (family == "olmo2") return "Olmo2ForCausalLM";
  if (family == "olmo3") return "Olmo3ForCausalLM";
  if (family == "phi3") return "Phi3ForCausalLM";
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "mistral") return "MistralForCausalLM";
  if (family == "mixtral") return "MixtralForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  if (family == "qwen3_moe") return "Qwen3MoeForCausalLM";
  if (family == "smollm3") return "SmolLM3ForCausalLM";
  return family == "zaya" ? "ZayaForCausalLM" : "LlamaForCausalLM";
}

OrderedJson scaling_of(const RopeScalingConfig& s) {
  OrderedJson j{{"rope_type", name_of(s.kind)}, {"factor", s.factor}};
  if (s.kind == RopeScalingKind::linear) return j;
  j["original_max_position_embeddings"] = s.original_context;
  if (s.kind == RopeScalingKind::llama3) {
    j["low_freq_factor"] = s.low_freq_factor;
    j["high_freq_factor"] = s.high_freq_factor;
    return j;
  }
  j["beta_slow"] = s.beta_slow;
  j["beta_fast"] = s.beta_fast;
  if (s.attention_factor != 0) j["attention_factor"] = s.attention_factor;
  if (s.mscale != 0) j["mscale"] = s.mscale;
  if (s.mscale_all_dim != 0) j["mscale_all_dim"] = s.mscale_all_dim;
  return j;
}

OrderedJson rope_of(const ModelConfig& m) {
  OrderedJson rope = m.rope_scaling.kind == RopeScalingKind::none ? OrderedJson{{"rope_type", "default"}}
                                                                  : scaling_of(m.rope_scaling);
  rope["rope_theta"] = m.rope_theta;
  return rope;
}

/// The older dialect beside the newer one: readers of either find what they know. rope_scaling wins in the
/// newer one, so it has all that rope_parameters has.
void write_rope(OrderedJson& j, const ModelConfig& m) {
  j["rope_theta"] = m.rope_theta;
  j["rope_parameters"] = rope_of(m);
  j["rope_scaling"] =
      m.rope_scaling.kind == RopeScalingKind::none ? OrderedJson(nullptr) : scaling_of(m.rope_scaling);
  j.erase("original_max_position_embeddings");  // it would win over the table's
}

/// Rotations of families that have one for layers that slide: the newer dialect alone, which says all.
void write_two_ropes(OrderedJson& j, const ModelConfig& m) {
  OrderedJson full = rope_of(m), sliding{{"rope_type", "default"}};
  sliding["rope_theta"] = m.window_rope_theta != 0 ? m.window_rope_theta : m.rope_theta;
  j["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
  for (const char* older :
       {"rope_theta", "rope_scaling", "rope_local_base_freq", "original_max_position_embeddings"})
    j.erase(older);
}

/// Windows in the words of families whose layers have types.
void write_layer_types(OrderedJson& j, const ModelConfig& m) {
  OrderedJson types = OrderedJson::array();
  for (int64_t l = 0; l < m.layers; ++l)
    types.push_back(m.window_of(l) > 0 ? "sliding_attention" : "full_attention");
  j["use_sliding_window"] = m.window > 0;
  j["sliding_window"] = m.window > 0 ? OrderedJson(m.window) : OrderedJson(nullptr);
  j["layer_types"] = types;
}

/// For families that want the width of a window also where no layer slides.
void write_some_window(OrderedJson& j, const ModelConfig& m) {
  j.erase("use_sliding_window");
  if (m.window == 0) j["sliding_window"] = m.context;
}

void write_common(OrderedJson& j, const ModelConfig& m) {
  j["vocab_size"] = m.vocab;
  j["hidden_size"] = m.width;
  j["num_hidden_layers"] = m.layers;
  j["num_attention_heads"] = m.heads;
  j["num_key_value_heads"] = m.kv_heads;
  j["head_dim"] = m.key_width();
  j["hidden_act"] = "silu";
  j["max_position_embeddings"] = m.context;
  j["rms_norm_eps"] = m.norm_eps;
  if (!j.contains("initializer_range")) j["initializer_range"] = m.init_std;
  j["tie_word_embeddings"] = m.tied;
  j["attention_bias"] = m.attention_bias;
}

void write_sigmoid_experts(OrderedJson& j, const ModelConfig& m) {
  j["n_routed_experts"] = m.moe.experts;
  j["n_shared_experts"] = m.moe.shared_hidden / m.moe.hidden;
  j["num_experts_per_tok"] = m.moe.top_k;
  j["moe_intermediate_size"] = m.moe.hidden;
  j["first_k_dense_replace"] = m.moe.first_dense;
  j["norm_topk_prob"] = m.moe.normalize;
  j["routed_scaling_factor"] = m.moe.scale;
  j["n_group"] = m.moe.groups;
  j["topk_group"] = m.moe.groups_kept;
}

/// granite's multipliers; phi3's share of a head that rotates.
void write_factors(OrderedJson& j, const ModelConfig& m, const std::string& family) {
  if (family == "phi3") {
    j["partial_rotary_factor"] = j["rope_parameters"]["partial_rotary_factor"] = m.rotary_fraction;
    j["original_max_position_embeddings"] = m.context;
  }
  if (family != "granite") return;
  j["embedding_multiplier"] = m.embedding_scale;
  j["logits_scaling"] = m.logit_divisor;
  j["residual_multiplier"] = m.sublayer_scale;
  j["attention_multiplier"] = m.attention_scale_of();
}

OrderedJson cap_or_null(double cap) {
  return cap > 0 ? OrderedJson(cap) : OrderedJson(nullptr);
}

void write_gemma(OrderedJson& j, const ModelConfig& m, const std::string& family) {
  const char* const activation = "gelu_pytorch_tanh";
  if (family == "gemma") {
    j["hidden_act"] = activation;
    return;
  }
  j.erase("hidden_act");
  j["hidden_activation"] = activation;
  const double scale = m.attention_scale_of();
  j["query_pre_attn_scalar"] = std::llround(1 / (scale * scale));
  write_layer_types(j, m);
  write_some_window(j, m);
  j["final_logit_softcapping"] = cap_or_null(m.head_cap.kind == HeadCapKind::tanh ? m.head_cap.cap : 0);
  j["attn_logit_softcapping"] = cap_or_null(family == "gemma2" ? m.logit_softcap : 0);
  if (family == "gemma3_text") write_two_ropes(j, m);
  for (const char* pattern : {"sliding_window_pattern", "_sliding_window_pattern"}) j.erase(pattern);
}

void write_llama(OrderedJson& j, const ModelConfig& m, const std::string& family) {
  write_common(j, m);
  write_rope(j, m);
  j["intermediate_size"] = family == "mixtral" ? m.moe.hidden : m.mlp_hidden();
  if (family == "llama" || family == "smollm3" || family == "granite") j["mlp_bias"] = m.mlp_bias;
  if (family == "mistral" || family == "mixtral" || family == "phi3")
    j["sliding_window"] = m.window > 0 ? OrderedJson(m.window) : OrderedJson(nullptr);
  if (family == "smollm3") {
    OrderedJson rotates = OrderedJson::array();
    for (int64_t l = 0; l < m.layers; ++l) rotates.push_back(m.rotary_of(l).dims > 0 ? 1 : 0);
    j["no_rope_layers"] = rotates;
  }
  if (family == "dots1" || family == "smollm3" || family == "olmo3" || family.starts_with("qwen"))
    write_layer_types(j, m);
  if (family == "olmo3") {
    write_two_ropes(j, m);
    write_some_window(j, m);
  }
  if (family == "qwen2") j.erase("attention_bias");
  if (family == "dots1" || family.starts_with("qwen")) j["max_window_layers"] = m.layers;
  write_factors(j, m, family);
  if (family.starts_with("gemma")) write_gemma(j, m, family);
  if (m.moe.experts == 0) return;
  if (family == "dots1" || family == "deepseek_v3") return write_sigmoid_experts(j, m);
  j[family == "mixtral" ? "num_local_experts" : "num_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.top_k;
  if (!j.contains("router_aux_loss_coef")) j["router_aux_loss_coef"] = m.moe.aux_coefficient;
  if (family == "mixtral") return;
  j["moe_intermediate_size"] = m.moe.hidden;
  j["norm_topk_prob"] = m.moe.normalize;
  j["decoder_sparse_step"] = 1;
  j["mlp_only_layers"] = OrderedJson::array();
}

void write_deepseek_v3(OrderedJson& j, const ModelConfig& m) {
  write_llama(j, m, "deepseek_v3");
  j.erase("head_dim");  // the library means the rotated channels by it
  j["q_lora_rank"] = m.mla.q_rank > 0 ? OrderedJson(m.mla.q_rank) : OrderedJson(nullptr);
  j["kv_lora_rank"] = m.mla.kv_rank;
  j["qk_nope_head_dim"] = m.mla.nope_width;
  j["qk_rope_head_dim"] = m.mla.rope_width;
  j["v_head_dim"] = m.mla.value_width;
  j["rope_interleave"] = m.interleaved_rope;
  if (m.moe.experts == 0) j["first_k_dense_replace"] = m.layers;
  j["num_nextn_predict_layers"] = 0;
}

void write_gpt2(OrderedJson& j, const ModelConfig& m) {
  j["vocab_size"] = m.vocab;
  j["n_positions"] = m.context;
  j["n_embd"] = m.width;
  j["n_layer"] = m.layers;
  j["n_head"] = m.heads;
  j["n_inner"] = m.mlp_hidden() == 4 * m.width ? OrderedJson(nullptr) : OrderedJson(m.mlp_hidden());
  j["activation_function"] = "gelu_new";
  j["layer_norm_epsilon"] = m.norm_eps;
  j["tie_word_embeddings"] = true;
  if (!j.contains("initializer_range")) j["initializer_range"] = m.init_std;
}

void write_zaya(OrderedJson& j, const ModelConfig& m, bool sublayers) {
  const bool counts_layers =
      j.contains("num_hidden_layers") && j["num_hidden_layers"] == m.layers;  // of either kind
  write_common(j, m);
  j["num_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = 1;
  for (const char* name : {"cca_time0", "cca_time1"}) j[name] = 2;
  j["lm_head_bias"] = false;
  if (sublayers) {
    if (!counts_layers) j["num_hidden_layers"] = 2 * m.layers;
    j["norm_epsilon"] = m.norm_eps;
    j["num_query_groups"] = m.kv_heads;
    j["ffn_hidden_size"] = 2 * m.moe.hidden;
    j["zaya_mlp_expansion"] = m.moe.router_width;
    j["moe_router_topk"] = 1;
    j["rope_theta"] = m.rope_theta;
    j["partial_rotary_factor"] = m.rotary_fraction;
    for (const char* name : {"cca", "zaya_use_mod", "zaya_use_eda", "scale_residual_merge",
                             "gated_linear_unit", "residual_in_fp32"})
      j[name] = true;
    j["activation_func"] = "swiglu";
    j["normalization"] = "RMSNorm";
    for (const char* name : {"clamp_temp", "add_bias_linear"}) j[name] = false;
    for (const char* newer : {"rope_parameters", "cca_num_q_heads", "layer_types"}) j.erase(newer);
    return;
  }
  j["moe_intermediate_size"] = m.moe.hidden;
  j["router_hidden_size"] = m.moe.router_width;
  j["layer_types"] = OrderedJson(std::vector<std::string>(static_cast<size_t>(m.layers), "hybrid"));
  OrderedJson rope = rope_of(m);
  rope["partial_rotary_factor"] = m.rotary_fraction;
  j["rope_parameters"] = {{"hybrid", rope}};
  for (const char* older : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) j.erase(older);
}

void write_token(OrderedJson& j, const char* name, int64_t id) {
  if (!j.contains(name)) j[name] = id >= 0 ? OrderedJson(id) : OrderedJson(nullptr);
}

std::string layer_letters(int64_t layers, const auto& is, char yes, char no) {
  std::string letters;
  for (int64_t l = 0; l < layers; ++l) letters += is(l) ? yes : no;
  return letters;
}

/// One way to write what several configurations say alike; what does not change the function goes to its
/// default.
ModelConfig canonical(ModelConfig m) {
  const ModelConfig plain;
  const auto rotates = layer_letters(
      m.layers, [&](int64_t l) { return m.rotary_of(l).dims > 0; }, 'R', 'N');
  std::string slides;
  for (int64_t l = 0; l < m.layers; ++l)
    slides += m.window_of(l) == 0 ? 'F' : m.window_of(l) == m.window ? 'S' : 'H';
  m.hidden = m.moe.experts > 0 && m.moe.first_dense == 0 ? 0 : m.mlp_hidden();
  m.head_width = m.key_width();
  if (m.position != PositionKind::rope) m.attention_scale = m.attention_scale_of();
  if (m.attention_scale == 1 / std::sqrt(static_cast<double>(m.key_width()))) m.attention_scale = 0;
  m.preset.clear();
  m.init_std = plain.init_std;
  m.scale_output_init = plain.scale_output_init;
  m.init.clear();
  m.mup_base_width = plain.mup_base_width;  // initial values and learning rates
  m.mtp = plain.mtp;                        // acts in training only
  if (m.position == PositionKind::rope)
    m.rope_pattern = rotates;
  else
    m.rope_theta = plain.rope_theta, m.rotary_fraction = plain.rotary_fraction, m.rope_scaling = {};
  m.window_pattern = m.window > 0 ? slides : "";
  if (m.window == 0 || m.window_rope_theta == m.rope_theta) m.window_rope_theta = 0;
  if (m.window == 0 || m.rope_scaling.kind == RopeScalingKind::none) m.window_rope_scaling = true;
  double magnitude = 1;
  for (int64_t l = 0; l < m.layers; ++l)
    if (m.rotary_of(l).dims > 0) magnitude = m.rotary_of(l).magnitude;
  RopeScalingConfig& s = m.rope_scaling;
  const RopeScalingConfig given = s;
  s = {.kind = given.kind};
  if (s.kind != RopeScalingKind::none) s.factor = given.factor;
  if (s.kind == RopeScalingKind::llama3 || s.kind == RopeScalingKind::yarn)
    s.original_context = given.original_context;
  if (s.kind == RopeScalingKind::llama3)
    s.low_freq_factor = given.low_freq_factor, s.high_freq_factor = given.high_freq_factor;
  if (s.kind == RopeScalingKind::yarn) {
    s.beta_slow = given.beta_slow;
    s.beta_fast = given.beta_fast;
    s.attention_factor = magnitude;
    s.mscale_all_dim = given.mscale_all_dim;  // in the attention scale
  }
  if (m.moe.experts == 0) {
    m.moe = {};
    return m;
  }
  if (m.moe.router != RouterKind::zaya) m.moe.router_width = plain.moe.router_width;
  if (m.moe.balance != BalanceRule::none)
    m.moe.balance = BalanceRule::adamw;  // either way there are selection biases
  if (m.moe.score ==
      RouteScore::softmax_last) {  // the softmax of the chosen is the softmax of all, divided by its sum
    m.moe.score = RouteScore::softmax_first;
    m.moe.normalize = true;
  }
  m.moe.router_init = plain.moe.router_init;
  m.moe.balance_rate = plain.moe.balance_rate;
  m.moe.aux_scope = plain.moe.aux_scope;
  m.moe.router_precision = plain.moe.router_precision;
  m.moe.allow_future_tokens = plain.moe.allow_future_tokens;
  m.moe.aux_coefficient = m.moe.sequence_aux_coefficient = m.moe.z_coefficient = 0;
  if (m.moe.groups_kept == m.moe.groups) m.moe.groups = m.moe.groups_kept = 1;
  if (m.moe.selection == AssignRule::expert_choice) return m;
  m.moe.selection = AssignRule::top_k;  // sinkhorn and capacities act in training only
  m.moe.capacity_factor = 0;
  m.moe.drop = plain.moe.drop;
  m.moe.pad_to_capacity = false;
  return m;
}

}  // namespace

std::vector<std::string> architecture_differences(const ModelConfig& left, const ModelConfig& right) {
  std::vector<std::string> lines;
  for (const ConfigDifference& d : diff_config(to_node(canonical(left)), to_node(canonical(right))))
    lines.push_back(fmt::format("{}: {}, {}", d.path, d.left, d.right));
  return lines;
}

namespace {

ModelConfig read_back(const std::string& text, const HuggingfaceLayout& layout, const ModelConfig& m) {
  try {
    return model_from_huggingface(text, "config.json", layout.zaya_sublayers ? 2 * m.layers : 0);
  } catch (const Error& e) {
    throw Error(fmt::format("the family {} cannot express this model: {}", layout.family, e.what()),
                "train with options that the family knows to export the model");
  }
}

}  // namespace

std::string huggingface_config(const ModelConfig& m, const HuggingfaceLayout& layout,
                               const HuggingfaceNotes& notes) {
  OrderedJson j =
      notes.original.empty() ? OrderedJson::object() : OrderedJson::parse(notes.original, nullptr, false);
  if (!j.is_object() || j.value("model_type", OrderedJson()) != OrderedJson(layout.family))
    j = OrderedJson::object();
  j["architectures"] = {architecture_of(layout.family)};
  j["model_type"] = layout.family;
  for (const char* dialect : {"dtype", "torch_dtype"})
    j[dialect] = notes.dtype == DType::bf16 ? "bfloat16" : notes.dtype == DType::f64 ? "float64" : "float32";
  if (layout.family == "gpt2")
    write_gpt2(j, m);
  else if (layout.family == "zaya")
    write_zaya(j, m, layout.zaya_sublayers);
  else if (layout.family == "deepseek_v3")
    write_deepseek_v3(j, m);
  else
    write_llama(j, m, layout.family);
  write_token(j, "bos_token_id", notes.bos);
  write_token(j, "eos_token_id", notes.eos);
  write_token(j, "pad_token_id", notes.pad);
  if (!j.contains("use_cache")) j["use_cache"] = true;
  const std::string text = j.dump(2) + "\n";
  const ModelConfig back = read_back(text, layout, m);
  std::string message;
  for (const std::string& line : architecture_differences(m, back)) message += "\n  " + line;
  if (!message.empty())
    throw Error(
        fmt::format(
            "the family {} cannot express this model (field: the model's value, what the family has):{}",
            layout.family, message),
        "train with options that the family knows, or export nothing: other programs would compute something "
        "else");
  return text;
}

}  // namespace ingot
