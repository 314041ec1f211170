// The description of a decoder: every architecture is this one struct with other values. Presets fill it;
// recipes override fields; the decoder, the counts and the import of foreign checkpoints read it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "device/simd/soft_cap.h"
#include "nn/init.h"
#include "nn/lora.h"
#include "nn/moe/config.h"
#include "ops/activation/activation.h"
#include "ops/add_norm/add_norm.h"
#include "ops/sequence/rotary.h"

namespace ingot {

enum class AttentionKind { gqa, cca, mla };
constexpr auto enum_names(AttentionKind) {
  return names_in_order<AttentionKind>("gqa", "cca", "mla");
}
enum class PositionKind { rope, learned, none };
constexpr auto enum_names(PositionKind) {
  return names_in_order<PositionKind>("rope", "learned", "none");
}
enum class RopeScalingKind { none, linear, llama3, yarn };
constexpr auto enum_names(RopeScalingKind) {
  return names_in_order<RopeScalingKind>("none", "linear", "llama3", "yarn");
}
/// Where a block norms: what a sublayer reads, what it adds to the stream (OLMo 2), or both (Gemma 3).
enum class NormPosition { before, after, both };
constexpr auto enum_names(NormPosition) {
  return names_in_order<NormPosition>("before", "after", "both");
}
enum class ResidualKind { plain, scaled };
constexpr auto enum_names(ResidualKind) {
  return names_in_order<ResidualKind>("plain", "scaled");
}
enum class HeadCapKind { none, tanh, sigmoid };
constexpr auto enum_names(HeadCapKind) {
  return names_in_order<HeadCapKind>("none", "tanh", "sigmoid");
}
/// Bound of the output logits z: cap tanh(z / divisor) (Gemma 2) or cap sigmoid(z / divisor)
/// (modded-nanogpt).
struct HeadCapConfig {
  HeadCapKind kind = HeadCapKind::none;
  double cap = 30;
  double divisor = 0;

  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "none, tanh: cap tanh(z / divisor), or sigmoid: cap sigmoid(z / divisor)");
    v("cap", cap, "largest output logit");
    v("divisor", divisor, "scale of the logits z; 0: cap for tanh, cap sqrt(width) / 4 for sigmoid");
  }
};

/// How the rotation's frequencies change for a longer context; formulas in ops/sequence/rotary.h.
struct RopeScalingConfig {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;
  int64_t original_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;
  double beta_slow = 1, beta_fast = 32;
  double attention_factor = 0;
  double mscale = 0, mscale_all_dim = 0;

  template <class Visitor>
  void visit(Visitor& v) {
    v("kind", kind, "none, linear, llama3 (Llama 3.1) or yarn");
    v("factor", factor, "how much longer the context becomes");
    v("original_context", original_context, "llama3, yarn: tokens that the model was trained with before");
    v("low_freq_factor", low_freq_factor,
      "llama3: pairs that turn less often in the original context are slowed fully");
    v("high_freq_factor", high_freq_factor, "llama3: pairs that turn more often stay");
    v("beta_slow", beta_slow, "yarn: pairs that turn less often in the original context are slowed fully");
    v("beta_fast", beta_fast, "yarn: pairs that turn more often stay");
    v("attention_factor", attention_factor,
      "yarn: factor on rotated vectors; 0: from factor, mscale, mscale_all_dim");
    v("mscale", mscale, "yarn, DeepSeek: weight of ln(factor) in attention_factor; 0: 1");
    v("mscale_all_dim", mscale_all_dim, "yarn, DeepSeek: the same in the attention scale, squared; 0: off");
  }
  /// 0.1 weight ln(factor) + 1.
  double yarn_magnitude(double weight) const;
};

/// Multi-head latent attention (attention = "mla"): ranks of the latents and channels of a head.
struct MlaConfig {
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t nope_width = 0, rope_width = 0, value_width = 0;
  double norm_eps = 1e-6;

  template <class Visitor>
  void visit(Visitor& v) {
    v("q_rank", q_rank, "width of the queries' latent; 0: queries come from the stream");
    v("kv_rank", kv_rank, "width of the latent that keys and values are made from");
    v("nope_width", nope_width, "channels of a query or key head that are not rotated");
    v("rope_width", rope_width, "rotated channels; all heads share one such key");
    v("value_width", value_width, "channels of a value head");
    v("norm_eps", norm_eps, "epsilon of the latents' norms");
  }
};

/// Multi-token prediction (DeepSeek-V3 report, §2.2): modules after the decoder that predict further tokens
/// in training.
struct MtpConfig {
  int64_t depths = 0;
  bool shared = false;
  double coefficient = 0.1;

