// See huggingface.h: reading config.json. What each family's fields are and default to is in
// huggingface_families.cpp.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/json_depth.h"
#include "models/huggingface.h"
#include "models/huggingface_fields.h"
#include "models/presets.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kMaxLayers = 4096, kMaxHeads = 1 << 16, kMaxExperts = 1 << 12, kMaxVocab = 1 << 28;
constexpr int64_t kMaxExpertsOfAllLayers = 1 << 18;  // each has tensors of its own
constexpr double kTiny = 1e-30, kHuge = 1e18;

/// The scaling of the rotation. The original context stands beside the table, in it, or is the model's.
void read_rope_scaling(const Fields& f, const Fields& rope, ModelConfig& m) {
  m.rope_scaling = {};
  RopeScalingConfig& s = m.rope_scaling;
  const char* const name = rope.is_null("rope_type") ? "type" : "rope_type";
  const std::string kind = rope.text(name);
  if (kind == "default") return;
  if (kind == "linear")
    s.kind = RopeScalingKind::linear;
  else if (kind == "llama3")
    s.kind = RopeScalingKind::llama3;
  else if (kind == "yarn")
    s.kind = RopeScalingKind::yarn;
  else
    rope.refuse(name, "rotations are default, linear, llama3 or yarn");
  const bool yarn = s.kind == RopeScalingKind::yarn, latent = m.is_mla();
  const double squared = rope.is_null("mscale_all_dim") ? 0 : rope.number("mscale_all_dim", 0, kHuge);
  rope.require(yarn || !latent || squared == 0, "mscale_all_dim",
               "latent attention multiplies by it here only where the rotation is yarn's");
  if (s.kind != RopeScalingKind::linear)
    s.original_context = f.integer_or("original_max_position_embeddings",
                                      rope.integer_or("original_max_position_embeddings", m.context));
  s.factor = yarn && rope.is_null("factor")
                 ? static_cast<double>(m.context) / static_cast<double>(s.original_context)
                 : rope.number("factor", 1, kHuge);
  if (s.kind == RopeScalingKind::llama3) {
    s.low_freq_factor = rope.number("low_freq_factor", kTiny, kHuge);
    s.high_freq_factor = rope.number("high_freq_factor", kTiny, kHuge);
  }
  if (!yarn) return;
  const auto positive_or = [&](const char* field, double otherwise) {
    return rope.is_null(field) ? otherwise : rope.number(field, kTiny, kHuge);
  };
  s.beta_slow = positive_or("beta_slow", 1);
  s.beta_fast = positive_or("beta_fast", 32);
  s.attention_factor = positive_or("attention_factor", 0);
  s.mscale = rope.is_null("mscale") ? 0 : rope.number("mscale", 0, kHuge);
  s.mscale_all_dim = squared;
  if (latent) return;
  // Only DeepSeek's attention has mscale_all_dim in its scale; elsewhere the two make up one factor.
  if (s.attention_factor == 0 && s.mscale != 0 && squared != 0)
    s.attention_factor = s.yarn_magnitude(s.mscale) / s.yarn_magnitude(squared);
  s.mscale = s.mscale_all_dim = 0;
}

/// Both dialects: rope_scaling (older), which wins where it says something, or rope_parameters. The base
/// stands in the table, or beside it.
void read_rope(const Fields& f, ModelConfig& m) {
  const bool older = f.value("rope_scaling").is_object() && !f.value("rope_scaling").empty();
  const char* const name = older ? "rope_scaling" : "rope_parameters";
  f.require(m.is_mla() || (m.key_width() > 0 && m.key_width() % 2 == 0), "head_dim",
            fmt::format("channels turn in pairs, a head has {}", m.key_width()));
  m.rope_theta = f.number("rope_theta", 1, kHuge);
  if (!older)
    f.require(f.is_null("rope_scaling") || f.value("rope_scaling").is_object(), "rope_scaling",
              "expected a table");
  if (f.is_null(name)) return;
  const Fields rope = f.table(name, huggingface_rope_fields());
  rope.require(rope.is_null("partial_rotary_factor") || rope.number("partial_rotary_factor", 0, 1) == 1,
               "partial_rotary_factor", "in this family the whole head rotates");
  if (!rope.is_null("rope_theta")) m.rope_theta = rope.number("rope_theta", 1, kHuge);
  read_rope_scaling(f, rope, m);
}

