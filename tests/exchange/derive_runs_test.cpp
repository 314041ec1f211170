// `ingot average` and `ingot upcycle`: the numbers, that every other command takes the result, and what is
// refused.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/model_state.h"
#include "exchange/derive.h"
#include "exchange/stored_model.h"
#include "ops/reference.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::derive_runs_test {

using reference::Array;

class Derive : public ::testing::Test {
 protected:
  /// A run of six steps of a small llama with all its checkpoints; `extra` are overrides.
  std::string run(const std::string& name, const std::vector<std::string>& extra = {}, int64_t words = 800) {
    write_text(dir_ / (name + ".txt"), tiny_text(words));
    write_text(dir_ / (name + ".toml"), fmt::format(R"([run]
folder = "{0}/{1}"
[model]
preset = "llama-small"
width = 16
layers = 2
heads = 2
kv_heads = 1
head_width = 8
hidden = 24
context = 32
[tokenizer]
kind = "characters"
[data]
folder = "{0}/{1}-data"
[[data.sources]]
name = "words"
path = "{0}/{1}.txt"
tail_validation = true
[[phases]]
steps = 6
batch = 2
sequence = 16
lr = 1e-2
warmup = 0
[checkpoint]
every = 2
keep_last = 0
[samples]
prompts = ["the "]
tokens = 4
)",
                                                    dir_.path(), name));
    std::vector<std::string> command = {"run", dir_ / (name + ".toml")};
    command.insert(command.end(), extra.begin(), extra.end());
    ingot(command);
    return dir_ / name;
  }
  std::string ingot(std::vector<std::string> arguments, int expected = 0) {
    arguments.insert(arguments.begin(), INGOT_BINARY);
    const ProcessResult r = run_process(arguments);
    EXPECT_EQ(r.exit_code, expected) << arguments[1] << "\n" << r.output;
    return r.output;
  }
  void refuses(const std::vector<std::string>& arguments, const std::vector<std::string>& parts,
               int expected = 1) {
    const std::string output = ingot(arguments, expected);
    for (const std::string& part : parts)
      EXPECT_NE(output.find(part), std::string::npos) << "wanted: " << part << "\nfound: " << output;
  }
  TempDir dir_;
};

Array tensor(const CheckpointReader& reader, const std::string& name) {
  Array values(static_cast<size_t>(reader.tensors().at(name).meta.shape.numel()));
  reader.read(name, Region::whole(reader.tensors().at(name).meta.shape), DType::f64, values.data());
  return values;
}

Array logits(const std::string& folder) {
  const StoredModel m = open_stored_model(real_file_system(), folder);
  Model model(m.config, Precision::f32());
  load_model(m.reader, model);
  std::vector<int32_t> ids = {1, 5, 3, 2, 8, 1, 0, 4}, positions = {0, 1, 2, 3, 4, 5, 6, 7};
  const BatchLayout rows{8, {{0, 8, 0, nullptr}}};
  HeapArena arena;
  Tape tape(arena, {.record = false});
  Context c{tape, model.weights(), &rows, tape.leaf(Tensor::of(positions.data(), {8}))};
  const DecoderOutput out = model.decoder().forward(c, tape.leaf(Tensor::of(ids.data(), {8})));
  return reference::load(model.decoder().logits(c, out.hidden_TD).tensor());
}

TEST_F(Derive, AveragesAreThoseOfTheTensorsAndEveryCommandTakesThem) {
  const std::string base = run("base"), out = dir_ / "mean";
  ingot({"average", base, "--last", "3", "--ema", "0.25", "-o", out});
  FileSystem& fs = real_file_system();
  const StoredModel mean = open_stored_model(fs, out);
  const auto paths = last_checkpoints(fs, base, 3);
  const std::vector<double> weights = {0.0625, 0.1875, 0.75};
  std::vector<CheckpointReader> sources;
  for (const std::string& path : paths) sources.push_back(CheckpointReader::open(fs, path));
  ASSERT_EQ(sources.front().step(), 2);
  for (const auto& [name, stored] : mean.reader.tensors()) {
    const Array found = tensor(mean.reader, name), a = tensor(sources[0], name), b = tensor(sources[1], name),
                c = tensor(sources[2], name);
    for (size_t i = 0; i < found.size(); ++i) {
      const double expected = weights[0] * a[i] + weights[1] * b[i] + weights[2] * c[i];
      ASSERT_EQ(found[i], static_cast<double>(static_cast<float>(expected))) << name;
    }
  }
  EXPECT_EQ(mean.reader.tensors().count("optimizer/optimizer.step"), 0u);
  const std::vector<std::string> generate = {
      "generate", "--run", out, "--prompt", "the ", "--max-tokens", "4", "--temperature", "0"};
  const auto with_weights = [&](const std::string& form) {
    auto all = generate;
    return all.push_back("--weights=" + form), all;
  };
  EXPECT_EQ(ingot(with_weights("f32")), ingot(generate));  // as it was trained
  for (const char* form : {"bf16", "int8"})
    EXPECT_EQ(ingot(with_weights(form)).size(), ingot(generate).size()) << form;
  refuses(with_weights("int4"), {"int4", "f32, bf16, int8"});
  ingot({"export", out, dir_ / "hf"});
  EXPECT_NE(read_text(dir_ / "hf/config.json").find("\"llama\""), std::string::npos);
  write_text(dir_ / "rows.jsonl", "{\"text\": \"the river runs under the bridge and the sea\"}\n");
  ingot({"finetune", out, dir_ / "rows.jsonl", "--run", dir_ / "tuned", "--sequence", "8", "--batch", "2"});
  ingot({"average", dir_ / "tuned", base, out, "--weights", "1,1,2", "-o", dir_ / "soup"});
}