  int64_t modules() const { return shared && depths > 0 ? 1 : depths; }
  template <class Visitor>
  void visit(Visitor& v) {
    v("depths", depths, "tokens predicted beyond the next one, by one module each; 0: off");
    v("shared", shared, "one module serves all depths");
    v("coefficient", coefficient, "weight of their mean loss beside the next token's");
  }
};

struct ModelConfig {
  std::string preset;  ///< where the other fields started; informative
  int64_t vocab = 0;   ///< 0: the tokenizer's
  int64_t width = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t kv_heads = 4;
  int64_t head_width = 0;  ///< 0: width / heads
  int64_t hidden = 0;      ///< dense MLP width (after the gate); 0: 4 width
  int64_t context = 1024;  ///< longest sequence (learned positions have this many rows)
  AttentionKind attention = AttentionKind::gqa;
  std::string custom_attention;
  MlaConfig mla;
  PositionKind position = PositionKind::rope;
  double rope_theta = 10000;
  double rotary_fraction = 1.0;
  bool half_truncated_rope = false;
  bool interleaved_rope = false;
  std::string rope_pattern;
  double window_rope_theta = 0;
  bool window_rope_scaling = true;
  RopeScalingConfig rope_scaling;
  bool qk_norm = false;
  bool qk_norm_joint = false;
  int64_t window = 0;
  std::string window_pattern;
  int64_t window_block = 0;
  std::string attention_pattern;
  double logit_softcap = 0;
  double attention_scale = 0;
  NormKind norm = NormKind::rms;
  double norm_eps = 1e-5;
  bool norm_weight = true;
  bool norm_bias = false;
  double norm_offset = 0;
  NormPosition norm_position = NormPosition::before;
  ActivationKind mlp = ActivationKind::swiglu;
  bool attention_bias = false;
  bool attention_out_bias = true;
  bool mlp_bias = false;
  ResidualKind residual = ResidualKind::plain;
  double sublayer_scale = 1;
  double embedding_scale = 1;
  double logit_divisor = 1;
  bool embedding_norm = false;
  bool input_mix = false;
  bool unet_skips = false;
  int64_t value_embeddings = 0;
  bool tied = false;
  HeadCapConfig head_cap;
  int64_t head_multiple = 1;
  double init_std = 0.02;
  bool scale_output_init = false;
  std::vector<InitRule> init;
  int64_t mup_base_width = 0;
  MtpConfig mtp;
  MoeConfig moe;

  LoraConfig lora;

  bool is_mla() const { return attention == AttentionKind::mla; }
  /// Channels of a query or key head, and of a value head.
  int64_t key_width() const;
  int64_t value_width() const { return is_mla() ? mla.value_width : key_width(); }
  /// Numbers that the cache keeps per token and layer.
  int64_t cache_width() const;
  int64_t mlp_hidden() const { return hidden > 0 ? hidden : 4 * width; }
  int64_t rotary_dims() const;
  bool norms_before() const { return norm_position != NormPosition::after; }
  bool norms_after() const { return norm_position != NormPosition::before; }
  /// A layer's sliding window in tokens, 0: none.
  int64_t window_of(int64_t layer) const;
  bool attends(int64_t layer) const;
  /// Layers before this one that attend: its number in the cache.
  int64_t cache_layer(int64_t layer) const;
  /// The table of value embeddings that a layer reads, or -1.
  int64_t value_table(int64_t layer) const;
  /// Rows of the head: the vocabulary, padded.
  int64_t head_rows() const { return (vocab + head_multiple - 1) / head_multiple * head_multiple; }
  SoftCap head_cap_of() const;
  /// How a layer turns queries and keys; dims 0: not at all.
  RotaryRule rotary_of(int64_t layer) const;
  /// Factor on q . k.
  double attention_scale_of() const;
  /// Initial standard deviation of matrices that write to the residual stream.
  double output_std() const;
  bool is_moe(int64_t layer) const { return moe.experts > 0 && layer >= moe.first_dense; }