/// The pattern of a list with one entry per layer; empty where all layers have the letter `all`.
std::string pattern_of(const Fields& f, const char* name, const ModelConfig& m, char all, bool exact,
                       const std::function<char(const Json&)>& letter) {
  const Json& list = f.value(name);
  const auto size = static_cast<int64_t>(list.size());
  f.require(list.is_array() && (exact ? size == m.layers : size >= m.layers), name,
            "expected one entry per layer");
  std::string pattern;
  for (size_t l = 0; l < static_cast<size_t>(m.layers); ++l) pattern += letter(list[l]);
  return pattern.find_first_not_of(all) == std::string::npos ? "" : pattern;
}

/// S slides, F sees all.
std::string pattern_of_types(const Fields& f, const ModelConfig& m) {
  return pattern_of(f, "layer_types", m, 'S', true, [&](const Json& type) {
    f.require(type == "sliding_attention" || type == "full_attention", "layer_types",
              "expected sliding_attention or full_attention");
    return type == "sliding_attention" ? 'S' : 'F';
  });
}

/// Windows of families whose layers are all alike: these heed no list of types, so one must say the same.
void read_one_window(const Fields& f, ModelConfig& m, bool use = true) {
  m.window = use ? f.integer_or("sliding_window", 0) : 0;
  if (f.is_null("layer_types")) return;
  const std::string pattern = pattern_of_types(f, m);
  f.require(pattern == (m.window > 0 ? "" : std::string(static_cast<size_t>(m.layers), 'F')), "layer_types",
            m.window > 0 ? "in this family all layers slide" : "no layer of this model slides");
}

/// Windows of families whose layers have types: the list, or what `slides` says.
void read_windows(const Fields& f, ModelConfig& m, bool use, const std::function<bool(int64_t)>& slides) {
  const int64_t window = use ? f.integer_or("sliding_window", 0) : 0;
  std::string pattern;
  if (f.is_null("layer_types"))
    for (int64_t l = 0; l < m.layers; ++l) pattern += window > 0 && slides(l) ? 'S' : 'F';
  else
    pattern = pattern_of_types(f, m);
  const bool any = pattern.empty() || pattern.find('S') != std::string::npos;
  f.require(!any || window > 0, "layer_types",
            "layers slide, but the file gives no window (sliding_window, use_sliding_window)");
  if (!any) return;
  m.window = window;
  m.window_pattern = pattern.find('F') == std::string::npos ? "" : pattern;
}

/// The fields of Llama that its relatives share.
ModelConfig common(const Fields& f) {
  ModelConfig m;
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.width = f.integer("hidden_size");
  m.layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  m.heads = f.integer("num_attention_heads", 1, kMaxHeads);
  m.kv_heads = f.integer_or("num_key_value_heads", m.heads, kMaxHeads);
  m.head_width = f.integer_or("head_dim", 0, int64_t{1} << 16);
  m.context = f.integer("max_position_embeddings", 1, int64_t{1} << 40);
  m.norm_eps = f.number("rms_norm_eps", kTiny, 1);
  m.tied = f.flag("tie_word_embeddings");
  m.attention_bias = f.flag("attention_bias");
  return m;
}

ModelConfig from_gpt2(const Fields& f) {
  ModelConfig m = model_preset("gpt2");
  m.preset.clear();
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.width = f.integer("n_embd");
  m.layers = f.integer("n_layer", 1, kMaxLayers);
  m.heads = m.kv_heads = f.integer("n_head", 1, kMaxHeads);
  m.context = f.integer("n_positions");
  m.hidden = f.integer_or("n_inner", 0);
  m.norm_eps = f.number("layer_norm_epsilon", kTiny, 1);
  return m;
}

/// llama, mistral: dense, all layers alike.
ModelConfig from_llama(const Fields& f) {
  ModelConfig m = common(f);
  m.hidden = f.integer("intermediate_size");
  read_rope(f, m);
  read_one_window(f, m);
  return m;
}

ModelConfig from_qwen3(const Fields& f) {
  ModelConfig m = common(f);
  m.qk_norm = true;
  m.hidden = f.integer("intermediate_size");
  read_rope(f, m);
  const int64_t full = f.integer("max_window_layers", 0);
  read_windows(f, m, f.flag("use_sliding_window"), [&](int64_t l) { return l >= full; });
  return m;
}

void require_several_experts(const Fields& f, const ModelConfig& m) {
  f.require(!m.moe.normalize || m.moe.top_k > 1, "num_experts_per_tok",
            "one weight divided by itself is always 1, which is not implemented");
}

