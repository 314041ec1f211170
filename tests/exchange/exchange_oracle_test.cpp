// Import and export against transformers: folders that save_pretrained wrote (tools/oracle/make_exchange.py)
// are imported, give transformers' logits, and are exported bit for bit. If $INGOT_ORACLE_PYTHON names a
// Python with transformers, it loads the exports too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "checkpoint/model_state.h"
#include "exchange/export.h"
#include "exchange/huggingface_folder.h"
#include "exchange/import.h"
#include "ops/reference.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::exchange_oracle_test {

namespace stdfs = std::filesystem;
using reference::Array;

std::string source(const std::string& name) {
  return fixture("exchange/" + name);
}

/// Every tensor of a folder: "dtype[shape]" and bytes, by name.
std::map<std::string, std::pair<std::string, std::string>> tensors_of(const std::string& folder) {
  std::map<std::string, std::pair<std::string, std::string>> all;
  const HuggingfaceFolder f(real_file_system(), folder);
  for (const auto& [name, found] : f.tensors()) {
    const auto data = found.data();
    all[name] = {found.entry->str(), std::string(reinterpret_cast<const char*>(data.data()), data.size())};
  }
  return all;
}

/// Our logits in double for the tokens of a fixture, and the fixture's.
Array logits_of(const std::string& checkpoint, const std::string& fixture_folder, Array& expected) {
  const SafetensorsFile file(real_file_system(), fixture_folder + "/reference.safetensors");
  const auto bytes = [&](const char* name) {
    const auto data = file.data(*file.find(name));
    return std::vector<std::byte>(data.begin(), data.end());
  };
  std::vector<std::byte> ids = bytes("input_ids"), logits = bytes("logits");
  const auto tokens = static_cast<int64_t>(ids.size() / 4);
  expected = reference::load(Tensor(logits.data(), {static_cast<int64_t>(logits.size() / 8)}, DType::f64));
  const CheckpointReader reader = CheckpointReader::open(real_file_system(), checkpoint);
  Model model(stored_model_config(reader), Precision::f64());
  load_model(reader, model);
  BatchLayout rows{tokens, {{0, tokens, 0, nullptr}}};
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<int32_t>(t));
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, model.weights(), &rows, tape.leaf(Tensor::of(positions.data(), {tokens}))};
  model.equip(c);
  const DecoderOutput out = model.decoder().forward(c, tape.leaf(Tensor(ids.data(), {tokens}, DType::i32)));
  return reference::load(model.decoder().logits(c, out.hidden_TD).tensor());
}

class Exchange : public ::testing::TestWithParam<const char*> {};

