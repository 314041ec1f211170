// The golden cases: recipes of 20 steps of a tiny model on a small text, one per option or group of options
// that belong together. options_test.cpp checks that every option has a case.
#pragma once
#include <fmt/core.h>

#include <string>

#include "support/support.h"
#include "support/tiny_run.h"
#include "train/recipe.h"

namespace ingot::test {

struct Case {
  const char* name;
  const char* preset = "llama-small";
  const char* options = "";  ///< further lines of [model], which override those that all cases have
  const char* stage = "";    ///< lines of a second phase; empty: one phase of 20 steps
  const char* prompts = "\"the \"";
  const char* sections = "";  ///< further sections of the recipe
  const char* run = "";
  const char* tokenizer = "kind = \"characters\"\n";
  const char* data = "";
  /// {0} is the fixtures' folder.
  const char* source = "path = \"{0}/text.txt\"\ndocuments = \"blank_line\"\n";
};

/// A case of the llama that differs in its model only; the next ones differ in one other section.
constexpr Case model(const char* name, const char* options) {
  return {.name = name, .options = options};
}
constexpr Case optimizer(const char* name, const char* sections) {
  return {.name = name, .sections = sections};
}
constexpr Case data_of(const char* name, const char* data) {
  return {.name = name, .data = data};
}
constexpr Case source(const char* name, const char* lines) {
  return {.name = name, .source = lines};
}
/// A case of the llama with a second phase for the last half of the steps.
constexpr Case second_stage(const char* name, const char* stage) {
  return {.name = name, .stage = stage};
}
/// Cases of the mixture of experts and of ZAYA1.
constexpr Case moe(const char* name, const char* options) {
  return {.name = name, .preset = "moe-small", .options = options};
}
constexpr Case zaya(const char* name, const char* options) {
  return {.name = name, .preset = "zaya-tiny", .options = options};
}

inline const Case kCases[] = {
    {.name = "gpt2", .preset = "gpt-10m", .options = "kv_heads = 4\n"},
    {.name = "gelu", .preset = "gpt-10m", .options = "kv_heads = 4\nmlp = \"gelu\"\nnorm_eps = 1e-3\n"},
    {.name = "llama", .run = "precision = \"bf16\"\n"},
    {.name = "seed", .run = "seed = 2\n"},
    moe("moe", "moe.aux_scope = \"micro_batch\"\n"),
    moe("moe_global", ""),
    moe("moe_softmax_last",
        "moe.aux_scope = \"micro_batch\"\nmoe.score = \"softmax_last\"\nmoe.normalize = false\nmoe.scale = "
        "1.5\n"),
    moe("moe_sigmoid",
        "moe.score = \"sigmoid\"\nmoe.balance = \"sign\"\nmoe.aux_coefficient = 0.0\n"
        "moe.sequence_aux_coefficient = 1e-2\nmoe.shared_hidden = 8\n"),
    moe("moe_balance_rate",
        "moe.aux_scope = \"micro_batch\"\nmoe.balance = \"sign\"\nmoe.balance_rate = 2e-2\n"),
    moe("moe_aux_scope", "moe.aux_scope = \"last_step\"\n"),
    {.name = "moe_bf16", .preset = "moe-small", .run = "precision = \"bf16\"\n"},
    {.name = "moe_bf16_router",
     .preset = "moe-small",
     .options = "moe.router_precision = \"bf16\"\n",
     .run = "precision = \"bf16\"\n"},
    moe("moe_first_dense", "moe.aux_scope = \"micro_batch\"\nmoe.first_dense = 1\n"),
    moe("moe_groups",
        "moe.aux_scope = \"micro_batch\"\nmoe.groups = 4\nmoe.groups_kept = 2\nmoe.z_coefficient = 1e-3\n"),
    moe("moe_latent", "moe.aux_scope = \"micro_batch\"\nmoe.latent = 12\n"),
    moe("moe_capacity", "moe.aux_scope = \"micro_batch\"\nmoe.capacity_factor = 0.75\n"),
    moe("moe_position",
        "moe.aux_scope = \"micro_batch\"\nmoe.capacity_factor = 0.75\nmoe.drop = "
        "\"position\"\nmoe.pad_to_capacity = true\n"),
    moe("moe_sinkhorn", "moe.selection = \"sinkhorn\"\nmoe.normalize = false\nmoe.aux_coefficient = 0.0\n"),
    {.name = "moe_expert_choice",
     .preset = "moe-small",
     .options = "moe.selection = \"expert_choice\"\nmoe.allow_future_tokens = true\nmoe.capacity_factor = "
                "1.0\nmoe.normalize = "
                "false\nmoe.aux_coefficient = 0.0\n",
     .prompts = ""},
    zaya("zaya", ""),
    zaya("zaya_dense", "moe.experts = 0\n"),
    zaya("zaya_sign", "moe.balance = \"sign\"\n"),
    zaya("zaya_no_skip", "moe.skip_class = false\nmoe.router_init = \"std\"\n"),
    model("geglu", "mlp = \"geglu\"\n"),
    model("relu2", "mlp = \"relu2\"\nrotary_fraction = 0.5\n"),
    model("heads", "heads = 3\nkv_heads = 3\nvocab = 40\n"),
    model("attention_bias", "attention_bias = true\n"),
    model("mlp_bias", "mlp_bias = true\n"),
    model("layer_norm", "norm = \"layer\"\nnorm_eps = 1e-3\n"),
    model("no_positions", "position = \"none\"\n"),
    model("learned_positions", "position = \"learned\"\n"),
    model("interleaved", "interleaved_rope = true\n"),
    model("window", "window = 7\nwindow_pattern = \"SF\"\nwindow_rope_theta = 100.0\n"),
    model("softcap", "logit_softcap = 2.0\nattention_scale = 0.5\n"),
    model("norms_after", "norm_position = \"after\"\nqk_norm = true\nqk_norm_joint = true\n"),
    model(
        "norms_both",
        "norm_position = \"both\"\nnorm_offset = 1.0\nmlp = \"geglu\"\nwindow = 7\nwindow_pattern = \"SF\"\n"
        "window_rope_scaling = false\nrope_scaling.kind = \"linear\"\nrope_scaling.factor = 2.0\n"),
    model("factors", "embedding_scale = 3.0\nsublayer_scale = 0.5\nlogit_divisor = 2.0\n"),
    model("qkv_bias", "attention_bias = true\nattention_out_bias = false\n"),
    model("nope", "rope_pattern = \"RN\"\n"),
    model("half_truncated", "half_truncated_rope = true\nrope_theta = 1024.0\nqk_norm = true\n"),
    model("rope_linear", "rope_scaling.kind = \"linear\"\nrope_scaling.factor = 4.0\n"),
    model("rope_scaling",
          "rope_scaling.kind = \"llama3\"\nrope_scaling.factor = 8.0\nrope_scaling.original_context = 24\n"),
    model("rope_llama3_factors",
          "rope_scaling.kind = \"llama3\"\nrope_scaling.factor = 8.0\nrope_scaling.original_context = 24\n"
          "rope_scaling.low_freq_factor = 0.5\nrope_scaling.high_freq_factor = 2.0\n"),
    model("yarn",
          "rope_scaling.kind = \"yarn\"\nrope_scaling.factor = 4.0\nrope_scaling.original_context = 12\n"),
    model(
        "yarn_betas",
        "rope_scaling.kind = \"yarn\"\nrope_scaling.factor = 4.0\nrope_scaling.original_context = 12\n"
        "rope_scaling.beta_fast = 2.0\nrope_scaling.beta_slow = 0.25\nrope_scaling.attention_factor = 0.9\n"),
    model("yarn_mscale",
          "rope_scaling.kind = \"yarn\"\nrope_scaling.factor = 4.0\nrope_scaling.original_context = 12\n"
          "rope_scaling.mscale = 1.0\nrope_scaling.mscale_all_dim = 0.7\n"),
    model("mla",
          "kv_heads = 4\nhead_width = 0\nattention = \"mla\"\ninterleaved_rope = true\nmla.q_rank = "
          "10\nmla.kv_rank = 12\n"
          "mla.nope_width = 6\nmla.rope_width = 4\nmla.value_width = 7\n"),
    model("mla_direct",
          "kv_heads = 4\nhead_width = 0\nattention = \"mla\"\nmla.kv_rank = 12\nmla.norm_eps = 1e-2\n"
          "mla.nope_width = 6\nmla.rope_width = 4\nmla.value_width = 7\n"),
    model("mtp", "mtp.depths = 2\nmtp.coefficient = 0.3\n"),
    model("mtp_shared", "mtp.depths = 2\nmtp.shared = true\n"),
    model("no_attention", "attention_pattern = \"AN\"\nnorm_weight = false\n"),
    model("embedding_norm", "embedding_norm = true\n"),
    model("input_mix", "input_mix = true\n"),
    model("unet_skips", "unet_skips = true\n"),
    model("value_embeddings", "value_embeddings = 1\n"),
    model("head_multiple", "head_multiple = 16\n"),
    model("head_cap_tanh", "head_cap.kind = \"tanh\"\nhead_cap.cap = 1.5\n"),
    model("head_cap_sigmoid", "head_cap.kind = \"sigmoid\"\nhead_cap.cap = 5.0\nhead_cap.divisor = 3.0\n"),
    {.name = "record",
     .options =
         "qk_norm = true\nnorm_weight = false\nembedding_norm = true\ninput_mix = true\nunet_skips = true\n"
         "value_embeddings = 1\nwindow = 16\nwindow_block = 8\nwindow_pattern = \"SH\"\nmlp = "
         "\"relu2\"\ntied = false\n"
         "head_multiple = 16\nhead_cap.kind = \"sigmoid\"\n",
     .stage = "window_growth = 12\n"},
    model("init_std", "init_std = 0.05\nscale_output_init = true\n"),
    model("init_rules",
          "init = [{ pattern = \"*.down.weight\", kind = \"truncated\", residual_scaled = true }, "
          "{ pattern = \"*.qkv.weight\", kind = \"uniform\" }, { pattern = \"*.out.weight\", kind = \"zero\" "
          "}, "
          "{ pattern = \"*.gate_up.weight\", kind = \"fan_in\", gain = 0.7 }]\n"),
    model("init_normal", "init = [{ pattern = \"*\", kind = \"normal\", std = 0.07 }]\n"),
    model("mup", "tied = false\nmup_base_width = 8\n"),
    model("untied", "tied = false\n"),
    model("lora", "lora.rank = 3\nlora.alpha = 6.0\n"),
    model("lora_targets", "lora.rank = 2\nlora.targets = [\"*.attention.*\"]\n"),
    second_stage("stage_theta", "rope_theta = 1_000_000.0\n"),
    second_stage("schedule_constant", "schedule = \"constant\"\n"),
    second_stage("schedule_continues", "continues = true\n"),
    second_stage("schedule_cosine", "schedule = \"cosine\"\nmin_lr_ratio = 0.1\n"),
    second_stage("schedule_linear", "schedule = \"linear\"\n"),
    second_stage("schedule_wsd_cosine", "decay_fraction = 0.6\ndecay_shape = \"cosine\"\n"),
    second_stage("schedule_wsd_sqrt", "decay_fraction = 0.6\ndecay_shape = \"sqrt\"\n"),
    second_stage("schedule_piecewise",
                 "schedule = \"piecewise\"\nsegments = [{ until = 0.5, to = 1.0 }, { until = 1.0, to = 0.2, "
                 "shape = \"sqrt\" }]\n"),
    second_stage("schedule_shapes",
                 "schedule = \"piecewise\"\nsegments = [{ until = 0.5, to = 0.4, shape = \"linear\" }, "
                 "{ until = 1.0, to = 0.1, shape = \"cosine\" }]\n"),
    second_stage("z_loss", "z_coefficient = 1e-3\n"),
    second_stage("batches",
                 "batch_rate = \"sqrt\"\n[[phases.batches]]\ntokens = 400\nbatch = "
                 "6\n[[phases.batches]]\nloss = 20.0\nbatch = 8\n"),
    {.name = "mixture",
     .stage = "weights = [{ source = \"words\", weight = 0.25 }, { source = \"more\", weight = 0.75 }]\n",
     .sections = "[[data.sources]]\nname = \"more\"\npath = \"{0}/text.txt\"\ndocuments = "
                 "\"blank_line\"\nweight = 3.0\n"},
    optimizer("adamw", "[optimizer]\nmatrices = \"adamw\"\nclip = 0.1\n"),
    optimizer(
        "adamw_numbers",
        "[optimizer]\nmatrices = \"adamw\"\nbeta1 = 0.8\nbeta2 = 0.9\neps = 1e-4\nweight_decay = 1.0\n"),
    optimizer("ademamix", "[optimizer]\nmatrices = \"ademamix\"\nothers = \"ademamix\"\n"),
    optimizer("ademamix_numbers",
              "[optimizer]\nmatrices = \"ademamix\"\nademamix.beta3 = 0.99\nademamix.alpha = "
              "2.0\nademamix.warmup = 7\n"),
    optimizer("muon_lerp",
              "[optimizer]\nmuon.form = \"lerp\"\nmuon.nesterov = false\nmuon.scale = \"spectral\"\n"),
    optimizer("muon_momenta",
              "[optimizer]\nmuon.scale = \"none\"\nmuon.momentum_warmup = 5\nmuon.momentum_cooldown = 6\n"),
    optimizer("muon_ends",
              "[optimizer]\nmuon.momentum_warmup = 5\nmuon.momentum_start = 0.5\nmuon.momentum_cooldown = "
              "6\nmuon.momentum_end = 0.6\n"),
    optimizer("muon_bf16", "[optimizer]\nmuon.precision = \"bf16\"\n"),
    optimizer("muon_without_momentum", "[optimizer]\nmuon.momentum = 0.0\nmuon.lr_multiplier = 2.0\n"),
    optimizer("moments_bf16", "[optimizer]\nfirst_moment = \"bf16\"\nsecond_moment = \"bf16_stochastic\"\n"),
    optimizer("moments_stochastic",
              "[optimizer]\nfirst_moment = \"bf16_stochastic\"\nsecond_moment = \"bf16\"\n"),
    optimizer("qk_clip", "[optimizer]\nqk_clip = 0.02\n"),
    optimizer("qk_clip_alpha", "[optimizer]\nqk_clip = 0.02\nqk_clip_alpha = 0.2\n"),
    optimizer("patterns",
              "[optimizer]\nweight_decay = 1.0\nno_decay = [\"*.qkv.*\"]\nnot_muon = [\"*embed*\", "
              "\"*.down.*\"]\n"),
    optimizer("optimizer_rules",
              "[[optimizer.rules]]\npattern = \"*.out.weight\"\noptimizer = \"adamw\"\nlr_multiplier = "
              "0.5\ndecay_multiplier = 2.0\n"),
    optimizer("optimizer_mix",
              "[optimizer]\nmatrices = \"adamw\"\n[[optimizer.rules]]\npattern = \"*.out.weight\"\noptimizer "
              "= \"muon\"\n"
              "[[optimizer.rules]]\npattern = \"*.down.weight\"\noptimizer = \"ademamix\"\n"),
    optimizer("freeze", "[optimizer]\nfreeze = [\"embed.*\", \"layers.0.*\"]\n"),
    {.name = "best_fit",
     .data = "sampling = \"best_fit\"\ndrop_too_long = true\n",
     .source = "path = \"{0}/rows.jsonl\"\nfield = \"ask\"\n"},
    data_of("random_rows", "sampling = \"random\"\n"),
    data_of("no_document_mask", "document_mask = false\n"),
    data_of("no_end_of_text", "end_of_text = false\n"),
    data_of("end_of_text_first", "end_of_text_first = true\n"),
    data_of("begin_of_text", "begin_of_text = true\n"),
    source("whole_file", "path = \"{0}/text.txt\"\ndocuments = \"whole_file\"\ntail_validation = true\n"),
    source(
        "marker",
        "path = \"{0}/text.txt\"\ndocuments = \"marker\"\nmarker = \"river\"\nvalidation_fraction = 0.1\n"),
    source("more_held_out",
           "path = \"{0}/text.txt\"\ndocuments = \"blank_line\"\nvalidation_fraction = 0.3\n"),
    source("completions", "path = \"{0}/rows.jsonl\"\nfield = \"answer\"\nprompt_field = \"ask\"\n"),
    {.name = "fp8",
     .sections = "[memory]\nfp8 = [\"activation\", \"add_norm.h\"]\n",
     .run = "precision = \"bf16\"\n"},
    {.name = "bpe", .tokenizer = "vocab = 300\npattern = \"llama3\"\n"},
    {.name = "tokenizer_path", .tokenizer = "path = \"{0}/../exchange/llama_text\"\n"},
};

inline std::string stage_text(const std::string& name, int steps, const std::string& more) {
  return fmt::format(
      "[[phases]]\nname = \"{}\"\nsteps = {}\nbatch = 4\nmicro_batch = 2\nsequence = 48\nwarmup = 3\nlr = "
      "1e-2\n{}",
      name, steps, more);
}

/// The recipe of a case, run in `folder`.
inline std::string recipe_of(const std::string& folder, const Case& c) {
  const auto filled = [](const char* lines) { return fmt::format(fmt::runtime(lines), fixture("golden")); };
  const std::string stages = *c.stage == 0 ? stage_text("only", 20, "")
                                           : stage_text("first", 10, "") + stage_text("second", 10, c.stage);
  std::string common;
  for (const char* line : {"heads = 4\n", "kv_heads = 2\n", "head_width = 8\n"}) {
    const std::string key = std::string("\n") + line, start = key.substr(0, key.find('=') + 1);
    if (("\n" + std::string(c.options)).find(start) == std::string::npos) common += line;
  }
  return fmt::format(
      "[run]\nfolder = \"{0}/run\"\n{1}[tokenizer]\n{2}[data]\nfolder = \"{0}/data\"\n{3}"
      "[[data.sources]]\nname = \"words\"\n{4}[samples]\nprompts = [{5}]\ntokens = 4\n{6}"
      "[model]\npreset = \"{7}\"\nwidth = 24\nlayers = 2\nhidden = 40\ncontext = 48\n{8}{9}"
      "moe.hidden = 16\nmoe.router_width = 8\n{10}{11}",
      folder, c.run, filled(c.tokenizer), c.data, filled(c.source), c.prompts, stages, c.preset, common,
      c.options,
      std::string(c.options).find("moe.balance_rate") == std::string::npos ? "moe.balance_rate = 1e-3\n" : "",
      filled(c.sections));
}

}  // namespace ingot::test
