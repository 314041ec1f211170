// See gguf_model.h: the tensors of the file.
#include "exchange/gguf_model.h"
#include "ops/sequence/rotary.h"

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
  /// A norm's weights. llama.cpp's are whole where a family stores them less an offset (Gemma: 1).
  void norm(const std::string& name, const std::string& ours) {
    whole(name + ".weight", ours + ".weight");
    items_.back().offset = static_cast<float>(decoder_.config().norm_offset);
  }
  /// Adds rows of a matrix, or elements of a vector.
  void rows(const std::string& name, const std::string& ours, int64_t begin, int64_t count) {
    const Shape& s = shape_of(ours);
    if (s.rank() == 1) return add(name, ours, {count}, {1}, begin);
    add(name, ours, {count, s[1]}, {s[1], 1}, begin * s[1]);
  }
  /// Adds the rows of `heads` heads of width `k` in the order 0, k/2, 1, k/2 + 1, ...: some
  /// architectures rotate neighbours.
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

void grouped_attention_items(const ModelConfig& m, Items& n, int64_t l, const GgufArchitecture& arch) {
  const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l) + "attention.";
  const int64_t k = m.key_width(), q = m.heads * k, kv = m.kv_heads * k;
  for (const char* part : {".weight", ".bias"}) {
    if (part[1] == 'b' && !m.attention_bias) continue;
    const std::string qkv = o + "qkv" + part;
    if (part[1] == 'w' || m.attention_out_bias) n.whole(e + "attn_output" + part, o + "out" + part);
    if (arch.fused) {
      n.whole(e + "attn_qkv" + part, qkv);
      continue;
    }
    if (arch.rotates_neighbours) {
      n.interleaved_rows(e + "attn_q" + part, qkv, 0, m.heads, k);
      n.interleaved_rows(e + "attn_k" + part, qkv, q, m.kv_heads, k);
    } else {
      n.rows(e + "attn_q" + part, qkv, 0, q);
      n.rows(e + "attn_k" + part, qkv, q, kv);
    }
    n.rows(e + "attn_v" + part, qkv, q + kv, kv);
  }
  if (!m.qk_norm) return;
  n.norm(e + "attn_q_norm", o + "q_norm");
  n.norm(e + "attn_k_norm", o + "k_norm");
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

/// The frequency scaling of Llama 3 as divisors of the plain frequencies.
std::vector<float> frequency_divisors(const ModelConfig& m) {
  const RotaryRule scaled = m.rotary_of(0);
  RotaryRule plain = scaled;
  plain.kind = RotaryKind::plain;
  std::vector<double> f(static_cast<size_t>(scaled.dims / 2)), g(f.size());
  rotary_frequencies(plain, f.data());
  rotary_frequencies(scaled, g.data());
  std::vector<float> divisors;
  for (size_t i = 0; i < f.size(); ++i) divisors.push_back(static_cast<float>(f[i] / g[i]));
  return divisors;
}

void mlp_items(const ModelConfig& m, Items& n, int64_t l, const GgufArchitecture& arch) {
  const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l) + "mlp.";
  for (const char* part : {".weight", ".bias"}) {
    if (part[1] == 'b' && !m.mlp_bias) continue;
    n.whole(e + "ffn_down" + part, o + "down" + part);
    if (arch.fused) {
      n.whole(e + "ffn_up" + part, o + "gate_up" + part);
      continue;
    }
    n.rows(e + "ffn_gate" + part, o + "gate_up" + part, 0, m.mlp_hidden());
    n.rows(e + "ffn_up" + part, o + "gate_up" + part, m.mlp_hidden(), m.mlp_hidden());
  }
}

void norm_items(const ModelConfig& m, Items& n, int64_t l) {
  const std::string e = fmt::format("blk.{}.", l), o = layer_prefix(l);
  if (m.norms_before()) {
    n.norm(e + "attn_norm", o + "attention_norm");
    n.norm(e + "ffn_norm", o + "mlp_norm");
  }
  if (m.norms_after()) {
    n.norm(e + "post_attention_norm", o + "attention_after");
    n.norm(e + "post_ffw_norm", o + "mlp_after");
  }
}

void llama_items(const ModelConfig& m, Items& n, const GgufArchitecture& arch) {
  n.whole("token_embd.weight", "embed.weight");
  if (m.rope_scaling.kind == RopeScalingKind::llama3) n.values("rope_freqs.weight", frequency_divisors(m));
  for (int64_t l = 0; l < m.layers; ++l) {
    norm_items(m, n, l);
    if (m.is_mla())
      latent_attention_items(m, n, l);
    else
      grouped_attention_items(m, n, l, arch);
    if (m.is_moe(l))
      expert_items(m, n, l);
    else
      mlp_items(m, n, l, arch);
  }
  n.norm("output_norm", "final_norm");
  if (!m.tied)
    n.whole("output.weight", "lm_head.weight");
  else if (!arch.ties)
    n.whole("output.weight", "embed.weight");
}

}  // namespace

std::vector<GgufTensor> gguf_tensors(const Decoder& decoder, const GgufArchitecture& arch) {
  Items items(decoder);
  if (arch.name == "gpt2")
    gpt2_items(decoder.config(), items);
  else
    llama_items(decoder.config(), items, arch);
  return items.take();
}

}  // namespace ingot
