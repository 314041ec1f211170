// See huggingface_fields.h: the fields of each family's config.json, with the defaults of transformers 5.
#include "base/error.h"
#include "models/huggingface.h"
#include "models/huggingface_fields.h"

namespace ingot {
namespace {

using enum FieldUse;

/// What every family has: what the base class of configurations writes, now or in older versions, and what
/// generation takes.
constexpr FieldRule kEveryFamily[] = {
    {"model_type", read, "null"},
    {"vocab_size", read},
    {"bos_token_id", read, "null"},
    {"eos_token_id", read, "null"},
    {"pad_token_id", read, "null"},
    {"is_encoder_decoder", one_of, "[false, null]"},
    {"tie_encoder_decoder", one_of, "[false]"},
    {"add_cross_attention", one_of, "[false]"},
    {"pruned_heads", one_of, "[{}, null]"},
    {"quantization_config", one_of, "[null]",
     "quantized weights are not read: take the model in bf16 or f32"},
    {"is_causal", one_of, "[true]"},
    {"architectures"},
    {"transformers_version"},
    {"_name_or_path"},
    {"name_or_path"},
    {"_commit_hash"},
    {"_attn_implementation_autoset"},
    {"attn_implementation"},
    {"experts_implementation"},
    {"auto_map"},  // code beside the weights, which transformers runs only where it is told to
    {"dtype"},
    {"torch_dtype"},
    {"use_cache"},
    {"initializer_range"},  // initial values, dropout, losses and metrics act in training alone
    {"attention_dropout"},
    {"classifier_dropout"},
    {"output_attentions"},
    {"output_hidden_states"},
    {"output_router_logits"},
    {"return_dict"},
    {"torchscript"},
    {"use_bfloat16"},
    {"tf_legacy_loss"},
    {"chunk_size_feed_forward"},
    {"id2label"},
    {"label2id"},
    {"num_labels"},
    {"_num_labels"},
    {"problem_type"},
    {"finetuning_task"},
    {"task_specific_params"},
    {"tokenizer_class"},
    {"prefix"},
    {"sep_token_id"},
    {"decoder_start_token_id"},
    {"cross_attention_hidden_size"},
    {"pretraining_tp"},
    {"unsloth_version"},
    {"unsloth_fixed"},
    {"model_max_length"},
    {"max_sequence_length"},
    {"max_length"},
    {"max_new_tokens"},
    {"min_length"},
    {"do_sample"},
    {"early_stopping"},
    {"num_beams"},
    {"num_beam_groups"},
    {"diversity_penalty"},
    {"temperature"},
    {"top_k"},
    {"top_p"},
    {"min_p"},
    {"typical_p"},
    {"repetition_penalty"},
    {"length_penalty"},
    {"no_repeat_ngram_size"},
    {"encoder_no_repeat_ngram_size"},
    {"bad_words_ids"},
    {"num_return_sequences"},
    {"output_scores"},
    {"return_dict_in_generate"},
    {"forced_bos_token_id"},
    {"forced_eos_token_id"},
    {"remove_invalid_values"},
    {"exponential_decay_length_penalty"},
    {"suppress_tokens"},
    {"begin_suppress_tokens"},
};

/// Llama's fields, which its relatives share.
constexpr FieldRule kLlamaLike[] = {
    {"hidden_size", read},
    {"num_hidden_layers", read},
    {"num_attention_heads", read},
    {"num_key_value_heads", read, "null"},
    {"head_dim", read, "null"},
    {"intermediate_size", read},
    {"hidden_act", one_of, "[\"silu\"]"},
    {"max_position_embeddings", read, "2048"},
    {"rms_norm_eps", read, "1e-6"},
    {"tie_word_embeddings", read, "false"},
    {"attention_bias", read, "false"},
    {"mlp_bias", one_of, "[false]"},
    {"rope_parameters", read, "null"},
    {"rope_scaling", read, "null"},
    {"rope_theta", read, "10000.0"},
    {"original_max_position_embeddings", read, "null"},
    {"partial_rotary_factor", one_of, "[1.0]", "in this family the whole head rotates"},
    {"rope_interleaved", one_of, "[false]"},
    {"is_llama_config"},
    {"sliding_window", one_of, "[null]", "this family has no windows"},
    {"use_sliding_window", one_of, "[false]", "this family has no windows"},
    {"layer_types", read, "null"},
};

constexpr FieldRule kNoBias = {"attention_bias", one_of, "[false]", "this family has no biases"};

/// llama, granite and smollm3: biases in the MLP too.
constexpr FieldRule kMlpBias = {"mlp_bias", read, "false"};
constexpr FieldRule kLlama[] = {kMlpBias};

constexpr FieldRule kGranite[] = {
    kMlpBias,
    {"embedding_multiplier", read, "1.0"},
    {"logits_scaling", read, "1.0"},
    {"residual_multiplier", read, "1.0"},
    {"attention_multiplier", read, "1.0"},
};

constexpr FieldRule kQwen2[] = {
    {"attention_bias", read, "true"},  // q, k and v have biases, the output has none, whatever it says
    {"intermediate_size", read, "22016"},       {"num_key_value_heads", read, "32"},
    {"max_position_embeddings", read, "32768"}, {"use_sliding_window", read, "false"},
    {"sliding_window", read, "4096"},           {"max_window_layers", read, "28"},
};

constexpr FieldRule kOlmo2[] = {
    {"rms_norm_eps", read, "1e-5"},
};

constexpr FieldRule kOlmo3[] = {
    {"rms_norm_eps", read, "1e-5"},
    {"rope_theta", read, "null"},
    {"sliding_window", read, "4096"},
    {"use_sliding_window"},
};

constexpr FieldRule kPhi3[] = {
    kNoBias,
    {"max_position_embeddings", read, "4096"},
    {"original_max_position_embeddings"},  // of longrope, which is refused
    {"rms_norm_eps", read, "1e-5"},
    {"partial_rotary_factor", read, "1.0"},
    {"sliding_window", read, "null"},
    {"use_sliding_window"},
    {"resid_pdrop"},
    {"embd_pdrop"},
    {"lm_head_bias", one_of, "[false]"},
};

/// What the Gemma families share.
constexpr FieldRule kGemmaLike[] = {
    {"head_dim", read, "256"},
    {"tie_word_embeddings", read, "true"},
    {"use_bidirectional_attention", one_of, "[false, null]"},
    {"cache_implementation"},
};

constexpr FieldRule kGemma[] = {
    {"num_key_value_heads", read, "16"},
    {"max_position_embeddings", read, "8192"},
    {"hidden_act", one_of, "[\"gelu_pytorch_tanh\", \"gelu\"]"},  // both mean the first
    {"hidden_activation"},
};

constexpr FieldRule kGemma2And3[] = {
    {"num_key_value_heads", read, "4"},
    {"hidden_activation", one_of, "[\"gelu_pytorch_tanh\"]"},
    {"hidden_act"},
    {"query_pre_attn_scalar", read, "256"},
    {"sliding_window", read, "4096"},
    {"use_sliding_window"},
};

constexpr FieldRule kGemma2[] = {
    {"max_position_embeddings", read, "8192"},
    {"final_logit_softcapping", read, "30.0"},
    {"attn_logit_softcapping", read, "50.0"},
    {"sliding_window_size", alias, "sliding_window"},
};

constexpr FieldRule kGemma3[] = {
    {"max_position_embeddings", read, "131072"},
    {"final_logit_softcapping", read, "null"},
    {"attn_logit_softcapping", one_of, "[null]", "this family has no such cap in transformers"},
    {"sliding_window_pattern", read, "6"},
    {"_sliding_window_pattern", alias, "sliding_window_pattern"},
    {"rope_theta", read, "null"},
    {"rope_local_base_freq", read, "null"},
};

constexpr FieldRule kMistral[] = {
    kNoBias,
    {"num_key_value_heads", read, "8"},
    {"max_position_embeddings", read, "131072"},
    {"sliding_window", read, "4096"},
    {"use_sliding_window"},
    {"max_window_layers"},
};

constexpr FieldRule kMixtral[] = {
    kNoBias,
    {"num_key_value_heads", read, "8"},
    {"max_position_embeddings", read, "131072"},
    {"rms_norm_eps", read, "1e-5"},
    {"rope_theta", read, "1000000.0"},
    {"sliding_window", read, "null"},
    {"use_sliding_window"},
    {"max_window_layers"},
    {"num_local_experts", read, "8"},
    {"num_experts", alias, "num_local_experts"},
    {"num_experts_per_tok", read, "2"},
    {"router_aux_loss_coef", read, "0.001"},
    {"router_jitter_noise"},
};

constexpr FieldRule kQwen3[] = {
    {"num_key_value_heads", read, "32"},        {"head_dim", read, "128"},
    {"max_position_embeddings", read, "32768"}, {"use_sliding_window", read, "false"},
    {"sliding_window", read, "4096"},           {"max_window_layers", read, "28"},
};

constexpr FieldRule kQwen3Moe[] = {
    {"num_key_value_heads", read, "4"},
    {"intermediate_size", read, "6144"},
    {"max_position_embeddings", read, "32768"},
    {"use_sliding_window", read, "false"},
    {"sliding_window", read, "4096"},
    {"max_window_layers"},
    {"num_experts", read, "128"},
    {"num_local_experts", alias, "num_experts"},
    {"num_experts_per_tok", read, "8"},
    {"moe_intermediate_size", read, "768"},
    {"norm_topk_prob", read, "false"},
    {"router_aux_loss_coef", read, "0.001"},
    {"decoder_sparse_step", one_of, "[1]"},
    {"mlp_only_layers", one_of, "[[], null]"},
};

constexpr FieldRule kSmolLm3[] = {
    kMlpBias,
    {"num_key_value_heads", read, "4"},
    {"max_position_embeddings", read, "32768"},
    {"tie_word_embeddings", read, "true"},
    {"rope_theta", read, "2000000.0"},
    {"use_sliding_window", read, "false"},
    {"sliding_window", read, "null"},
    {"no_rope_layers", read, "null"},
    {"no_rope_layer_interval", read, "4"},
    {"max_window_layers"},
};

/// DeepSeek-V3's experts. Those fields that its own code reads and transformers does not have one value.
constexpr FieldRule kSigmoidExperts[] = {
    {"n_routed_experts", read},
    {"num_local_experts", alias, "n_routed_experts"},
    {"n_shared_experts", read},
    {"num_experts_per_tok", read},
    {"moe_intermediate_size", read},
    {"scoring_func", one_of, "[\"sigmoid\", \"noaux_tc\"]"},
    {"topk_method", one_of, "[\"noaux_tc\"]"},
    {"moe_layer_freq", one_of, "[1]"},
    {"ep_size"},
    {"aux_loss_alpha"},
    {"seq_aux"},
    {"router_aux_loss_coef"},
};

constexpr FieldRule kDots1[] = {
    {"num_key_value_heads", read, "32"},
    {"sliding_window", read, "4096"},
    {"use_sliding_window"},
    {"max_window_layers", read, "62"},
    {"n_group", read, "1"},
    {"topk_group", read, "1"},
    {"first_k_dense_replace", read, "0"},
    {"norm_topk_prob", read, "false"},
    {"routed_scaling_factor", read, "1.0"},
};

constexpr FieldRule kDeepseekV3[] = {
    {"attention_bias", one_of, "[false]", "latent attention has no biases here"},
    {"num_key_value_heads", read, "128"},
    {"max_position_embeddings", read, "4096"},
    {"q_lora_rank", read, "1536"},
    {"kv_lora_rank", read, "512"},
    {"qk_nope_head_dim", read, "128"},
    {"qk_rope_head_dim", read, "64"},
    {"qk_head_dim", read, "null"},
    {"v_head_dim", read, "128"},
    {"rope_interleave", read, "true"},
    {"n_routed_experts", read, "256"},
    {"n_shared_experts", read, "1"},
    {"num_experts_per_tok", read, "8"},
    {"moe_intermediate_size", read, "2048"},
    {"n_group", read, "8"},
    {"topk_group", read, "4"},
    {"first_k_dense_replace", read, "3"},
    {"norm_topk_prob", read, "true"},
    {"routed_scaling_factor", read, "2.5"},
    {"num_nextn_predict_layers"},  // modules beside the model, which plain generation does not run
    {"num_mtp_layers"},
};

constexpr FieldRule kZaya[] = {
    {"attention_bias", one_of, "[false]",
     "a delayed value begins with the bias there, which ZAYA's attention does not do here"},
    {"lm_head_bias", one_of, "[false]"},
    {"num_key_value_heads", read, "2"},
    {"head_dim", read, "128"},
    {"max_position_embeddings", read, "131072"},
    {"rms_norm_eps", read, "1e-5"},
    {"tie_word_embeddings", one_of, "[true]"},
    {"num_experts", read, "16"},
    {"num_experts_per_tok", one_of, "[1]"},
    {"cca_time0", one_of, "[2]"},
    {"cca_time1", one_of, "[2]"},
    {"clamp_temp", one_of, "[false]"},
    {"sliding_window"},  // of layers of another type than "hybrid", which are refused
    {"use_sliding_window", one_of, "[false]"},
    {"intermediate_size"},
    {"moe_intermediate_size", read, "2048"},
    {"router_hidden_size", read, "256"},
    {"rope_theta", read, "null"},
    {"partial_rotary_factor", read, "null"},
    {"original_max_position_embeddings", one_of, "[null]"},
};

/// What the layout of ZAYA's sublayers has besides; files of the newer one may keep it.
constexpr FieldRule kZayaSublayers[] = {
    {"norm_epsilon", read, "null"},
    {"cca_num_q_heads", read, "null"},
    {"num_query_groups", read, "null"},
    {"ffn_hidden_size", read, "null"},
    {"zaya_mlp_expansion", read, "null"},
    {"moe_router_topk", one_of, "[1]"},
    {"activation_func", one_of, "[\"swiglu\"]"},
    {"cca", one_of, "[true]"},
    {"zaya_use_mod", one_of, "[true]"},
    {"zaya_use_eda", one_of, "[true]"},
    {"scale_residual_merge", one_of, "[true]"},
    {"gated_linear_unit", one_of, "[true]"},
    {"residual_in_fp32"},
    {"normalization", one_of, "[\"RMSNorm\"]"},
    {"add_bias_linear", one_of, "[false]"},
};

constexpr FieldRule kGpt2[] = {
    {"n_embd", read},
    {"n_layer", read},
    {"n_head", read},
    {"n_positions", read, "1024"},
    {"n_inner", read, "null"},
    {"hidden_size", alias, "n_embd"},
    {"num_hidden_layers", alias, "n_layer"},
    {"num_attention_heads", alias, "n_head"},
    {"max_position_embeddings", alias, "n_positions"},
    {"activation_function", one_of, "[\"gelu_new\"]"},
    {"layer_norm_epsilon", read, "1e-5"},
    {"tie_word_embeddings", one_of, "[true]", "this family's head is its embedding here"},
    {"scale_attn_weights", one_of, "[true]"},
    {"scale_attn_by_inverse_layer_idx", one_of, "[false]"},
    {"reorder_and_upcast_attn"},  // the same products in another order
    {"n_ctx"},
    {"resid_pdrop"},
    {"embd_pdrop"},
    {"attn_pdrop"},
    {"summary_type"},
    {"summary_use_proj"},
    {"summary_activation"},
    {"summary_proj_to_labels"},
    {"summary_first_dropout"},
};

constexpr FieldRule kRope[] = {
    {"rope_type", read, "null"},
    {"type", read, "\"default\""},
    {"rope_theta", read, "null"},
    {"partial_rotary_factor", read, "null"},
    {"factor", read},
    {"original_max_position_embeddings", read, "null"},
    {"low_freq_factor", read},
    {"high_freq_factor", read},
    {"beta_fast", read, "null"},
    {"beta_slow", read, "null"},
    {"attention_factor", read, "null"},
    {"mscale", read, "null"},
    {"mscale_all_dim", read, "null"},
    {"truncate", one_of, "[true]", "yarn's ramp is rounded to whole pairs here"},
};

}  // namespace

FieldTable huggingface_fields(const std::string& type, const std::string& path) {
  if (type == "gpt2") return {kGpt2, kEveryFamily};
  if (type == "llama") return {kLlama, kLlamaLike, kEveryFamily};
  if (type == "granite") return {kGranite, kLlamaLike, kEveryFamily};
  if (type == "qwen2") return {kQwen2, kLlamaLike, kEveryFamily};
  if (type == "olmo2") return {kOlmo2, kLlamaLike, kEveryFamily};
  if (type == "olmo3") return {kOlmo3, kLlamaLike, kEveryFamily};
  if (type == "phi3") return {kPhi3, kLlamaLike, kEveryFamily};
  if (type == "gemma") return {kGemma, kGemmaLike, kLlamaLike, kEveryFamily};
  if (type == "gemma2") return {kGemma2, kGemma2And3, kGemmaLike, kLlamaLike, kEveryFamily};
  if (type == "gemma3_text") return {kGemma3, kGemma2And3, kGemmaLike, kLlamaLike, kEveryFamily};
  if (type == "mistral") return {kMistral, kLlamaLike, kEveryFamily};
  if (type == "mixtral") return {kMixtral, kLlamaLike, kEveryFamily};
  if (type == "qwen3") return {kQwen3, kLlamaLike, kEveryFamily};
  if (type == "qwen3_moe") return {kQwen3Moe, kLlamaLike, kEveryFamily};
  if (type == "smollm3") return {kSmolLm3, kLlamaLike, kEveryFamily};
  if (type == "dots1") return {kDots1, kSigmoidExperts, kLlamaLike, kEveryFamily};
  if (type == "deepseek_v3") return {kDeepseekV3, kSigmoidExperts, kLlamaLike, kEveryFamily};
  if (type == "zaya") return {kZayaSublayers, kZaya, kLlamaLike, kEveryFamily};
  throw Error(fmt::format("'{}': model_type is '{}'", path, type.substr(0, 120)),
              huggingface_families_hint());
}

FieldTable huggingface_rope_fields() {
  return {kRope};
}

}  // namespace ingot
