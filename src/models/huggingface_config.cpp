// See huggingface.h: reading config.json; here the families with experts. What each family's fields are and
// default to is in huggingface_families.cpp, the dense families are in huggingface_dense.cpp.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_depth.h"
#include "models/huggingface.h"
#include "models/huggingface_read.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr int64_t kMaxExperts = 1 << 12;
constexpr int64_t kMaxExpertsOfAllLayers = 1 << 18;  // each has tensors of its own

void require_several_experts(const Fields& f, const ModelConfig& m) {
  f.require(!m.moe.normalize || m.moe.top_k > 1, "num_experts_per_tok",
            "one weight divided by itself is always 1, which is not implemented");
}

ModelConfig from_qwen3_moe(const Fields& f) {
  ModelConfig m = common_fields(f);
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

/// Mixtral: the chosen experts' weights are divided by their sum; `intermediate_size` is an expert's.
ModelConfig from_mixtral(const Fields& f) {
  ModelConfig m = common_fields(f);
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
  ModelConfig m = common_fields(f);
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
  ModelConfig m = common_fields(f);
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
  ModelConfig m = common_fields(f);
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
  if (type == "dots1") return from_dots1(f);
  if (type == "deepseek_v3") return from_deepseek_v3(f);
  if (type == "mixtral") return from_mixtral(f);
  if (type == "qwen3_moe") return from_qwen3_moe(f);
  if (type == "zaya") return from_zaya(f, zaya_sublayers);
  return read_dense_family(f, type);
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
