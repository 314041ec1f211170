// What each family's config.json means: its own defaults and windows, and refusals that name the field. What
// transformers computes for thousands of such files is in config_fuzz_oracle_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/huggingface.h"
#include "models/presets.h"
#include "support/expect_parts.h"
#include "support/support.h"

namespace ingot::test::huggingface_config_test {

using nlohmann::json;

json config_of(const std::string& fixture_name) {
  return json::parse(read_text(fixture("exchange/" + fixture_name + "/config.json")));
}

ModelConfig read(const json& config) {
  return model_from_huggingface(config.dump(), "config.json");
}

/// The fixture's config with these fields, and without those that are "absent".
json changed(const std::string& fixture_name, const json& fields) {
  json config = config_of(fixture_name);
  for (const auto& [name, value] : fields.items())
    if (value == "absent")
      config.erase(name);
    else
      config[name] = value;
  return config;
}

std::string refusal(const std::string& fixture_name, const json& fields) {
  return message_of([&] { read(changed(fixture_name, fields)); });
}

std::string export_refusal(const ModelConfig& m) {
  return message_of([&] {
    const HuggingfaceLayout layout = huggingface_layout(m);
    huggingface_tensors(Decoder(m), layout);
    huggingface_config(m, layout, {});
  });
}

TEST(HuggingfaceFields, AbsentFieldsHaveTheFamilysOwnDefaults) {
  const ModelConfig mixtral =
      read(changed("mixtral", {{"rms_norm_eps", "absent"}, {"rope_parameters", "absent"}}));
  EXPECT_EQ(mixtral.norm_eps, 1e-5);
  EXPECT_EQ(mixtral.rope_theta, 1e6);
  EXPECT_EQ(mixtral.window, 0);
  const ModelConfig zaya = read(changed("zaya", {{"rms_norm_eps", "absent"}, {"rope_parameters", "absent"}}));
  EXPECT_EQ(zaya.norm_eps, 1e-5);
  EXPECT_EQ(zaya.rope_theta, 5e6);
  EXPECT_EQ(zaya.rotary_fraction, 0.5);
  EXPECT_EQ(read(changed("smollm3", {{"rope_parameters", "absent"}})).rope_theta, 2e6);
  EXPECT_EQ(read(changed("mistral", {{"sliding_window", "absent"}})).window, 4096);
  expect_parts(refusal("deepseek_v3", {{"n_group", "absent"}}), {"'n_group' is absent", "no equal groups"});
}

TEST(HuggingfaceFields, WindowsAreThoseThatTheFamilyReads) {
  const json slides = {{"use_sliding_window", true}, {"sliding_window", 5}};
  json later = slides;
  later["max_window_layers"] = 1;
  later["layer_types"] = "absent";
  EXPECT_EQ(read(changed("qwen3_moe", later)).window_pattern, "") << "all layers";
  EXPECT_EQ(read(changed("qwen3", later)).window_pattern, "FS");
  later["max_window_layers"] = "absent";
  EXPECT_EQ(read(changed("qwen3", later)).window, 0) << "28 layers see all";
  later["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_EQ(read(changed("qwen3", later)).window_pattern, "SF");
  expect_parts(refusal("qwen3_moe", later), {"'layer_types'", "all layers slide"});
  expect_parts(refusal("qwen3", {{"layer_types", later["layer_types"]}, {"use_sliding_window", false}}),
               {"'layer_types'", "no window"});
  json smollm3 = slides;
  smollm3["layer_types"] = "absent";
  EXPECT_EQ(read(changed("smollm3", smollm3)).window_pattern, "FFFS") << "the layer without rotation";
  EXPECT_EQ(read(changed("mistral",
                         {{"sliding_window", 5}, {"use_sliding_window", false}, {"max_window_layers", 1}}))
                .window_pattern,
            "");
  expect_parts(refusal("llama", {{"sliding_window", 5}}), {"'sliding_window' is 5", "no windows"});
}

TEST(HuggingfaceFields, YarnsTwoScalesMeanWhatTheFamilyMakesOfThem) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0},         {"original_max_position_embeddings", 16},
                     {"mscale", 0.7},       {"mscale_all_dim", 1.0}, {"rope_theta", 1000.0}};
  const ModelConfig llama = read(changed("llama", {{"rope_parameters", yarn}}));
  EXPECT_EQ(llama.attention_scale_of(), read(config_of("llama")).attention_scale_of());
  const RopeScalingConfig of_both{.factor = 4};
  EXPECT_EQ(llama.rotary_of(0).magnitude, of_both.yarn_magnitude(0.7) / of_both.yarn_magnitude(1));
  const ModelConfig deepseek = read(changed("deepseek_v3", {{"rope_parameters", yarn}}));
  EXPECT_GT(deepseek.attention_scale_of(), read(config_of("deepseek_v3")).attention_scale_of());
  for (const ModelConfig& m : {llama, deepseek})
    EXPECT_TRUE(architecture_differences(
                    m, model_from_huggingface(huggingface_config(m, huggingface_layout(m), {}), "back"))
                    .empty());
  ModelConfig ours = model_preset("llama-small");
  ours.vocab = 64;
  ours.rope_scaling = {
      .kind = RopeScalingKind::yarn, .factor = 4, .original_context = 16, .mscale = 0.7, .mscale_all_dim = 1};
  expect_parts(export_refusal(ours), {"llama cannot express", "rope_scaling.mscale_all_dim: 1"});
}

