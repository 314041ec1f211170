// Adapters to PEFT and back: the same bits; PEFT computes what Ingot does; unsupported settings are refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "checkpoint/model_state.h"
#include "exchange/peft.h"
#include "ops/reference.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "tape/op.h"

namespace ingot::test::peft_oracle_test {

using reference::Array;

const std::string kBase = fixture("exchange/llama_text");

std::string ingot(std::vector<std::string> arguments, int expected = 0) {
  arguments.insert(arguments.begin(), INGOT_BINARY);
  const ProcessResult r = run_process(arguments);
  EXPECT_EQ(r.exit_code, expected) << r.output;
  return r.output;
}

Array logits(const std::string& folder, std::span<const int32_t> ids) {
  const StoredModel m = open_stored_model(real_file_system(), folder);
  Model model(m.config, Precision::f64());
  load_model(m.reader, model);
  std::vector<int32_t> tokens(ids.begin(), ids.end()), positions;
  for (size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  const auto count = static_cast<int64_t>(ids.size());
  const BatchLayout rows{count, {{0, count, 0, nullptr}}};
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, model.weights(), &rows, tape.leaf(Tensor::of(positions.data(), {count}))};
  const DecoderOutput out = model.decoder().forward(c, tape.leaf(Tensor::of(tokens.data(), {count})));
  return reference::load(model.decoder().logits(c, out.hidden_TD).tensor());
}

TEST(Peft, ThereAndBack) {
  const TempDir dir;
  ingot({"import", kBase, dir / "in"});
  write_text(
      dir / "rows.jsonl",
      "{\"text\": \"Salt carries the green hills under the bridge, and the river runs over the sea.\"}\n");
  ingot({"finetune", dir / "in", dir / "rows.jsonl", "--run", dir / "run", "--epochs", "20", "--lr", "2e-2",
         "--batch", "1", "--sequence", "24", "--lora", "3", "--lora-alpha", "5", "--run.precision=f32"});
  ingot({"export", dir / "run", dir / "peft", "--format", "peft"});
  ingot({"import", dir / "peft", dir / "back", "--base", dir / "in"});
  const StoredModel run = open_stored_model(real_file_system(), dir / "run"),
                    back = open_stored_model(real_file_system(), dir / "back");
  int pairs = 0;
  for (const auto& [name, stored] : back.reader.tensors()) {
    if (!is_adapter(name)) continue;
    Array a(static_cast<size_t>(stored.meta.shape.numel())), b(a.size());
    back.reader.read(name, Region::whole(stored.meta.shape), DType::f64, a.data());
    run.reader.read(name, Region::whole(stored.meta.shape), DType::f64, b.data());
    EXPECT_EQ(a, b) << name;
    ++pairs;
  }
  EXPECT_EQ(pairs, 2 * 4 * static_cast<int>(run.config.layers));
  const std::vector<int32_t> ids = {5, 9, 31, 7, 100, 2, 8, 44, 17};
  const Array ours = logits(dir / "run", ids);
  EXPECT_EQ(logits(dir / "back", ids), ours);
  EXPECT_NE(ingot({"export", dir / "in", dir / "x", "--format", "peft"}, 1).find("has no adapters"),
            std::string::npos);
  EXPECT_NE(ingot({"import", dir / "peft", dir / "x", "--base", dir / "run"}, 1).find("adapters already"),
            std::string::npos);
  const std::string config = read_text(dir / "peft/adapter_config.json");
  for (const auto& [from, to, part] : {std::tuple<std::string, std::string, std::string>{
                                           "\"use_dora\": false", "\"use_dora\": true", "use_dora"},
                                       {"\"LORA\"", "\"IA3\"", "peft_type"},
                                       {"\"r\": 3", "\"r\": 4", "expected F32"}}) {
    std::string changed = config;
    write_text(dir / "peft/adapter_config.json", changed.replace(changed.find(from), from.size(), to));
    EXPECT_NE(ingot({"import", dir / "peft", dir / "x", "--base", dir / "in"}, 1).find(part),
              std::string::npos)
        << part;
    std::filesystem::remove_all(dir / "x");
  }
  write_text(dir / "peft/adapter_config.json", config);
  const char* python = std::getenv("INGOT_ORACLE_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "PEFT does not load the adapters: INGOT_ORACLE_PYTHON names no Python with it";
  const auto tokens = static_cast<int64_t>(ids.size());
  write_safetensors(
      real_file_system(), dir / "reference.safetensors",
      std::vector<SafetensorsItem>{
          {"input_ids", DType::i32, {tokens}, ids.data()},
          {"logits", DType::f64, {tokens, static_cast<int64_t>(ours.size()) / tokens}, ours.data()}});
  const ProcessResult check =
      run_process({python, std::string(INGOT_SOURCE_DIR) + "/tools/oracle/check_peft.py", kBase, dir / "peft",
                   dir / "reference.safetensors"});
  EXPECT_EQ(check.exit_code, 0) << check.output;
  if (check.exit_code == 0) std::printf("%s", check.output.c_str());
}

}  // namespace ingot::test::peft_oracle_test
