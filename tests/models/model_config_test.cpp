// ModelConfig: the attention of each layer as its patterns say, messages for what cannot be, counts of
// presets.
#include <gtest/gtest.h>

#include <cmath>

#include "models/decoder.h"
#include "models/presets.h"
#include "support/support.h"
#include "train/recipe.h"

namespace ingot::test::model_config_test {

std::string message_of(const ModelConfig& m) {
  try {
    Decoder decoder(m);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

ModelConfig small() {
  ModelConfig m = model_preset("llama-small");
  m.vocab = 61;
  return m;
}

void expect_message(const ModelConfig& m, const std::string& part) {
  EXPECT_NE(message_of(m).find(part), std::string::npos)
      << "wanted: " << part << "\nfound: " << message_of(m);
}

TEST(ModelConfig, PatternsRepeatOverTheLayers) {
  ModelConfig m = small();
  m.layers = 6;
  m.window = 32;
  m.window_pattern = "SSF";
  m.rope_pattern = "RRRN";
  m.window_rope_theta = 100;
  m.rope_theta = 5000;
  EXPECT_EQ(message_of(m), "");
  const int64_t windows[] = {32, 32, 0, 32, 32, 0}, dims[] = {64, 64, 64, 0, 64, 64};
  for (int64_t l = 0; l < 6; ++l) {
    EXPECT_EQ(m.window_of(l), windows[l]) << l;
    EXPECT_EQ(m.rotary_of(l).dims, dims[l]) << l;
    if (dims[l] == 0) continue;
    EXPECT_EQ(m.rotary_of(l).theta, windows[l] > 0 ? 100 : 5000) << l;
  }
  Decoder decoder(m);
  decoder.set_rope_theta(7000);
  EXPECT_EQ(decoder.config().rotary_of(2).theta, 7000);
  EXPECT_EQ(decoder.config().rotary_of(1).theta, 100);
  // Windows are counted as windows: 4 layers see 32 keys, 2 see 1000.
  EXPECT_EQ(training_flops_per_token(decoder, 1000),
            6.0 * static_cast<double>(count_parameters(decoder).active) + 12.0 * (4 * 32 + 2 * 1000) * 256);
}

TEST(ModelConfig, ScalesOfYarn) {
  ModelConfig m = small();
  EXPECT_EQ(m.attention_scale_of(), 0.125);
  m.rope_scaling = {.kind = RopeScalingKind::yarn, .factor = 40, .original_context = 4096};
  EXPECT_DOUBLE_EQ(m.rotary_of(0).magnitude, 0.1 * std::log(40) + 1);
  m.rope_scaling.mscale = m.rope_scaling.mscale_all_dim = 1;  // DeepSeek-V3: vectors stay, logits grow
  EXPECT_EQ(m.rotary_of(0).magnitude, 1);
  EXPECT_DOUBLE_EQ(m.attention_scale_of(), 0.125 * std::pow(0.1 * std::log(40) + 1, 2));
}

TEST(ModelConfig, ErrorsSayWhatToDo) {
  const auto with = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig m = small();
    change(m);
    return m;
  };
  expect_message(with([](ModelConfig& m) { m.rope_pattern = "RRX"; }), "one per layer, for example \"RRRN\"");
  expect_message(with([](ModelConfig& m) { m.rope_pattern = "RRRRRRRN"; }), "has 8 letters for 6 layers");
  expect_message(with([](ModelConfig& m) { m.window_pattern = "SF"; }),
                 "window is 0; set window to its width");
  expect_message(with([](ModelConfig& m) { m.window = -1; }), "must not be negative");
  expect_message(with([](ModelConfig& m) { m.window_rope_theta = 10; }), "no layer has a window");
  expect_message(with([](ModelConfig& m) { m.position = PositionKind::none, m.rope_pattern = "RN"; }),
                 "position is none");
  expect_message(with([](ModelConfig& m) { m.half_truncated_rope = true, m.rotary_fraction = 0.09375; }),
                 "in fours");
  expect_message(with([](ModelConfig& m) { m.rope_scaling.kind = RopeScalingKind::llama3; }),
                 "needs the context that the model was trained with before");
  expect_message(
      with([](ModelConfig& m) { m.rope_scaling = {.kind = RopeScalingKind::linear, .factor = 0.5}; }),
      "must be at least 1, found 0.5");
  expect_message(with([](ModelConfig& m) {
                   m.half_truncated_rope = true;
                   m.rope_scaling = {.kind = RopeScalingKind::linear, .factor = 2};
                 }),
                 "choose one of the two");
  expect_message(with([](ModelConfig& m) { m.logit_softcap = -1; }), "must not be negative");
}

TEST(ModelConfig, LatentAttentionSaysWhatItNeeds) {
  ModelConfig m = small();
  m.attention = AttentionKind::mla;
  expect_message(m, "mla.kv_rank: attention = \"mla\" needs it: DeepSeek-V3 has kv_rank 512");
  m.mla = {0, 24, 16, 7, 16};
  expect_message(m, "channels turn in pairs, found 7");
  expect_message(m, "set kv_heads to it, found 2");
  m.mla.rope_width = 8;
  m.kv_heads = m.heads;
  EXPECT_EQ(message_of(m), "");
  EXPECT_EQ(m.cache_width(), 32);
  m.qk_norm = true;
  expect_message(m, "norms its latents instead");
  m = small();
  m.mla.kv_rank = 8;
  expect_message(m, "is set, but attention is gqa");
}

TEST(ModelConfig, DeepSeekV3sAttentionHasItsPublishedShape) {
  ModelConfig m = small();
  m.width = 7168;
  m.heads = m.kv_heads = 128;
  m.layers = 1;
  m.attention = AttentionKind::mla;
  m.mla = {1536, 512, 128, 64, 128};
  const Decoder decoder(m);
  int64_t attention = 0;
  for (int i = 0; i < decoder.table().size(); ++i)
    if (decoder.table()[i].name.rfind("layers.0.attention.", 0) == 0)
      attention += decoder.table()[i].shape.numel();
  // megatron-moe: 1536 (h + 128 * 192 + 1) + 512 (h + 128 * 256 + 1) + h 64 + 128 * 128 h
  EXPECT_EQ(attention,
            1536 * (7168 + 128 * 192 + 1) + 512 * (7168 + 128 * 256 + 1) + 7168 * 64 + 128 * 128 * 7168);
  EXPECT_EQ(61 * 2 * m.cache_width(), 70272);  // bytes per token of the whole model in bf16
}

TEST(ModelConfig, StagesChangeTheBaseOfTheRotation) {
  Recipe r;
  r.model.rope_theta = 10000;
  r.phases = {PhaseConfig{}, PhaseConfig{}, PhaseConfig{}};
  r.phases[1].rope_theta = 2e6;
  EXPECT_EQ(r.rope_theta_of(0), 10000);
  EXPECT_EQ(r.rope_theta_of(1), 2e6);
  EXPECT_EQ(r.rope_theta_of(2), 2e6);
}

TEST(ModelConfig, StagesGrowTheWindow) {
  Recipe r;  // modded-nanogpt's: 128 tokens at first, 1792 at the end
  r.model = model_preset("modded-nanogpt");
  r.phases = {PhaseConfig{}, PhaseConfig{}};
  r.phases[0].steps = 1770;
  r.phases[0].window_growth = 1728;
  for (const auto& [step, window] : {std::pair<int64_t, int64_t>{0, 128},
                                     {1, 128},
                                     {131, 128},
                                     {132, 256},
                                     {300, 384},
                                     {1062, 1152},
                                     {1769, 1792},
                                     {1770, 1792}})
    EXPECT_EQ(r.window_at(0, step), window) << step;
  EXPECT_EQ(r.window_at(1, 5), 1792) << "as before";
  r.phases[0].window_growth = 0;
  EXPECT_EQ(r.window_at(0, 5), 1792) << "the model's";
  // Layers with the letter H have half the blocks, at least one; layer 7 does not attend.
  Decoder d(r.model);
  d.set_window(384);
  const int64_t windows[] = {384, 128, 128, 128, 384, 128, 128, 384, 128, 128, 128, 384};
  for (int64_t l = 0; l < 12; ++l) EXPECT_EQ(d.config().window_of(l), windows[l]) << l;
  d.set_window(128);
  EXPECT_EQ(d.config().window_of(1), 128);
  EXPECT_FALSE(d.config().attends(7));
  EXPECT_EQ(d.config().cache_layer(8), 7);
}

TEST(ModelConfig, OptionsOfTheRecordSayWhatTheyNeed) {
  const auto expect = [](const char* part, const std::function<void(ModelConfig&)>& change) {
    ModelConfig m = small();
    change(m);
    expect_message(m, part);
  };
  expect("word of the letters AN", [](ModelConfig& m) { m.attention_pattern = "AB"; });
  expect("leaves no layer that attends", [](ModelConfig& m) { m.attention_pattern = "N"; });
  expect("layer 5 reads a table", [](ModelConfig& m) { m.value_embeddings = 1, m.attention_pattern = "AN"; });
  expect("reads a table", [](ModelConfig& m) {  // and no length of a model makes the check slow
    m.layers = 10000, m.value_embeddings = 5000, m.attention_pattern = "AN";
  });
  expect("norms of latent attention's latents", [](ModelConfig& m) {
    m.attention = AttentionKind::mla, m.kv_heads = m.heads, m.norm_weight = false;
  });
  expect("must be different ones", [](ModelConfig& m) { m.value_embeddings = 4; });
  expect("even number of layers", [](ModelConfig& m) { m.layers = 5, m.unet_skips = true; });
  expect("need residual = \"plain\"",
         [](ModelConfig& m) { m.residual = ResidualKind::scaled, m.input_mix = true; });
  expect("window = 100 must be a multiple", [](ModelConfig& m) { m.window = 100, m.window_block = 64; });
  expect("head_multiple: must be at least 1, found 0", [](ModelConfig& m) { m.head_multiple = 0; });
  expect("head_cap.cap: must be positive", [](ModelConfig& m) { m.head_cap = {HeadCapKind::tanh, 0, 0}; });
}

TEST(ModelConfig, CapsOfTheHead) {
  ModelConfig m = model_preset("modded-nanogpt");
  const SoftCap cap = m.head_cap_of();
  for (const double z : {-2000.0, -3.0, 0.0, 40.0, 900.0})
    EXPECT_NEAR(cap.value(z), 30 / (1 + std::exp(-z / (7.5 * std::sqrt(768)))), 1e-12) << z;
  m.head_cap.kind = HeadCapKind::tanh;
  EXPECT_NEAR(m.head_cap_of().value(40), 30 * std::tanh(40.0 / 30), 1e-12);
}

TEST(ModelConfig, PresetsHaveThePublishedCounts) {
  const std::pair<const char*, int64_t> published[] = {
      {"gpt2", 124439808},           {"gpt2-medium", 354823168}, {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},       {"llama3-8b", 8030261248},  {"llama-3.2-1b", 1235814400},
      {"smollm3-3b", 3075098624},    {"mixtral", 46702792704},   {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},    {"qwen3-4b", 4022468096},   {"qwen3-8b", 8190735360},
      {"qwen3-14b", 14768307200},    {"qwen3-32b", 32762123264}, {"qwen3-moe", 30532122624},
      {"zaya1-base", 8840488784},    {"zaya1-8b", 8840488784},   {"deepseek-v3", 671026404352},
      {"modded-nanogpt", 275598388},
  };
  for (const auto& [name, total] : published)
    EXPECT_EQ(count_parameters(Decoder(model_preset(name))).total, total) << name;
}

TEST(ModelConfig, Zaya1HasItsPublishedParts) {
  const ParameterCounts n = count_parameters(Decoder(model_preset("zaya1-8b")));
  EXPECT_EQ(n.without_embedding, 8303355728);
  EXPECT_EQ(n.active_without_embedding, 753608528);
}

/// The playbook's attention ablations of its 1B baseline: heads, key-value heads, layers, tied, count.
TEST(ModelConfig, TenCountsOfTheSmolTrainingPlaybook) {
  struct Row {
    int64_t kv_heads, layers;
    bool tied;
    int64_t total;
  };
  const Row rows[] = {{1, 16, true, 1206454272},  {2, 16, true, 1210648576},  {4, 16, true, 1219037184},
                      {8, 16, true, 1235814400},  {16, 15, true, 1206450176}, {32, 14, true, 1202251776},
                      {16, 16, true, 1269368832}, {32, 16, true, 1336477696}, {8, 16, false, 1498482688},
                      {8, 12, false, 1255196672}};
  for (const Row& row : rows) {
    ModelConfig m = model_preset("llama-3.2-1b");
    m.kv_heads = row.kv_heads;
    m.layers = row.layers;
    m.tied = row.tied;
    EXPECT_EQ(count_parameters(Decoder(m)).total, row.total) << row.kv_heads << " " << row.layers;
  }
}

}  // namespace ingot::test::model_config_test
