// GGUF: its architectures, their keys and tensors, and what llama.cpp would compute differently, which is
// refused by name. llama.cpp itself runs the files in tools/oracle/check_gguf.py.
#include "exchange/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "exchange/export.h"
#include "exchange/gguf_model.h"
#include "exchange/half.h"
#include "exchange/import.h"
#include "models/presets.h"
#include "support/expect_parts.h"
#include "support/support.h"

namespace ingot::test::gguf_test {

namespace stdfs = std::filesystem;

class Gguf : public ::testing::Test {
 protected:
  TempDir dir_;
};

TEST_F(Gguf, QuantisesAsTheReferenceDoes) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i - 20) * 0.1f;
  x[3] = -12.7f;  // the largest: scale 0.1
  const auto bytes = to_ggml(GgmlType::q8_0, x.data(), 32, "x");
  ASSERT_EQ(bytes.size(), 34u);
  uint16_t scale;
  std::memcpy(&scale, bytes.data(), 2);
  EXPECT_EQ(scale, to_half(12.7f / 127));
  EXPECT_EQ(static_cast<int8_t>(bytes[2 + 3]), -127);
  for (int i = 4; i < 32; ++i) EXPECT_EQ(static_cast<int8_t>(bytes[static_cast<size_t>(2 + i)]), i - 20);
  const float big = 1e5f;
  expect_parts(message_of([&] { to_ggml(GgmlType::f16, &big, 1, "w"); }), {"'w'", "100000", "bf16"});
}

TEST_F(Gguf, KnowsWhatLlamaCppKnows) {
  FileSystem& fs = real_file_system();
  const auto refused = [&](const char* name) {
    import_huggingface(fs, fixture(std::string("exchange/") + name), dir_ / name);
    return message_of([&] { export_gguf(fs, open_stored_model(fs, dir_ / name), dir_ / "x.gguf"); });
  };
  expect_parts(refused("zaya"), {"zaya", "families"});
  expect_parts(refused("mistral"), {"sliding window", "--format=hf"});
  EXPECT_FALSE(stdfs::exists(dir_ / "x.gguf"));
  import_huggingface(fs, fixture("exchange/llama_text"), dir_ / "text");
  const ExportReport r =
      export_gguf(fs, open_stored_model(fs, dir_ / "text"), dir_ / "x.gguf", {.type = GgufType::q8_0});
  EXPECT_EQ(r.tensors, 20u);
  EXPECT_EQ(read_text(dir_ / "x.gguf").substr(0, 8), std::string("GGUF\3\0\0\0", 8));
}

ModelConfig fixture_model(const std::string& name) {
  const std::string path = fixture("exchange/" + name + "/config.json");
  return model_from_huggingface(read_text(path), path);
}

/// A key of a file that is there once, and the four bytes of its value.
template <class T>
T key_of(const std::string& file, const std::string& key) {
  const size_t at = file.find(key);
  EXPECT_NE(at, file.npos) << key;
  T value{};
  if (at != file.npos) std::memcpy(&value, file.data() + at + key.size() + 4, sizeof(T));  // after the type
  return value;
}

TEST_F(Gguf, WritesEveryArchitecture) {
  FileSystem& fs = real_file_system();
  std::map<std::string, std::string> files;
  for (const auto& [name, arch, tensors] :
       {std::tuple<const char*, const char*, size_t>{"smollm3", "smollm3", 39},
        {"dots1", "dots1", 46},
        {"deepseek_v3", "deepseek2", 52},
        {"deepseek_v3_yarn", "deepseek2", 25},
        {"llama_yarn", "llama", 21},
        {"gemma", "gemma", 20},
        {"granite", "granite", 35}}) {
    import_huggingface(fs, fixture(std::string("exchange/") + name), dir_ / name);
    const std::string out = dir_ / (std::string(name) + ".gguf");
    const ExportReport r = export_gguf(fs, open_stored_model(fs, dir_ / name), out, {.type = GgufType::f32});
    EXPECT_EQ(r.family, arch);
    EXPECT_EQ(r.tensors, tensors) << name;
    files[name] = read_text(out);
  }
  EXPECT_EQ(key_of<uint32_t>(files["dots1"], "dots1.expert_gating_func"), 2u);
  EXPECT_FLOAT_EQ(key_of<float>(files["dots1"], "dots1.expert_weights_scale"), 0.7f);
  EXPECT_EQ(files["dots1"].find("expert_group"), std::string::npos);
  EXPECT_EQ(key_of<uint32_t>(files["deepseek_v3"], "deepseek2.expert_group_used_count"), 2u);
  EXPECT_EQ(key_of<uint32_t>(files["deepseek_v3"], "deepseek2.leading_dense_block_count"), 1u);
  EXPECT_EQ(key_of<uint32_t>(files["deepseek_v3"], "deepseek2.attention.key_length_mla"), 10u);
  // R^2 L^2 = S with R = (1 + 0.1 ln 40) / (1 + 0.07 ln 40) and S = (1 + 0.07 ln 40)^2.
  const std::string scaling = "deepseek2.rope.scaling.";
  const double all = 1 + 0.07 * std::log(40.0), r = (1 + 0.1 * std::log(40.0)) / all;
  EXPECT_NEAR(key_of<float>(files["deepseek_v3_yarn"], scaling + "attn_factor"), r, 1e-6);
  EXPECT_NEAR(key_of<float>(files["deepseek_v3_yarn"], scaling + "yarn_log_multiplier"),
              (all / r - 1) / std::log(40.0), 1e-6);
  EXPECT_EQ(key_of<uint32_t>(files["llama_yarn"], "llama.rope.scaling.original_context_length"), 512u);
  EXPECT_EQ(files["llama_yarn"].find("attn_factor"), std::string::npos)
      << "the factor of the paper is llama.cpp's own";
}