TEST_P(Exchange, RoundTripIsExactAndTransformersAgrees) {
  const TempDir dir;
  const std::string name = GetParam(), from = source(name), imported = dir / "imported", out = dir / name;
  const ImportReport report = import_huggingface(real_file_system(), from, imported);
  EXPECT_EQ(report.layout.zaya_sublayers, name == "zaya_sublayers");
  EXPECT_TRUE(report.suspicions.empty()) << report.suspicions.front();
  Array expected;
  const Array logits = logits_of(imported + "/checkpoints", from, expected);
  EXPECT_LE(test::relative_difference(logits, expected), 1e-9);
  export_huggingface(real_file_system(), open_stored_model(real_file_system(), imported), out,
                     {.max_shard_bytes = 20000});
  EXPECT_EQ(tensors_of(out), tensors_of(from));
  const HuggingfaceFolder before(real_file_system(), from), after(real_file_system(), out);
  EXPECT_EQ(print_config(after.model()), print_config(before.model()));
  EXPECT_GT(after.files(), 1u);
  const char* python = std::getenv("INGOT_ORACLE_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "transformers does not load the export back: INGOT_ORACLE_PYTHON names no Python with it";
  if (name == "zaya_sublayers") return;  // transformers knows the newer layout only
  const ProcessResult r =
      run_process({python, std::string(INGOT_SOURCE_DIR) + "/tools/oracle/make_exchange.py", "--check", out});
  EXPECT_EQ(r.exit_code, 0) << r.output;
}

INSTANTIATE_TEST_SUITE_P(Oracle, Exchange,
                         ::testing::Values("gpt2", "gpt2_bf16", "llama", "llama_tied", "llama_text",
                                           "mistral", "mixtral", "qwen3", "qwen3_moe", "smollm3", "zaya",
                                           "zaya_sublayers", "dots1", "deepseek_v3", "deepseek_v3_yarn",
                                           "llama_yarn", "qwen2", "olmo2", "olmo3", "phi3", "granite",
                                           "gemma", "gemma2", "gemma3_text"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ExchangeFiles, OneFileHasTheBytesThatTransformersWrote) {
  const TempDir dir;
  for (const char* name : {"gpt2", "llama_tied", "llama_text", "qwen3"}) {
    import_huggingface(real_file_system(), source(name), dir / name);
    export_huggingface(real_file_system(), open_stored_model(real_file_system(), dir / name),
                       dir / (std::string(name) + "-out"));
    EXPECT_EQ(read_text(dir / (std::string(name) + "-out/model.safetensors")),
              read_text(source(name) + "/model.safetensors"))
        << name;
  }
  EXPECT_EQ(read_text(dir / "llama_text-out/tokenizer.json"),
            read_text(source("llama_text") + "/tokenizer.json"));
}

TEST(ExchangeFiles, BothLayoutsOfZayaAreOneModel) {
  const TempDir dir;
  import_huggingface(real_file_system(), source("zaya"), dir / "a");
  import_huggingface(real_file_system(), source("zaya_sublayers"), dir / "b");
  auto a = checkpoint_content(dir / "a"), b = checkpoint_content(dir / "b");
  EXPECT_FALSE(a.empty());
  for (auto* c : {&a, &b})
    for (const char* blob : {"blob:import", "blob:model"}) c->erase(blob);
  EXPECT_EQ(a, b);
}

TEST(ExchangeFiles, NamesWithoutPrefix) {
  const TempDir dir;
  const std::string plain = dir / "plain";
  stdfs::create_directories(plain);
  stdfs::copy(source("gpt2") + "/config.json", plain);
  const auto tensors = tensors_of(source("gpt2"));
  std::vector<SafetensorsItem> items;
  std::vector<float> mask(4, 1.0f);
  for (const auto& [name, value] : tensors) {
    const SafetensorsFile file(real_file_system(), source("gpt2") + "/model.safetensors");
    Shape shape;
    for (const int64_t e : file.find(name)->shape) shape.push_back(e);
    items.push_back({name.substr(12), DType::f32, shape, value.second.data()});
  }
  items.push_back({"h.0.attn.bias",
                   DType::f32,
                   {1, 1, 2, 2},
                   mask.data()});  // the causal mask of the first published files
  write_safetensors(real_file_system(), plain + "/model.safetensors", items, {{"format", "pt"}});
  const ImportReport report = import_huggingface(real_file_system(), plain, dir / "in");
  EXPECT_EQ(report.notes, std::vector<std::string>{"h.0.attn.bias"});
  export_huggingface(real_file_system(), open_stored_model(real_file_system(), dir / "in"), dir / "out");
  auto out = tensors_of(dir / "out");
  EXPECT_EQ(out.size(), tensors.size());
  for (const auto& [name, value] : tensors) EXPECT_EQ(out[name.substr(12)], value) << name;
}

/// One command from a foreign model to a tuned one, and the export; transformers computes what Ingot does.
TEST(Finetune, AnImportedModelLearnsAndGoesBack) {
  const TempDir dir;
  import_huggingface(real_file_system(), source("llama_text"), dir / "in");
  const std::string text = "Salt carries the green hills under the bridge, and the river runs over the sea.";
  write_text(dir / "rows.jsonl", "{\"text\": \"" + text + "\"}\n{\"text\": \"" + text + "\"}\n");
  const ProcessResult r =
      run_process({INGOT_BINARY, "finetune", dir / "in", dir / "rows.jsonl", "--run", dir / "run", "--epochs",
                   "40", "--lr", "3e-3", "--batch", "2", "--sequence", "24", "--run.precision=f32"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("recipe: " + (dir / "run/recipe.toml")), std::string::npos) << r.output;
  const std::vector<std::string> steps = losses(dir / "run");
  const auto loss = [](const std::string& line) { return std::stod(line.substr(line.find("loss=") + 5)); };
  EXPECT_LT(loss(steps.back()), 0.5 * loss(steps.front())) << "first and last loss";
  const ProcessResult again =
      run_process({INGOT_BINARY, "finetune", dir / "in", dir / "rows.jsonl", "--run", dir / "run"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.output.find("already holds a run"), std::string::npos) << again.output;
  const ProcessResult said =
      run_process({INGOT_BINARY, "generate", "--run", dir / "run", "--prompt", "Salt carries the green",
                   "--temperature", "0", "--max-tokens", "12"});
  EXPECT_NE(said.output.find("the green hills"), std::string::npos) << said.output;
  const std::string out = dir / "tuned";
  export_huggingface(real_file_system(), open_stored_model(real_file_system(), dir / "run"), out);
  const char* python = std::getenv("INGOT_ORACLE_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "transformers does not load the tuned model: INGOT_ORACLE_PYTHON names no Python with it";
  Array unused;
  Array ours = logits_of(dir / "run/checkpoints", source("llama_text"), unused);
  const SafetensorsFile file(real_file_system(), source("llama_text") + "/reference.safetensors");
  const SafetensorsEntry& ids = *file.find("input_ids");
  const Shape shape{ids.shape[0], static_cast<int64_t>(ours.size()) / ids.shape[0]};
  write_safetensors(
      real_file_system(), out + "/reference.safetensors",
      std::vector<SafetensorsItem>{{"input_ids", DType::i32, {ids.shape[0]}, file.data(ids).data()},
                                   {"logits", DType::f64, shape, ours.data()}});
  const ProcessResult check =
      run_process({python, std::string(INGOT_SOURCE_DIR) + "/tools/oracle/make_exchange.py", "--check", out});
  EXPECT_EQ(check.exit_code, 0) << check.output;
}

TEST(Finetune, ConversationsNeedAChatTemplate) {
  const TempDir dir;
  import_huggingface(real_file_system(), source("llama_text"), dir / "in");
  write_text(dir / "rows.jsonl", "{\"messages\": []}\n");
  const ProcessResult r =
      run_process({INGOT_BINARY, "finetune", dir / "in", dir / "rows.jsonl", "--run", dir / "run"});
  EXPECT_EQ(r.exit_code, 1);
  for (const char* part : {"no chat template", "--chat-template", "chatml-think"})
    EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
}

}  // namespace ingot::test::exchange_oracle_test