ModelConfig from_qwen3_moe(const Fields& f) {
  ModelConfig m = common(f);
  m.qk_norm = true;
  m.hidden = f.integer("intermediate_size");
  read_rope(f, m);
  read_one_window(f, m, f.flag("use_sliding_window"));
  m.moe.experts = f.integer("num_experts", 1, kMaxExperts);
  m.moe.top_k = f.integer("num_experts_per_tok", 1, kMaxExperts);
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.normalize = f.flag("norm_topk_prob");
  require_several_experts(f, m);
  m.moe.aux_coefficient = f.number("router_aux_loss_coef", 0, kHuge);
  return m;
}

/// SmolLM3: every n-th layer does not rotate; where windows are on, those slide.
ModelConfig from_smollm3(const Fields& f) {
  ModelConfig m = common(f);
  m.hidden = f.integer("intermediate_size");
  read_rope(f, m);
  const int64_t interval = f.integer("no_rope_layer_interval");
  if (!f.is_null("no_rope_layers"))
    m.rope_pattern = pattern_of(f, "no_rope_layers", m, 'R', false, [&](const Json& rotates) {
      f.require(rotates == 0 || rotates == 1, "no_rope_layers", "expected zeros and ones");
      return rotates == 1 ? 'R' : 'N';
    });
  else if (interval <= m.layers)
    m.rope_pattern = std::string(static_cast<size_t>(interval) - 1, 'R') + "N";
  read_windows(f, m, f.flag("use_sliding_window"), [&](int64_t l) { return m.rotary_of(l).dims == 0; });
  return m;
}

/// Mixtral: the chosen experts' weights are divided by their sum; `intermediate_size` is an expert's.
ModelConfig from_mixtral(const Fields& f) {
  ModelConfig m = common(f);
  read_rope(f, m);
  read_one_window(f, m);
  m.moe.experts = f.integer("num_local_experts", 1, kMaxExperts);
  m.moe.top_k = f.integer("num_experts_per_tok", 1, kMaxExperts);
  m.moe.hidden = f.integer("intermediate_size");
  m.moe.normalize = true;
  require_several_experts(f, m);
  m.moe.aux_coefficient = f.number("router_aux_loss_coef", 0, kHuge);
  return m;
}

/// Sigmoid scores, selection biases, groups and shared experts, as DeepSeek-V3 and dots.llm1 write them.
void read_sigmoid_experts(const Fields& f, ModelConfig& m) {
  m.moe.experts = f.integer("n_routed_experts", 1, kMaxExperts);
  m.moe.top_k = f.integer("num_experts_per_tok", 1, kMaxExperts);
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.shared_hidden = f.integer("n_shared_experts", 1, kMaxExperts) * m.moe.hidden;
  m.moe.score = RouteScore::sigmoid;
  m.moe.balance = BalanceRule::sign;
  m.moe.normalize = f.flag("norm_topk_prob");
  m.moe.scale = f.number("routed_scaling_factor", kTiny, kHuge);
  const int64_t groups = f.integer("n_group"), kept = f.integer("topk_group");
  f.require(m.moe.experts % groups == 0 && m.moe.experts / groups >= 2, "n_group",
            fmt::format("the {} experts make no equal groups of two or more", m.moe.experts));
  f.require(kept <= groups, "topk_group", fmt::format("there are {} groups", groups));
  if (kept == groups) return;  // no limit
  f.require(
      m.moe.top_k == 2 * kept, "topk_group",
      "the family rates a group by its two best experts; here that is num_experts_per_tok / topk_group");
  m.moe.groups = groups;
  m.moe.groups_kept = kept;
}

/// dots.llm1: Qwen3's attention, DeepSeek-V3's experts.
ModelConfig from_dots1(const Fields& f) {
  ModelConfig m = common(f);
  m.qk_norm = true;
  m.hidden = f.integer("intermediate_size");
  read_rope(f, m);
  const int64_t full = f.integer("max_window_layers", 0);
  read_windows(f, m, true, [&](int64_t l) { return l >= full; });
  m.moe.first_dense = f.integer("first_k_dense_replace", 0, m.layers);
  read_sigmoid_experts(f, m);
  return m;
}