/// A fixture's model with heads that together are as wide as it, and the usual factor on q . k.
ModelConfig usual_model(const std::string& name) {
  ModelConfig m = fixture_model(name);
  m.width = m.heads * m.key_width();
  if (m.embedding_scale != 1) m.embedding_scale = std::sqrt(static_cast<double>(m.width));
  if (m.attention_scale != 0) m.attention_scale = 1 / std::sqrt(static_cast<double>(m.key_width()));
  return m;
}

std::map<std::string, GgufTensor> tensors_of(const ModelConfig& m) {
  std::map<std::string, GgufTensor> tensors;
  for (GgufTensor& t : gguf_tensors(Decoder(m), gguf_architecture(m))) tensors[t.name] = std::move(t);
  return tensors;
}

/// The keys alone.
std::string keys_of(FileSystem& fs, const std::string& path, const ModelConfig& m) {
  GgufWriter w;
  add_gguf_model_keys(w, m, gguf_architecture(m));
  w.write(fs, path, [](size_t) { return std::vector<std::byte>(); });
  return read_text(path);
}

TEST_F(Gguf, NormsStandWhereTheFamilyHasThemAndAreWhole) {
  for (const auto& [name, before, after, offset] :
       {std::tuple<const char*, bool, bool, float>{"qwen2", true, false, 0.0f},
        {"olmo2", false, true, 0.0f},
        {"gemma", true, false, 1.0f},
        {"gemma2", true, true, 1.0f},
        {"gemma3_text", true, true, 1.0f}}) {
    auto t = tensors_of(usual_model(name));
    for (const char* norm : {"attn_norm", "ffn_norm"})
      EXPECT_EQ(t.contains(fmt::format("blk.1.{}.weight", norm)), before) << name;
    for (const char* norm : {"post_attention_norm", "post_ffw_norm"})
      EXPECT_EQ(t.contains(fmt::format("blk.1.{}.weight", norm)), after) << name;
    for (const auto& [tensor, item] : t)
      EXPECT_EQ(item.offset, tensor.ends_with("norm.weight") ? offset : 0.0f) << name << " " << tensor;
  }
  const std::string path = fixture("exchange/gemma");
  FileSystem& fs = real_file_system();
  import_huggingface(fs, path, dir_ / "gemma");
  export_gguf(fs, open_stored_model(fs, dir_ / "gemma"), dir_ / "x.gguf", {.type = GgufType::f32});
  const StoredModel m = open_stored_model(fs, dir_ / "gemma");
  const Decoder decoder(m.config);
  const auto t = tensors_of(m.config);
  const std::vector<std::byte> stored =
      read_external(m.reader, decoder, t.at("output_norm.weight").parts[0], DType::f32);
  std::string whole;
  for (int64_t i = 0; i < m.config.width; ++i) {
    float v;
    std::memcpy(&v, stored.data() + 4 * i, 4);
    v += 1;
    whole.append(reinterpret_cast<const char*>(&v), 4);
  }
  EXPECT_NE(read_text(dir_ / "x.gguf").find(whole), std::string::npos) << "weights + 1, as llama.cpp's are";
}