TEST_F(Derive, UpcycledModelsComputeTheSame) {
  const std::string base = run("base"), out = dir_ / "mixture";
  ingot({"upcycle", base, out, "--granularity", "2", "--expansion", "2", "--top-k", "2"});
  const Array dense = logits(base), mixture = logits(out);
  for (size_t i = 0; i < dense.size(); ++i) EXPECT_NEAR(dense[i], mixture[i], 1e-5);
  EXPECT_EQ(open_stored_model(real_file_system(), out).config.moe.experts, 4);
  ingot({"generate", "--run", out, "--prompt", "the ", "--max-tokens", "4"});
  ingot({"export", out, dir_ / "hf"});
  EXPECT_NE(read_text(dir_ / "hf/config.json").find("\"mixtral\""), std::string::npos);
  refuses({"upcycle", base, out}, {out, "not empty"});
  refuses({"upcycle", out, dir_ / "twice"}, {"4 experts already"});
}

TEST_F(Derive, WhatCannotBeAveraged) {
  const std::string base = run("base"), wide = run("wide", {"--model.hidden=32"}),
                    other = run("other", {}, 40);
  refuses({"average", base, "-o", dir_ / "x"}, {"its own average", "--last"});
  refuses({"average", base, wide, "-o", dir_ / "x"},
          {"different models", "hidden: 24, 32", "one architecture"});
  write_text(dir_ / "big.txt", tiny_text(800) + "XYZ");
  refuses(
      {"average", base, run("letters", {"--data.sources.0.path=" + (dir_ / "big.txt"), "--model.vocab=40"}),
       "-o", dir_ / "x"},
      {"vocab"});
  refuses({"average", base, other, base, "--weights", "1,2", "-o", dir_ / "x"}, {"2 weights for 3 models"});
  refuses({"average", base, base, "--weights", "1,-2", "-o", dir_ / "x"}, {"must be positive, found -2"}, 2);
  refuses({"average", base, base, "--weights", "1e308,1e308", "-o", dir_ / "x"},
          {"must be at most 1000000000"}, 2);
  refuses({"average", base, base, "--ema", "1", "-o", dir_ / "x"}, {"--ema: must be below 1"}, 2);
  refuses({"average", base, "--last", "9", "-o", dir_ / "x"},
          {"3 complete checkpoints", "at least 9", "keep_last"});
  refuses({"average", base, base, "-o", wide}, {"not empty"});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x"));
}

TEST_F(Derive, AnotherTokenizerIsRefused) {
  const std::string left = run("left", {"--model.vocab=40"});
  write_text(dir_ / "digits.txt", tiny_text(800) + "0123456789");
  const std::string right =
      run("right", {"--model.vocab=40", "--data.sources.0.path=" + (dir_ / "digits.txt")});
  refuses({"average", left, right, "-o", dir_ / "x"}, {"tokenizer", "share a tokenizer"});
}

TEST(MovingAverage, Weights) {
  EXPECT_EQ(moving_average_weights(1, 0.5), (std::vector<double>{1}));
  EXPECT_EQ(moving_average_weights(3, 0.5), (std::vector<double>{0.25, 0.25, 0.5}));
  EXPECT_EQ(moving_average_weights(2, 0), (std::vector<double>{0, 1}));
}

}  // namespace ingot::test::derive_runs_test