/// DeepSeek-V3: latent attention; dense layers, then sigmoid experts. With as many dense layers as layers it
/// is dense.
ModelConfig from_deepseek_v3(const Fields& f) {
  ModelConfig m = common(f);
  m.hidden = f.integer("intermediate_size");
  m.attention = AttentionKind::mla;
  m.mla.q_rank = f.integer_or("q_lora_rank", 0);
  m.mla.kv_rank = f.integer("kv_lora_rank");
  m.mla.nope_width = f.integer("qk_nope_head_dim");
  m.mla.rope_width = f.integer("qk_rope_head_dim");
  m.mla.value_width = f.integer("v_head_dim");
  m.interleaved_rope = f.flag("rope_interleave");
  f.require(m.kv_heads == m.heads, "num_key_value_heads", "latent attention makes keys for every head");
  f.require(m.head_width == 0 || m.head_width == m.mla.rope_width, "head_dim",
            "the family means the rotated channels by it (qk_rope_head_dim)");
  f.require(f.integer_or("qk_head_dim", m.key_width()) == m.key_width(), "qk_head_dim",
            "expected qk_nope_head_dim + qk_rope_head_dim");
  m.head_width = 0;
  read_rope(f, m);
  read_one_window(f, m);
  const int64_t dense = f.integer("first_k_dense_replace", 0);
  if (dense >= m.layers) return m;
  read_sigmoid_experts(f, m);
  m.moe.first_dense = dense;
  return m;
}

/// A number, or a list with one per sublayer of which those that are not 0 agree; null: `otherwise`.
int64_t agreed(const Fields& f, const char* name, int64_t otherwise) {
  const Json& v = f.value(name);
  if (!v.is_array()) return f.integer_or(name, otherwise);
  int64_t value = 0;
  for (const Json& item : v) {
    const bool fits = item.is_number_unsigned() && item.get<uint64_t>() < uint64_t{1} << 24;
    f.require(fits, name, "expected integers");
    const auto n = item.get<int64_t>();
    f.require(n == 0 || value == 0 || n == value, name, "sublayers differ");
    if (n != 0) value = n;
  }
  f.require(value > 0, name, "expected a number above 0");
  return value;
}

/// Fields of the older layout that the newer one has under other names. Without sublayers transformers reads
/// those alone, so these must say the same.
void read_zaya_sublayers(const Fields& f, ModelConfig& m, int64_t sublayers) {
  const ModelConfig newer = m;
  if (!f.is_null("norm_epsilon")) m.norm_eps = f.number("norm_epsilon", kTiny, 1);
  m.heads = agreed(f, "cca_num_q_heads", m.heads);
  m.kv_heads = agreed(f, "num_query_groups", m.kv_heads);
  m.moe.hidden = agreed(f, "ffn_hidden_size", 2 * m.moe.hidden) / 2;
  m.moe.router_width = agreed(f, "zaya_mlp_expansion", m.moe.router_width);
  if (sublayers == 0) {
    f.require(m.norm_eps == newer.norm_eps, "norm_epsilon", "rms_norm_eps says something else");
    f.require(m.heads == newer.heads, "cca_num_q_heads", "num_attention_heads says something else");
    f.require(m.kv_heads == newer.kv_heads, "num_query_groups", "num_key_value_heads says something else");
    f.require(m.moe.hidden == newer.moe.hidden, "ffn_hidden_size",
              "moe_intermediate_size says something else");
    f.require(m.moe.router_width == newer.moe.router_width, "zaya_mlp_expansion",
              "router_hidden_size says something else");
    return;
  }
  f.require(sublayers % 2 == 0 && (m.layers == sublayers || m.layers == sublayers / 2), "num_hidden_layers",
            "the checkpoint's tensors count another number of sublayers");
  m.layers = sublayers / 2;
}

/// The rotation of ZAYA's layers has a table of its own in the newer layout; in the older one base and share
/// stand beside the model's sizes.
void read_zaya_rope(const Fields& f, ModelConfig& m, bool sublayers) {
  f.require(f.is_null("rope_scaling"), "rope_scaling", "this family has rope_parameters.hybrid");
  const auto share = [&](const Fields& of) {
    m.rotary_fraction = of.number("partial_rotary_factor", 0, 1);
    const double dims = m.rotary_fraction * static_cast<double>(m.key_width());
    of.require(
        dims >= 2 && dims == 2 * std::floor(dims / 2), "partial_rotary_factor",
        fmt::format("it makes {} rotated channels of {}; expected an even number", dims, m.key_width()));
  };
  if (sublayers && f.is_null("rope_parameters")) {
    m.rope_theta = f.number("rope_theta", 1, kHuge);
    return share(f);
  }
  static constexpr FieldRule kKinds[] = {
      {"hybrid", FieldUse::read}, {"hybrid_sliding", FieldUse::ignored}, {"rope_type", FieldUse::ignored}};
  static constexpr FieldRule kOwn[] = {{"rope_theta", FieldUse::read},
                                       {"partial_rotary_factor", FieldUse::read, "1.0"}};
  m.rope_theta = 5e6, m.rotary_fraction = 0.5;
  if (!f.is_null("rope_parameters")) {
    FieldTable rules = huggingface_rope_fields();
    rules.insert(rules.begin(), kOwn);
    const Fields rope = f.table("rope_parameters", {kKinds}).table("hybrid", rules);
    m.rope_theta = rope.number("rope_theta", 1, kHuge);
    share(rope);
    read_rope_scaling(f, rope, m);
  }
  f.require(f.is_null("rope_theta") || f.number("rope_theta", 1, kHuge) == m.rope_theta, "rope_theta",
            "the family reads rope_parameters.hybrid, which says something else");
  f.require(
      f.is_null("partial_rotary_factor") || f.number("partial_rotary_factor", 0, 1) == m.rotary_fraction,
      "partial_rotary_factor", "the family reads rope_parameters.hybrid, which says something else");
}