TEST_F(Gguf, PackedAndTiedTensors) {
  auto phi3 = tensors_of(usual_model("phi3"));
  EXPECT_TRUE(phi3.contains("blk.0.attn_qkv.weight"));
  EXPECT_FALSE(phi3.contains("blk.0.attn_q.weight"));
  EXPECT_EQ(phi3.at("blk.0.ffn_up.weight").shape[0], 2 * usual_model("phi3").mlp_hidden());
  ModelConfig olmo2 = usual_model("olmo2");
  olmo2.tied = true;
  EXPECT_TRUE(tensors_of(olmo2).contains("output.weight")) << "llama.cpp needs one";
  ModelConfig qwen2 = usual_model("qwen2");
  qwen2.tied = true;
  auto t = tensors_of(qwen2);
  EXPECT_FALSE(t.contains("output.weight"));
  EXPECT_TRUE(t.contains("blk.0.attn_q.bias"));
  EXPECT_FALSE(t.contains("blk.0.attn_output.bias"));
  ModelConfig granite = fixture_model("granite");
  granite.mlp_bias = true;
  EXPECT_TRUE(tensors_of(granite).contains("blk.0.ffn_gate.bias"));
}

TEST_F(Gguf, SaysWhichLayersSlide) {
  FileSystem& fs = real_file_system();
  const auto keys = [&](const ModelConfig& m) { return keys_of(fs, dir_ / "keys", m); };
  ModelConfig m = usual_model("gemma3_text");  // the first of two layers slides
  std::string text = keys(m);
  EXPECT_EQ(key_of<uint32_t>(text, "gemma3.attention.sliding_window"), m.window);
  EXPECT_FLOAT_EQ(key_of<float>(text, "gemma3.rope.freq_base_swa"), static_cast<float>(m.window_rope_theta));
  const std::string pattern = "gemma3.attention.sliding_window_pattern";
  ASSERT_NE(text.find(pattern), text.npos) << "not llama.cpp's five of six";
  const size_t flags = text.find(pattern) + pattern.size() + 4 + 4 + 8;  // types, the number of flags
  EXPECT_EQ(text.substr(flags, 2), std::string("\1\0", 2));
  m.window_pattern = "SSSSSF";
  EXPECT_EQ(keys(m).find(pattern), text.npos);
  m.window = 0;
  m.window_rope_theta = 0;
  m.window_pattern.clear();
  EXPECT_EQ(keys(m).find("sliding"), text.npos);

  ModelConfig gemma2 = usual_model("gemma2");
  gemma2.window = 0;
  gemma2.window_pattern.clear();
  EXPECT_EQ(key_of<uint32_t>(keys(gemma2), "gemma2.attention.sliding_window"), gemma2.context)
      << "llama.cpp has a window of its own where the file has none";
  text = keys(usual_model("phi3"));
  EXPECT_EQ(key_of<uint32_t>(text, "phi3.rope.dimension_count"), 4u) << "half of a head rotates";
}

TEST_F(Gguf, YarnOfLayersThatDoNotSlide) {
  ModelConfig m = usual_model("olmo3");  // the first layer slides and is not scaled
  m.window_rope_theta = m.rope_theta;
  m.rope_scaling = {.kind = RopeScalingKind::yarn, .factor = 8, .original_context = 256};
  const std::string text = keys_of(real_file_system(), dir_ / "keys", m);
  EXPECT_EQ(text.find("attn_factor"), text.npos) << "the factor of the paper is llama.cpp's own";
}

TEST_F(Gguf, SplitsLatentsAndTurnsTheirRotatedRows) {
  const ModelConfig m = fixture_model("deepseek_v3_yarn");  // rotated pairs are halves
  const Decoder decoder(m);
  std::map<std::string, std::vector<float>> got;
  for (const GgufTensor& t : gguf_tensors(decoder, gguf_architecture(m))) {
    int64_t filled = 0;
    std::vector<float> values(static_cast<size_t>(t.shape.numel()));
    for (const ExternalTensor& part : t.parts) {
      std::vector<float> count(static_cast<size_t>(decoder.table()[part.parameter].shape.numel()));
      for (size_t i = 0; i < count.size(); ++i) count[i] = static_cast<float>(i);
      ASSERT_LE(filled + part.shape.numel(), t.shape.numel()) << t.name;
      gather_external(part, values.data() + filled, count.data(), 0, 4);
      filled += part.shape.numel();
    }
    EXPECT_EQ(filled, t.shape.numel()) << t.name;
    got[t.name] = values;
  }
  const int64_t n = m.mla.nope_width, r = m.mla.rope_width, v = m.mla.value_width, c = m.mla.kv_rank,
                d = m.width;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  for (int64_t h = 0; h < m.heads; ++h)
    for (int64_t j = 0; j < c; ++j) {
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(got["blk.1.attn_k_b.weight"][at((h * c + j) * n + i)],
                  static_cast<float>((h * (n + v) + i) * c + j));
      for (int64_t i = 0; i < v; ++i)
        EXPECT_EQ(got["blk.1.attn_v_b.weight"][at((h * v + i) * c + j)],
                  static_cast<float>((h * (n + v) + n + i) * c + j));
    }
  const auto source = [&](int64_t row, int64_t plain) {  // of a row within its head
    return row < plain ? row : plain + (row - plain) % 2 * (r / 2) + (row - plain) / 2;
  };
  for (int64_t row = 0; row < m.heads * (n + r); ++row)
    EXPECT_EQ(got["blk.0.attn_q.weight"][at(row * d)],
              static_cast<float>((row / (n + r) * (n + r) + source(row % (n + r), n)) * d));
  for (int64_t row = 0; row < c + r; ++row)
    EXPECT_EQ(got["blk.0.attn_kv_a_mqa.weight"][at(row * d)], static_cast<float>(source(row, c) * d));
}