  template <class Visitor>
  void visit(Visitor& v) {
    v("preset", preset, "preset that the other fields start from; see `ingot model`");
    v("vocab", vocab, "vocabulary; 0: the tokenizer's");
    v("width", width, "residual width");
    v("layers", layers, "layers");
    v("heads", heads, "query heads");
    v("kv_heads", kv_heads, "key-value heads (heads: MHA, 1: MQA)");
    v("head_width", head_width, "width of a head; 0: width / heads");
    v("hidden", hidden, "dense MLP width after the gate; 0: 4 width");
    v("context", context, "longest sequence");
    v("attention", attention,
      "gqa, cca (ZAYA1's compressed convolutional attention) or mla (DeepSeek's latent attention)");
    v("custom_attention", custom_attention,
      "attention that a program using the library has registered under this name; empty: none");
    v("mla", mla, "latent attention");
    v("position", position, "rope, learned or none");
    v("rope_theta", rope_theta, "base of the rotation");
    v("rotary_fraction", rotary_fraction, "share of each head that is rotated");
    v("half_truncated_rope", half_truncated_rope, "half of the rotated pairs stand still (modded-nanogpt)");
    v("interleaved_rope", interleaved_rope,
      "rotated pairs are neighbours (DeepSeek), not the two halves of a head");
    v("rope_pattern", rope_pattern,
      "a letter per layer, repeated: R rotates, N does not (RRRN: every 4th is NoPE); empty: all R");
    v("window_rope_theta", window_rope_theta, "base of the rotation in layers with a window; 0: rope_theta");
    v("window_rope_scaling", window_rope_scaling, "rope_scaling counts in layers with a window too");
    v("rope_scaling", rope_scaling, "rotation for a longer context");
    v("qk_norm", qk_norm, "RMS norm on each query and key head");
    v("qk_norm_joint", qk_norm_joint,
      "qk_norm: one norm over all query heads and one over all key heads (OLMo 2)");
    v("window", window, "sliding window: a token sees this many latest tokens, itself included; 0: none");
    v("window_pattern", window_pattern,
      "a letter per layer, repeated: S slides, H by half the window, F sees all (SSSSSF: every 6th); empty: "
      "all S");
    v("window_block", window_block,
      "the window counts blocks of this many tokens from the start of a row; 0: it counts tokens");
    v("attention_pattern", attention_pattern,
      "a letter per layer, repeated: A attends, N has no attention; empty: all A");
    v("logit_softcap", logit_softcap, "attention logits become cap tanh(logit / cap); 0: no cap");
    v("attention_scale", attention_scale, "factor on q . k before softmax; 0: 1/sqrt(head_width)");
    v("norm", norm, "rms or layer");
    v("norm_eps", norm_eps, "epsilon of norms");
    v("norm_weight", norm_weight, "learned weights in norms, those of queries and keys included");
    v("norm_bias", norm_bias, "bias in layer norms");
    v("norm_offset", norm_offset, "added to the weights of norms, queries' and keys' included (Gemma: 1)");
    v("norm_position", norm_position,
      "before: a sublayer reads normed values; after: what it adds to the stream is normed (OLMo 2); both "
      "(Gemma 3)");
    v("mlp", mlp, "nonlinearity of MLP and experts");
    v("attention_bias", attention_bias, "biases in attention projections");
    v("attention_out_bias", attention_out_bias,
      "attention_bias: the output projection has one too (Qwen2: not)");
    v("mlp_bias", mlp_bias, "biases in the dense MLP");
    v("residual", residual, "plain, or scaled: ZAYA1's learned scales and biases");
    v("sublayer_scale", sublayer_scale, "factor on what a sublayer adds to the stream (Granite)");
    v("embedding_scale", embedding_scale, "factor on the embedding (Gemma: the root of width)");
    v("logit_divisor", logit_divisor, "what the output logits are divided by, before head_cap (Granite)");
    v("embedding_norm", embedding_norm, "norm on the embedding");
    v("input_mix", input_mix,
      "a block starts from a x + b x0: learned scalars (1, 0), x0 the embedding (modded-nanogpt)");
    v("unet_skips", unet_skips,
      "each block of the last half adds a learned scalar (1) times the output of its mirror image in the "
      "first");
    v("value_embeddings", value_embeddings,
      "tables of n embeddings that first and last n layers mix into their values by learned scalars (1/2, "
      "1/2)");
    v("tied", tied, "one matrix for embedding and head");
    v("head_cap", head_cap, "bound of the output logits");
    v("head_multiple", head_multiple,
      "the head's rows are padded to a multiple of this; padded logits take part in the softmax, no target "
      "names them");
    v("init_std", init_std, "standard deviation of initial matrices");
    v("scale_output_init", scale_output_init, "output projections start with std / sqrt(2 layers)");
    v("init", init, "initialisation by name pattern, later over earlier");
    v("mup_base_width", mup_base_width,
      "muP: width that init_std and learning rates are meant for; 0: standard");
    v("mtp", mtp, "multi-token prediction");
    v("moe", moe, "mixture of experts");
    v("lora", lora, "low-rank adapters; all other weights are frozen");
  }
  void validate(ConfigErrors& errors) const;
};

/// The same model without adapters: that of merged weights, and of those that the adapters started from.
ModelConfig without_adapters(ModelConfig model);

}  // namespace ingot
