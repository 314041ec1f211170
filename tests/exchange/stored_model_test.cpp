// One function opens a model, whatever names it; where it cannot, it says what the path is not.
#include "exchange/stored_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "exchange/export.h"
#include "exchange/import.h"
#include "support/expect_parts.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::stored_model_test {

namespace stdfs = std::filesystem;

std::string refusal(const std::string& path) {
  try {
    open_stored_model(real_file_system(), path);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

/// All weights, in bytes.
std::map<std::string, std::string> weights(const StoredModel& m) {
  std::map<std::string, std::string> all;
  for (const auto& [name, stored] : m.reader.tensors()) {
    std::string bytes(static_cast<size_t>(stored.meta.bytes()), '\0');
    m.reader.read(name, Tensor(bytes.data(), stored.meta.shape, stored.meta.dtype));
    all[name] = bytes;
  }
  return all;
}

TEST(StoredModel, HuggingFaceFoldersOpenAsTheirImportsDo) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  for (const char* name : {"llama_text", "gpt2", "zaya", "qwen3_moe", "deepseek_v3"}) {
    const std::string from = fixture(std::string("exchange/") + name), to = dir / name;
    import_huggingface(fs, from, to);
    const StoredModel direct = open_stored_model(fs, from + "/"), imported = open_stored_model(fs, to);
    EXPECT_EQ(weights(direct), weights(imported)) << name;
    EXPECT_EQ(direct.reader.path(), from);
    EXPECT_EQ(direct.small_files, from);
    EXPECT_TRUE(direct.imported);
    EXPECT_EQ(direct.layout.family, imported.layout.family);
    EXPECT_EQ(direct.tokenizer_folder.empty(), imported.tokenizer_folder.empty()) << name;
  }
}

TEST(StoredModel, CommandsTakeAHuggingFaceFolder) {
  const TempDir dir;
  const std::string model = "'" + fixture("exchange/llama_text") + "'", imported = "'" + (dir / "in") + "'";
  const auto run = [](const std::string& arguments) {
    return run_process({"/bin/bash", "-c", "INGOT_LOG=error '" INGOT_BINARY "' " + arguments});
  };
  ASSERT_EQ(run("import " + model + " " + imported).exit_code, 0);
  for (const char* command :
       {"generate {} --prompt the --temperature 0 --max-tokens 8", "tokenizer info {}",
        "tokenizer encode {} 'the sea'", "eval {} --text " INGOT_SOURCE_DIR "/LICENSE"}) {
    const auto of = [&](const std::string& what) { return run(fmt::format(fmt::runtime(command), what)); };
    const ProcessResult direct = of(model), other = of(imported);
    EXPECT_EQ(direct.exit_code, 0) << command << "\n" << direct.output;
    EXPECT_EQ(direct.output, other.output) << command;
  }
  EXPECT_EQ(run("export " + model + " '" + (dir / "x.gguf") + "' --format=gguf").exit_code, 0);
  EXPECT_EQ(run("checkpoint verify " + model).exit_code, 0);
  EXPECT_EQ(run("average " + model + " " + imported + " -o '" + (dir / "mean") + "'").exit_code, 0);
}

TEST(StoredModel, WhatIsNoModelIsSaidToBeNone) {
  const TempDir dir;
  stdfs::create_directories(dir / "folder");
  write_text(dir / "recipe.toml", "");
  write_text(dir / "x.gguf", "GGUF");
  write_text(dir / "model.safetensors", "");
  expect_parts(refusal(""), {"no model is named", "run folder"});
  expect_parts(refusal(dir / "folder"), {"folder' is no model", "no run", "no checkpoint",
                                         "no folder of checkpoints", "no Hugging Face model", "config.json"});
  expect_parts(refusal(dir / "nowhere"), {"there is no file or folder", "nowhere"});
  expect_parts(refusal("HuggingFaceTB/SmolLM2-135M"),
               {"hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M"});
  expect_parts(refusal(dir / "recipe.toml"), {"is a recipe", "ingot run"});
  expect_parts(refusal(dir / "x.gguf"), {"GGUF", "does not read"});
  expect_parts(refusal(dir / "model.safetensors"), {"expected its folder", dir.path()});
  write_text(dir / "folder/config.toml", "[checkpoint]\nevery = 7\n[[phases]]\nsteps = 30\n");
  expect_parts(refusal(dir / "folder"), {"no checkpoint yet", "at step 7", "ingot run"});
}

TEST(StoredModel, AMissingTokenizerIsSaidWithThePlaces) {
  const TempDir dir;
  stdfs::copy(fixture("kept_run/run"), dir / "run", stdfs::copy_options::recursive);
  const StoredModel m = open_stored_model(real_file_system(), dir / "run");
  try {
    load_tokenizer(m);
    FAIL();
  } catch (const Error& e) {
    expect_parts(std::string(e.what()) + e.hint(),
                 {"tokenizer of", "is missing", "run/tokenizer'", "--tokenizer"});
  }
  stdfs::copy(fixture("kept_run/data"), dir / "data", stdfs::copy_options::recursive);
  load_tokenizer(open_stored_model(real_file_system(), dir / "run"));  // beside the run, as it was written
}

}  // namespace ingot::test::stored_model_test