TEST_F(Gguf, RefusesWhatLlamaCppComputesDifferently) {
  const auto refused = [](const char* name, const auto& change) {
    ModelConfig m = fixture_model(name);
    change(m);
    return message_of([&] { gguf_architecture(m); });
  };
  const auto nothing = [](ModelConfig&) {};
  for (const char* name : {"smollm3", "dots1", "deepseek_v3", "deepseek_v3_yarn", "llama_yarn"})
    EXPECT_EQ(refused(name, nothing), "");
  expect_parts(refused("smollm3", [](ModelConfig& m) { m.rope_pattern = "RN"; }),
               {"smollm3", "every fourth layer", "RRRN"});
  expect_parts(refused("smollm3", [](ModelConfig& m) { m.attention_bias = true; }), {"biases"});
  expect_parts(refused("dots1", [](ModelConfig& m) { m.kv_heads = 2; }), {"dots1", "kv_heads = heads"});
  expect_parts(refused("deepseek_v3", [](ModelConfig& m) { m.norm_eps = 1e-5; }), {"mla.norm_eps"});
  expect_parts(refused("deepseek_v3", [](ModelConfig& m) { m.layers = 27; }), {"mla.q_rank"});
  expect_parts(
      refused("deepseek_v3",
              [](ModelConfig& m) { m.rope_scaling = {.kind = RopeScalingKind::linear, .factor = 2}; }),
      {"deepseek2", "linearly"});
  expect_parts(refused("llama_yarn", [](ModelConfig& m) { m.rope_scaling.beta_fast = 16; }),
               {"beta_fast = 32"});
  expect_parts(refused("llama_yarn", [](ModelConfig& m) { m.rope_scaling.mscale_all_dim = 1; }),
               {"mscale_all_dim"});
  expect_parts(refused("llama_yarn", [](ModelConfig& m) { m.rope_scaling.factor = 1; }), {"above 1"});
  for (const char* name : {"olmo2", "phi3", "qwen2"})  // four heads of 8, width 24
    expect_parts(refused(name, nothing), {name, "head_width = width / heads"});
  for (const char* name : {"gemma2", "gemma3_text"})
    expect_parts(refused(name, nothing), {name, "query_pre_attn_scalar"});
  expect_parts(refused("gemma", [](ModelConfig& m) { m.attention_bias = true; }), {"biases in attention"});
  const auto refused_usual = [](const char* name, const auto& change) {
    ModelConfig m = usual_model(name);
    change(m);
    return message_of([&] { gguf_architecture(m); });
  };
  for (const char* name : {"qwen2", "olmo2", "phi3", "gemma2", "gemma3_text"})
    EXPECT_EQ(refused_usual(name, nothing), "");
  expect_parts(refused_usual("phi3", [](ModelConfig& m) { m.window = 7; }), {"sliding window"});
  expect_parts(refused_usual("gemma2", [](ModelConfig& m) { m.tied = false; }), {"tied = true"});
  expect_parts(refused_usual("gemma2", [](ModelConfig& m) { m.logit_softcap = 0; }), {"caps"});
  expect_parts(refused_usual("gemma3_text",
                             [](ModelConfig& m) {
                               m.rope_scaling = {
                                   .kind = RopeScalingKind::yarn, .factor = 8, .original_context = 256};
                             }),
               {"YaRN", "slide"});
  expect_parts(refused_usual("olmo3", nothing), {"window_rope_theta"});
  expect_parts(refused("qwen3",
                       [](ModelConfig& m) {
                         m.rope_scaling = {
                             .kind = RopeScalingKind::llama3, .factor = 8, .original_context = 256};
                       }),
               {"qwen3", "Llama 3"});
}

}  // namespace ingot::test::gguf_test
