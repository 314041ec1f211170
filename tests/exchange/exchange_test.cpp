// Exchange: what import and export refuse, with the names in the message; strided copies; half precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/json_depth.h"
#include "base/philox.h"
#include "checkpoint/model_state.h"
#include "exchange/export.h"
#include "exchange/half.h"
#include "exchange/huggingface_folder.h"
#include "exchange/import.h"
#include "exchange/peft.h"
#include "models/presets.h"
#include "support/expect_parts.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tokenizer/tokenizer.h"

namespace ingot::test::exchange_test {

namespace stdfs = std::filesystem;

class Import : public ::testing::Test {
 protected:
  /// A copy of a fixture to be damaged.
  std::string copy(const std::string& name) {
    const std::string to = dir_ / name;
    stdfs::remove_all(to);
    stdfs::copy(fixture("exchange/" + name), to);
    return to;
  }
  void refuses(const std::string& folder, const std::vector<std::string>& parts) {
    expect_parts(message_of([&] { import_huggingface(real_file_system(), folder, dir_ / "out"); }), parts);
    EXPECT_FALSE(stdfs::exists(dir_ / "out/checkpoints")) << "something was written";
  }
  static void change(const std::string& path, const std::string& from, const std::string& to) {
    std::string text = read_text(path);
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    write_text(path, text.replace(at, from.size(), to));
  }
  TempDir dir_;
};

TEST_F(Import, AnotherFamilyOrNone) {
  const std::string f = copy("llama_tied");
  change(f + "/config.json", "\"model_type\": \"llama\"", "\"model_type\": \"gemma3\"");
  refuses(f, {"gemma3", "families: deepseek_v3, dots1, gemma, gemma2, gemma3_text, gpt2", "zaya"});
  refuses(dir_ / "nowhere", {"nowhere", "config.json"});
  stdfs::remove(f + "/model.safetensors");
  write_text(f + "/pytorch_model.bin", "x");
  refuses(f, {"neither model.safetensors", "pickled"});
}

TEST_F(Import, ConfigAndWeightsThatDoNotMatch) {
  const std::string f = copy("llama_tied");
  change(f + "/config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  refuses(f, {"9 not expected", "'model.layers.1.mlp.up_proj.weight' F32[40, 24]"});
  change(f + "/config.json", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 3");
  refuses(f, {"9 missing", "'model.layers.2.mlp.up_proj.weight' [40, 24]"});
  change(f + "/config.json", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2");
  change(f + "/config.json", "\"intermediate_size\": 40", "\"intermediate_size\": 48");
  refuses(f, {"'model.layers.0.mlp.up_proj.weight': expected [48, 24], found F32[40, 24]"});
  change(f + "/config.json", "\"intermediate_size\": 48", "\"intermediate_size\": -1");
  refuses(f, {"config.json", "'intermediate_size' is -1"});
  write_text(f + "/config.json", "{");
  refuses(f, {"config.json", "not a JSON object"});
}

TEST_F(Import, AMisspeltTensorIsNamedWithItsNeighbour) {
  const std::string f = copy("qwen3");
  change(f + "/model.safetensors", "layers.0.self_attn.q_norm.weight", "layers.0.self_attn.q_nrom.weight");
  refuses(
      f,
      {"1 missing", "1 not expected",
       "'model.layers.0.self_attn.q_norm.weight' [8] (there is 'model.layers.0.self_attn.q_nrom.weight')"});
}

TEST_F(Import, NotFinite) {
  const std::string f = copy("llama_tied");
  std::string bytes = read_text(f + "/model.safetensors");
  const float bad = NAN;
  std::memcpy(bytes.data() + bytes.size() - 8, &bad, 4);
  write_text(f + "/model.safetensors", bytes);
  refuses(f, {"model.safetensors", "'model.norm.weight'", "not finite", "element 22"});
}

TEST_F(Import, ATiedHeadThatDiffers) {
  const std::string f = copy("llama");
  change(f + "/config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  refuses(f, {"'lm_head.weight' differs from 'model.embed_tokens.weight'", "tie_word_embeddings"});
}

TEST_F(Import, ShardsThatAreMissingCutOrElsewhere) {
  const std::string f = copy("llama"), index = f + "/model.safetensors.index.json";
  const std::string second = "model-00002-of-00003.safetensors";
  stdfs::resize_file(f + "/" + second, stdfs::file_size(f + "/" + second) - 2);
  refuses(f, {second, "truncated"});
  stdfs::remove(f + "/" + second);
  refuses(f, {second, "is not there"});
  for (const char* evil : {"../llama_tied/model.safetensors", "/etc/passwd", "..", ".hidden", "a\\\\b"}) {
    const std::string g = copy("llama");
    change(g + "/model.safetensors.index.json", second, evil);
    refuses(g, {"index.json", "plain file name"});
  }
  copy("llama");
  change(index, "\"model.norm.weight\": \"model-00002", "\"model.norm.weight\": \"model-00001");
  refuses(f, {"'model.norm.weight'", "model-00001", "does not hold it"});
  copy("llama");
  change(index, "model.layers.0.input_layernorm.weight", "model.layers.0.input_layernrom.weight");
  refuses(f, {"input_layern"});
}

TEST_F(Import, WhereSomethingIsAlready) {
  import_huggingface(real_file_system(), fixture("exchange/gpt2"), dir_ / "taken");
  expect_parts(
      message_of([&] { import_huggingface(real_file_system(), fixture("exchange/gpt2"), dir_ / "taken"); }),
      {"taken", "already"});
  const StoredModel m = open_stored_model(real_file_system(), dir_ / "taken");
  expect_parts(message_of([&] { export_huggingface(real_file_system(), m, dir_ / "taken"); }),
               {"exists already"});
  expect_parts(message_of([&] { load_tokenizer(m); }), {"without a tokenizer", "--tokenizer"});
}

TEST_F(Import, ExportChangesTypesOnlyWhenAsked) {
  FileSystem& fs = real_file_system();
  import_huggingface(fs, fixture("exchange/llama"), dir_ / "in");
  export_huggingface(fs, open_stored_model(fs, dir_ / "in"), dir_ / "wide", {.dtype = DType::f32});
  import_huggingface(fs, dir_ / "wide", dir_ / "in32");
  EXPECT_EQ(open_stored_model(fs, dir_ / "in32").precision.compute, DType::f32);
  export_huggingface(fs, open_stored_model(fs, dir_ / "in32"), dir_ / "back", {.dtype = DType::bf16});
  const HuggingfaceFolder a(fs, fixture("exchange/llama")), b(fs, dir_ / "back");
  for (const auto& [name, found] : a.tensors()) {
    const auto x = found.data(), y = b.tensors().at(name).data();
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << name;
  }
  expect_parts(read_text(dir_ / "wide/config.json"),
               {"\"dtype\": \"float32\"", "\"torch_dtype\": \"float32\"", "\"rope_theta\": 10000.0"});
}

/// 200,000 levels would overflow the stack where a value is printed or copied; brackets in strings are text.
TEST_F(Import, JsonThatIsNestedDeeply) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  expect_parts(message_of([&] { lora_from_peft("{\"peft_type\": " + deep + "}", "adapter_config.json"); }),
               {"adapter_config.json", "nested deeper"});
  expect_parts(message_of([&] { model_from_huggingface("{\"model_type\": " + deep + "}", "config.json"); }),
               {"config.json", "nested deeper"});
  expect_parts(message_of([&] { Tokenizer::from_json("{\"model\": " + deep + "}", "tokenizer.json"); }),
               {"tokenizer.json", "nested deeper"});
  const std::string folder = copy("llama_text");
  write_text(folder + "/tokenizer_config.json", "{\"bos_token\": " + deep + "}");
  expect_parts(message_of([&] { Tokenizer::load(folder); }), {"tokenizer_config.json", "nested deeper"});
  EXPECT_EQ(message_of([&] { require_shallow_json("[\"" + std::string(100, '[') + "\\\"[\", {}]", "text"); }),
            "");
}

/// What a PEFT folder may say, and what would be computed differently.
TEST(PeftConfig, PlainAdaptersOnly) {
  const auto config = [](const std::string& more) {
    return "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8" + more + "}";
  };
  const LoraConfig lora =
      lora_from_peft(config(", \"target_modules\": [\"q_proj\"], \"rank_pattern\": {}"), "c");
  EXPECT_EQ(lora.rank, 4);
  EXPECT_EQ(lora.scale(), 2);
  for (const auto& [text, part] : std::initializer_list<std::pair<std::string, const char*>>{
           {"[]", "not a JSON object"},
           {"{\"peft_type\": \"IA3\"}", "expected \"LORA\""},
           {"{\"peft_type\": \"LORA\", \"r\": 0}", "a rank from 1"},
           {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1e-320}", "lora_alpha"},
           {config(", \"use_dora\": true"), "use_dora"},
           {config(", \"alpha_pattern\": {\"q_proj\": 2}"), "alpha_pattern"}})
    expect_parts(message_of([&] { lora_from_peft(text, "c"); }), {"'c'", part});
}

TEST(HuggingfaceConfig, BothDialectsGiveOneModel) {
  const std::string common =
      R"("model_type":"llama","vocab_size":64,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,)";
  const std::string scaling =
      R"("rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":32)";
  const ModelConfig older =
      model_from_huggingface("{" + common + "\"rope_theta\":5e5,\"rope_scaling\":{" + scaling + "}}", "old");
  const ModelConfig newer = model_from_huggingface(
      "{" + common + "\"rope_parameters\":{\"rope_theta\":5e5," + scaling + "}}", "new");
  EXPECT_EQ(older.rope_theta, 5e5);
  EXPECT_EQ(print_config(older), print_config(newer));
  const std::string text =
      huggingface_config(older, huggingface_layout(older), {.dtype = DType::bf16, .eos = 7});
  expect_parts(text, {"\"rope_scaling\": {", "\"rope_parameters\": {", "\"torch_dtype\": \"bfloat16\"",
                      "\"dtype\": \"bfloat16\"", "\"eos_token_id\": 7"});
  EXPECT_TRUE(architecture_differences(model_from_huggingface(text, "written"), older).empty());
}

TEST(HuggingfaceConfig, RefusesWhatAFamilyCannotSay) {
  ModelConfig m = model_preset("llama-small");
  m.vocab = 64;
  EXPECT_NO_THROW(huggingface_config(m, huggingface_layout(m), {}));
  m.logit_softcap = 30;
  m.half_truncated_rope = true;
  expect_parts(message_of([&] { huggingface_config(m, huggingface_layout(m), {}); }),
               {"llama cannot express", "logit_softcap: 30", "half_truncated_rope: true"});
  m = model_preset("llama-small");
  m.vocab = 64;
  m.head_cap.kind = HeadCapKind::tanh;
  m.window = 8, m.window_block = 4;
  expect_parts(message_of([&] { huggingface_config(m, huggingface_layout(m), {}); }),
               {"cannot express", "head_cap.kind: \"tanh\"", "window_block: 4"});
  expect_parts(message_of([&] { huggingface_layout(model_preset("modded-nanogpt")); }),
               {"no Hugging Face family", "value embeddings"});
}

/// Random damage to real files: every outcome is a model or an Error, and what is accepted writes and reads
/// back alike.
TEST(HuggingfaceConfig, RandomDamage) {
  const Random random(3, RandomPurpose::test);
  uint64_t n = 0;
  for (const char* name : {"gpt2", "llama", "mixtral", "qwen3_moe", "smollm3", "zaya", "zaya_sublayers"}) {
    const std::string text = read_text(fixture(std::string("exchange/") + name + "/config.json"));
    for (int trial = 0; trial < 300; ++trial) {
      std::string damaged = text;
      for (uint64_t k = random.below(n++, 4); k < 4; ++k)
        damaged[random.below(n, damaged.size())] = "0123456789-.e\"[]{},:ntl"[random.below(n + 1, 23)],
                                n += 2;
      try {
        const ModelConfig m = model_from_huggingface(damaged, name);
        const HuggingfaceLayout layout = huggingface_layout(m);
        EXPECT_TRUE(
            architecture_differences(m, model_from_huggingface(huggingface_config(m, layout, {}), "back"))
                .empty());
      } catch (const Error&) {
      }
    }
  }
}

TEST(WeightIndex, RandomDamage) {
  const std::string text = read_text(fixture("exchange/mixtral/model.safetensors.index.json"));
  EXPECT_EQ(parse_weight_index(text, "index").at("model.norm.weight").size(), 32u);
  const Random random(4, RandomPurpose::test);
  for (uint64_t n = 0; n < 6000; n += 3) {
    std::string damaged =
        text.substr(0, random.below(n, 4) == 0 ? random.below(n, text.size()) : text.size());
    if (!damaged.empty())
      damaged[random.below(n + 1, damaged.size())] = static_cast<char>(random.below(n + 2, 256));
    try {
      for (const auto& [tensor, file] : parse_weight_index(damaged, "index"))
        EXPECT_EQ(file.find('/'), file.npos);
    } catch (const Error&) {
    }
  }
  expect_parts(message_of([&] { parse_weight_index(R"({"weight_map":{"a":"x","a":"y"}})", "index"); }),
               {"'a' appears twice"});
  expect_parts(message_of([&] { parse_weight_index(std::string(100000, '['), "index"); }),
               {"expected an object"});
  expect_parts(message_of([&] { parse_weight_index("{\"metadata\":" + std::string(100000, '['), "index"); }),
               {"deeper"});
  expect_parts(message_of([&] { parse_weight_index(R"({"weight_map":{}})", "index"); }), {"names no tensor"});
}

// Element by element against the definition in huggingface.h.
TEST(ExternalTensor, StridedCopiesMoveEveryElement) {
  const struct {
    Shape shape;
    std::vector<int64_t> stride;
    int64_t offset, size;
  } cases[] = {{{7}, {1}, 3, 10},
               {{}, {}, 2, 5},
               {{5, 6}, {6, 1}, 0, 30},
               {{67, 45}, {1, 67}, 0, 3015},
               {{3, 4, 5}, {40, 5, 1}, 20, 120},
               {{6, 4, 2}, {8, 1, 4}, 0, 48},
               {{4, 3, 2, 5}, {30, 5, 15, 1}, 0, 120},
               {{6, 1, 2}, {2, 2, 1}, 0, 12},
               {{0, 4}, {4, 1}, 0, 4},
               {{1, 9}, {9, 1}, 1, 10}};
  for (const auto& c : cases) {
    const ExternalTensor e{"e", c.shape, 0, -1, c.offset, c.stride};
    const auto n = static_cast<size_t>(c.shape.numel());
    std::vector<uint16_t> external(n), parameter(static_cast<size_t>(c.size)), back(n);
    for (size_t i = 0; i < n; ++i) external[i] = static_cast<uint16_t>(i + 1);
    scatter_external(e, external.data(), parameter.data(), 0, 2);
    for (size_t i = 0; i < n; ++i) {
      int64_t at = c.offset, rest = static_cast<int64_t>(i);
      for (int d = c.shape.rank() - 1; d >= 0; --d) {
        at += rest % c.shape[d] * c.stride[static_cast<size_t>(d)];
        rest /= c.shape[d];
      }
      EXPECT_EQ(parameter[static_cast<size_t>(at)], external[i]) << c.shape.str() << " element " << i;
    }
    gather_external(e, back.data(), parameter.data(), 0, 2);
    EXPECT_EQ(back, external) << c.shape.str();
  }
}

TEST(Half, EveryValueAndTheRoundingBetween) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float x = from_half(static_cast<uint16_t>(h));
    if (std::isnan(x)) continue;
    EXPECT_EQ(to_half(x), h);
    if ((h & 0x7FFF) >= 0x7BFF) continue;
    const float next = from_half(static_cast<uint16_t>(h + 1)), middle = x + (next - x) / 2;
    EXPECT_EQ(to_half(middle), h % 2 == 0 ? h : h + 1) << "ties go to even";
    EXPECT_EQ(to_half(std::nextafter(middle, next)), h + 1);
    EXPECT_EQ(to_half(std::nextafter(middle, x)), h);
  }
  EXPECT_EQ(to_half(65519.0f), 0x7BFF);
  EXPECT_EQ(to_half(65520.0f), 0x7C00);
  EXPECT_TRUE(std::isnan(from_half(to_half(NAN))));
}

}  // namespace ingot::test::exchange_test