TEST(HuggingfaceFields, TheOlderDialectOfRotationsWins) {
  const json linear = {{"rope_type", "linear"}, {"factor", 2.0}};
  const ModelConfig m = read(changed("llama", {{"rope_theta", 300.0}, {"rope_scaling", linear}}));
  EXPECT_EQ(m.rope_scaling.kind, RopeScalingKind::linear);
  EXPECT_EQ(m.rope_theta, 300.0) << "not that of rope_parameters";
  EXPECT_EQ(read(changed("llama", {{"rope_scaling", json::object()}, {"rope_theta", 300.0}})).rope_theta,
            10000.0);
}

TEST(HuggingfaceFields, WhatIsNotDoneIsRefusedByName) {
  const struct {
    const char* name;
    json fields;
    std::vector<std::string> parts;
  } cases[] = {
      {"zaya", {{"attention_bias", true}}, {"config.json", "'attention_bias' is true", "zaya"}},
      {"zaya", {{"layer_types", {"hybrid", "hybrid_sliding", "hybrid"}}}, {"'layer_types'", "sliding"}},
      {"zaya", {{"rope_theta", 1.0}}, {"'rope_theta' is 1.0", "hybrid"}},
      {"mixtral", {{"attention_bias", true}}, {"'attention_bias' is true", "no biases"}},
      {"gpt2", {{"tie_word_embeddings", false}}, {"'tie_word_embeddings' is false", "head"}},
      {"llama", {{"partial_rotary_factor", 0.5}}, {"'partial_rotary_factor' is 0.5", "whole head"}},
      {"llama", {{"is_causal", false}}, {"'is_causal' is false"}},
      {"llama", {{"quantization_config", {{"quant_method", "fp8"}}}}, {"'quantization_config'", "not read"}},
      {"llama",
       {{"sliding_windw", 5}},
       {"'sliding_windw' is 5", "family llama", "there is 'sliding_window'", "take it out"}},
      {"llama", {{"rope_parameters", {{"rope_type", "longrope"}}}}, {"'rope_type' is \"longrope\""}},
      {"llama", {{"rope_parameters", {{"short_factor", {1}}}}}, {"'short_factor'", "rope_parameters"}},
      {"llama", {{"rms_norm_eps", -1}}, {"'rms_norm_eps' is -1", "a number from"}},
      {"llama", {{"rms_norm_eps", 1e308}}, {"'rms_norm_eps'"}},
      {"llama", {{"rms_norm_eps", 0}}, {"'rms_norm_eps' is 0", "a number from"}},
      {"llama",
       {{"max_position_embeddings", 1 << 30}},
       {"config.json", "context: must be at most 67108864, found 1073741824"}},
      {"llama", {{"eos_token_id", {1, 61}}}, {"'eos_token_id' is [1,61]", "from 0 to 60"}},
      {"llama", {{"bos_token_id", "x"}}, {"'bos_token_id' is \"x\""}},
      {"llama", {{"hidden_size", "absent"}}, {"'hidden_size' is missing"}},
      {"dots1", {{"n_group", 6}, {"topk_group", 6}}, {"'n_group' is 6", "two or more"}},
      {"deepseek_v3", {{"num_key_value_heads", 2}}, {"'num_key_value_heads' is 2"}},
      {"qwen3_moe", {{"mlp_only_layers", {0}}}, {"'mlp_only_layers' is [0]"}},
      {"qwen3_moe",
       {{"num_hidden_layers", 4096}, {"num_local_experts", 4096}},
       {"4096 layers of 4096 experts"}},
  };
  for (const auto& c : cases) expect_parts(refusal(c.name, c.fields), c.parts);
}

TEST(HuggingfaceFields, ManyGroupsWithoutALimitAreNone) {
  const ModelConfig m =
      read(changed("dots1", {{"n_group", 3}, {"topk_group", 3}, {"num_experts_per_tok", 4}}));
  EXPECT_EQ(m.moe.groups, 1);
}

TEST(HuggingfaceFields, ExportNamesTheOptionOrTheParameterThatHasNoPlace) {
  const auto model = [](const char* name, const auto& change) {
    ModelConfig m = read(config_of(name));
    change(m);
    return m;
  };
  expect_parts(export_refusal(model("zaya", [](ModelConfig& m) { m.attention_bias = true; })),
               {"zaya", "attention_bias = true"});
  expect_parts(export_refusal(model("gpt2", [](ModelConfig& m) { m.mlp = ActivationKind::geglu; })),
               {"gpt2", "mlp = geglu"});
  expect_parts(export_refusal(model("mixtral", [](ModelConfig& m) { m.attention_bias = true; })),
               {"mixtral", "attention_bias = true"});
  expect_parts(
      export_refusal(model("qwen3_moe", [](ModelConfig& m) { m.window = 5, m.window_pattern = "SF"; })),
      {"qwen3_moe cannot express", "'layer_types'"});
  expect_parts(export_refusal(model("gpt2",
                                    [](ModelConfig& m) {
                                      m.rope_scaling = {.kind = RopeScalingKind::yarn,
                                                        .factor = 4,
                                                        .original_context = 16,
                                                        .mscale_all_dim = 1};
                                    })),
               {"gpt2 cannot express", "attention_scale"});
  ModelConfig yarn = read(config_of("zaya"));
  yarn.rope_scaling = {.kind = RopeScalingKind::yarn, .factor = 4, .original_context = 16};
  EXPECT_EQ(export_refusal(yarn), "");
  // Whatever option adds a parameter, the table of parameters tells.
  ModelConfig plain = read(config_of("llama"));
  const HuggingfaceLayout llama{.family = "llama"};
  plain.attention_bias = plain.embedding_norm = true;
  expect_parts(message_of([&] { huggingface_tensors(Decoder(plain), llama); }),
               {"llama has no tensors", "'embedding_norm.weight'"});
}

}  // namespace ingot::test::huggingface_config_test