ModelConfig from_zaya(const Fields& f, int64_t sublayers) {
  ModelConfig m = common(f);
  m.attention = AttentionKind::cca;
  m.residual = ResidualKind::scaled;
  m.moe.experts = f.integer("num_experts", 1, kMaxExperts);
  m.moe.hidden = f.integer("moe_intermediate_size");
  m.moe.router = RouterKind::zaya;
  m.moe.router_width = f.integer("router_hidden_size");
  m.moe.skip_class = true;
  m.moe.balance = BalanceRule::adamw;
  if (!f.is_null("layer_types"))
    pattern_of(f, "layer_types", m, 'F', true, [&](const Json& type) {
      f.require(type == "hybrid", "layer_types", "sliding windows of zaya are not implemented");
      return 'F';
    });
  read_zaya_sublayers(f, m, sublayers);
  read_zaya_rope(f, m, sublayers > 0);
  return m;
}

Json parse(const std::string& text, const std::string& path) {
  if (text.size() > kMaxConfigBytes)
    fail("'{}' has {} bytes, at most {} are a config.json", path, text.size(), kMaxConfigBytes);
  require_shallow_json(text, path);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("'{}' is not a JSON object", path);
  return json;
}

ModelConfig read_family(const Fields& f, const std::string& type, int64_t zaya_sublayers) {
  if (type == "gpt2") return from_gpt2(f);
  if (type == "dots1") return from_dots1(f);
  if (type == "deepseek_v3") return from_deepseek_v3(f);
  if (type == "mixtral") return from_mixtral(f);
  if (type == "smollm3") return from_smollm3(f);
  if (type == "qwen3") return from_qwen3(f);
  if (type == "qwen3_moe") return from_qwen3_moe(f);
  if (type == "zaya") return from_zaya(f, zaya_sublayers);
  return from_llama(f);
}

/// Ids of tokens: none, one, or (of those that end generation) several.
void require_token_ids(const Fields& f, int64_t vocab) {
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const Json& v = f.value(name);
    const bool several = std::string_view(name) == "eos_token_id" && v.is_array();
    for (const Json& id : several ? v : Json::array({v})) {
      const bool integer =
          id.is_number_integer() && (!id.is_number_unsigned() || id.get<uint64_t>() < 1u << 31);
      const bool absent = id.is_null() || (integer && id.get<int64_t>() == -1);
      f.require(absent || (integer && id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab), name,
                fmt::format("expected null or the id of a token, from 0 to {}", vocab - 1));
    }
  }
}

}  // namespace

ModelConfig model_from_huggingface(const std::string& config_json, const std::string& path,
                                   int64_t zaya_sublayers) {
  const Json json = parse(config_json, path);
  const Json given = json.value("model_type", Json());
  const std::string type = given.is_string() ? given.get<std::string>() : given.dump();
  const Fields f(json, path, "the family " + type, huggingface_fields(type, path));
  const ModelConfig m = read_family(f, type, zaya_sublayers);
  require_token_ids(f, m.vocab);
  if (m.layers * m.moe.experts > kMaxExpertsOfAllLayers)
    fail("'{}' describes {} layers of {} experts, a total of at most {} is read", path, m.layers,
         m.moe.experts, kMaxExpertsOfAllLayers);
  try {
    return read_config(to_node(m), ModelConfig());  // for its complaints
  } catch (const Error& e) {
    throw Error(fmt::format("'{}' describes no model: {}", path, e.what()), e.hint());
  }
}

}  // namespace ingot
