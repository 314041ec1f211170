// The description of a decoder: every architecture is this one struct with other values. Presets fill it;
// recipes override fields; the decoder, the counts and the import of foreign checkpoints read it.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "device/simd/soft_cap.h"
#include "nn/config_sections.h"
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
/// Where a block norms: what a sublayer reads, what it adds to the stream (OLMo 2), or both (Gemma 3).
enum class NormPosition { before, after, both };
constexpr auto enum_names(NormPosition) {
  return names_in_order<NormPosition>("before", "after", "both");
}
enum class ResidualKind { plain, scaled };
constexpr auto enum_names(ResidualKind) {
  return names_in_order<ResidualKind>("plain", "scaled");
}
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
    v("vocab", vocab, "vocabulary; 0: the tokenizer's", up_to(bounds::kVocabulary));
    v("width", width, "residual width", between(1, bounds::kWidth));
    v("layers", layers, "layers", between(1, bounds::kLayers));
    v("heads", heads, "query heads", between(1, bounds::kHeads));
    v("kv_heads", kv_heads, "key-value heads (heads: MHA, 1: MQA)", between(1, bounds::kHeads));
    v("head_width", head_width, "width of a head; 0: width / heads", up_to(bounds::kWidth));
    v("hidden", hidden, "dense MLP width after the gate; 0: 4 width", up_to(bounds::kHidden));
    v("context", context, "longest sequence", between(1, bounds::kSequence));
    v("attention", attention,
      "gqa, cca (ZAYA1's compressed convolutional attention) or mla (DeepSeek's latent attention)");
    v("custom_attention", custom_attention,
      "attention that a program using the library has registered under this name; empty: none");
    v("mla", mla, "latent attention");
    v("position", position, "rope, learned or none");
    v("rope_theta", rope_theta, "base of the rotation", between(1, bounds::kTheta));
    v("rotary_fraction", rotary_fraction, "share of each head that is rotated", up_to(1));
    v("half_truncated_rope", half_truncated_rope, "half of the rotated pairs stand still (modded-nanogpt)");
    v("interleaved_rope", interleaved_rope,
      "rotated pairs are neighbours (DeepSeek), not the two halves of a head");
    v("rope_pattern", rope_pattern,
      "a letter per layer, repeated: R rotates, N does not (RRRN: every 4th is NoPE); empty: all R");
    v("window_rope_theta", window_rope_theta, "base of the rotation in layers with a window; 0: rope_theta",
      zero_or(1, bounds::kTheta));
    v("window_rope_scaling", window_rope_scaling, "rope_scaling counts in layers with a window too");
    v("rope_scaling", rope_scaling, "rotation for a longer context");
    v("qk_norm", qk_norm, "RMS norm on each query and key head");
    v("qk_norm_joint", qk_norm_joint,
      "qk_norm: one norm over all query heads and one over all key heads (OLMo 2)");
    v("window", window, "sliding window: a token sees this many latest tokens, itself included; 0: none",
      up_to(bounds::kSequence));
    v("window_pattern", window_pattern,
      "a letter per layer, repeated: S slides, H by half the window, F sees all (SSSSSF: every 6th); empty: "
      "all S");
    v("window_block", window_block,
      "the window counts blocks of this many tokens from the start of a row; 0: it counts tokens",
      up_to(bounds::kSequence));
    v("attention_pattern", attention_pattern,
      "a letter per layer, repeated: A attends, N has no attention; empty: all A");
    v("logit_softcap", logit_softcap, "attention logits become cap tanh(logit / cap); 0: no cap", up_to(1e6));
    v("attention_scale", attention_scale, "factor on q . k before softmax; 0: 1/sqrt(head_width)",
      up_to(1e6));
    v("norm", norm, "rms or layer");
    v("norm_eps", norm_eps, "epsilon of norms", positive(1));
    v("norm_weight", norm_weight, "learned weights in norms, those of queries and keys included");
    v("norm_bias", norm_bias, "bias in layer norms");
    v("norm_offset", norm_offset, "added to the weights of norms, queries' and keys' included (Gemma: 1)",
      between(-1e3, 1e3));
    v("norm_position", norm_position,
      "before: a sublayer reads normed values; after: what it adds to the stream is normed (OLMo 2); both "
      "(Gemma 3)");
    v("mlp", mlp, "nonlinearity of MLP and experts");
    v("attention_bias", attention_bias, "biases in attention projections");
    v("attention_out_bias", attention_out_bias,
      "attention_bias: the output projection has one too (Qwen2: not)");
    v("mlp_bias", mlp_bias, "biases in the dense MLP");
    v("residual", residual, "plain, or scaled: ZAYA1's learned scales and biases");
    v("sublayer_scale", sublayer_scale, "factor on what a sublayer adds to the stream (Granite)",
      positive(1e6));
    v("embedding_scale", embedding_scale, "factor on the embedding (Gemma: the root of width)",
      positive(1e6));
    v("logit_divisor", logit_divisor, "what the output logits are divided by, before head_cap (Granite)",
      positive(1e6));
    v("embedding_norm", embedding_norm, "norm on the embedding");
    v("input_mix", input_mix,
      "a block starts from a x + b x0: learned scalars (1, 0), x0 the embedding (modded-nanogpt)");
    v("unet_skips", unet_skips,
      "each block of the last half adds a learned scalar (1) times the output of its mirror image in the "
      "first");
    v("value_embeddings", value_embeddings,
      "tables of n embeddings that first and last n layers mix into their values by learned scalars (1/2, "
      "1/2)",
      up_to(bounds::kLayers));
    v("tied", tied, "one matrix for embedding and head");
    v("head_cap", head_cap, "bound of the output logits");
    v("head_multiple", head_multiple,
      "the head's rows are padded to a multiple of this; padded logits take part in the softmax, no target "
      "names them",
      between(1, 0x1p16));
    v("init_std", init_std, "standard deviation of initial matrices", up_to(100));
    v("scale_output_init", scale_output_init, "output projections start with std / sqrt(2 layers)");
    v("init", init, "initialisation by name pattern, later over earlier");
    v("mup_base_width", mup_base_width,
      "muP: width that init_std and learning rates are meant for; 0: standard", up_to(bounds::kWidth));
    v("mtp", mtp, "multi-token prediction");
    v("moe", moe, "mixture of experts");
    v("lora", lora, "low-rank adapters; all other weights are frozen");
  }
  void validate(ConfigErrors& errors) const;
};

/// The same model without adapters: that of merged weights, and of those that the adapters started from.
ModelConfig without_adapters(ModelConfig model);

}  // namespace ingot
