// See stored_model.h.
#include "exchange/stored_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "exchange/import.h"
#include "report/run_paths.h"
#include "report/run_record.h"

namespace ingot {
namespace {

const ConfigNode* value_at(const ConfigNode& tree, const char* section, const char* key) {
  const ConfigNode* s = tree.find(section);
  return s != nullptr ? s->find(key) : nullptr;
}

/// The text of a key of a configuration, or "".
std::string text_at(const ConfigNode& tree, const char* section, const char* key) {
  const ConfigNode* v = value_at(tree, section, key);
  return v != nullptr && v->kind == ConfigNode::Kind::string ? v->string : "";
}

bool is_true(const ConfigNode& tree, const char* section, const char* key) {
  const ConfigNode* s = tree.find(section);
  const ConfigNode* v = s != nullptr ? s->find(key) : nullptr;
  return v != nullptr && v->kind == ConfigNode::Kind::boolean && v->boolean;
}

void read_import(StoredModel& m) {
  const auto j = nlohmann::json::parse(m.reader.blob(kImportBlob), nullptr, false);
  try {
    const std::string dtype = j.at("dtype");
    m.precision = dtype == "bf16" ? Precision::bf16() : Precision::f32();
    m.layout = {j.at("family"), j.at("gpt2_prefix"), j.at("zaya_sublayers")};
    if (j.contains("document_start"))  // made from a run
      m.document_start =
          enum_from<DocumentStart>(j.at("document_start").get<std::string>(), "document_start");
  } catch (const nlohmann::json::exception& e) {
    fail("'{}': the state '{}' is damaged: {}", m.reader.path(), kImportBlob, e.what());
  }
  m.imported = true;
}

void read_recipe(FileSystem& fs, StoredModel& m) {
  const ConfigNode recipe = parse_toml(config_of_blob(m.reader, "recipe"), m.reader.path() + ": recipe");
  m.precision = text_at(recipe, "run", "precision") == "bf16" ? Precision::bf16() : Precision::f32();
  m.document_start = is_true(recipe, "data", "begin_of_text")       ? DocumentStart::begin_of_text
                     : is_true(recipe, "data", "end_of_text_first") ? DocumentStart::end_of_text
                                                                    : DocumentStart::nothing;
  const std::string path = text_at(recipe, "tokenizer", "path");
  const std::string then = !path.empty() ? path : text_at(recipe, "data", "folder") + "/tokenizer";
  if (!m.folder.empty()) m.tokenizer_places.push_back(m.folder + "/" + run_files::kTokenizer);
  m.tokenizer_places.push_back(m.folder.empty() ? then : RunPaths(fs, m.folder, recipe).find(then));
}

bool holds_checkpoints(FileSystem& fs, const std::string& folder) {
  const std::vector<std::string> names = fs.list(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return checkpoint_layout::is_checkpoint_name(name); });
}

/// Of a run without a complete checkpoint.
[[noreturn]] void refuse_unsaved_run(FileSystem& fs, const std::string& path) {
  const std::string config = path + "/" + run_files::kConfig, inner = path + "/" + run_files::kCheckpoints;
  if (fs.exists(inner) && holds_checkpoints(fs, inner))
    throw Error(fmt::format("none of the checkpoints in '{}' is complete and undamaged", inner),
                "the lines above say why; copy the run folder again, or take an older copy");
  std::string first;
  if (fs.exists(config)) {
    const ConfigNode recipe = parse_toml(fs.read(config), config);
    const ConfigNode* every = value_at(recipe, "checkpoint", "every");
    const ConfigNode* phases = recipe.find(recipe.find("phases") != nullptr ? "phases" : "stages");
    const ConfigNode* steps =
        phases != nullptr && !phases->items.empty() ? phases->items.front().find("steps") : nullptr;
    int64_t step = steps != nullptr ? steps->integer : 0;
    if (every != nullptr && every->integer > 0) step = std::min(step, every->integer);
    if (step > 0) first = fmt::format(": it saves its first one at step {}", step);
  }
  throw Error(
      fmt::format("the run in '{}' has no checkpoint yet{}", path, first),
      fmt::format("`ingot run {}` trains on, or copy the folder 'checkpoints' too if this is a copy", path));
}

[[noreturn]] void refuse_path(FileSystem& fs, const std::string& path) {
  const char* kinds =
      "a model is a run folder, an import, a checkpoint, a folder of checkpoints, or a folder "
      "in Hugging Face's layout";
  const auto ends_with = [&](const char* ending) { return path.ends_with(ending); };
  if (path.empty()) throw Error("no model is named", kinds);
  if (!fs.exists(path)) {
    const bool hub_name = path.find('/') != path.npos && path.find('/') == path.rfind('/') &&
                          path.find_first_of("./") == path.find('/');
    throw Error(fmt::format("there is no file or folder '{}'", path),
                hub_name
                    ? fmt::format("a name on the Hugging Face Hub has to be downloaded first: hf download "
                                  "{} --local-dir {}",
                                  path, path.substr(path.find('/') + 1))
                    : kinds);
  }
  if (ends_with(".toml"))
    throw Error(fmt::format("'{}' is a recipe, expected a model", path),
                fmt::format("`ingot run {}` trains it; then name its run folder", path));
  if (ends_with(".gguf"))
    throw Error(fmt::format("'{}' is a GGUF file, which ingot writes but does not read", path), kinds);
  if (ends_with(".safetensors") || ends_with(".json") || ends_with(".bin"))
    throw Error(fmt::format("'{}' is a file of a model, expected its folder", path),
                fmt::format("name '{}'", checkpoint_layout::parent_of(path)));
  std::error_code broken;
  if (!std::filesystem::is_directory(path, broken))
    fs.map(path);  // says what stands there where it is no file either
  throw Error(
      fmt::format("'{}' is no model: no run or import (it has no folder 'checkpoints'), no checkpoint "
                  "(no manifest.json), no folder of checkpoints (nothing in it is called "
                  "step-00000000 or so), no Hugging Face model (no config.json)",
                  path),
      kinds);
}

/// Where the model is called `path`; sets the folder too.
CheckpointReader find_checkpoint(FileSystem& fs, const std::string& path, Verify verify,
                                 std::string& folder) {
  const std::string inner = path + "/" + run_files::kCheckpoints;
  const bool run = fs.exists(path + "/" + run_files::kConfig) || fs.exists(path + "/" + run_files::kRecord);
  if (fs.exists(inner) || run) {
    folder = path;
    std::optional<CheckpointReader> newest = CheckpointReader::open_newest(fs, inner, verify);
    if (!newest) refuse_unsaved_run(fs, path);
    return std::move(*newest);
  }
  const std::string name = path.substr(path.find_last_of('/') + 1);
  const bool one = checkpoint_layout::is_checkpoint_name(name) || fs.exists(path + "/" + kManifestFile);
  if (path.empty() || !fs.exists(path)) refuse_path(fs, path);
  if (!one && fs.exists(path + "/config.json")) {
    folder = path;
    log::info("reading '{}' from Hugging Face's layout (`ingot import` does it once)", path);
    return import_in_memory(fs, path);
  }
  std::error_code broken;  // links in circles are no folder
  if (!one && (!std::filesystem::is_directory(path, broken) || !holds_checkpoints(fs, path)))
    refuse_path(fs, path);
  CheckpointReader reader = CheckpointReader::open(fs, path, verify);
  const std::string checkpoints = checkpoint_layout::parent_of(reader.path());
  const std::string parent = checkpoint_layout::parent_of(checkpoints);
  if (checkpoints.substr(checkpoints.find_last_of('/') + 1) == run_files::kCheckpoints) folder = parent;
  return reader;
}

}  // namespace

StoredModel open_stored_model(FileSystem& fs, const std::string& given, Verify verify) {
  if (given.empty()) refuse_path(fs, given);
  const std::string path =
      given.substr(0, std::max<size_t>(given.find_last_not_of('/') + 1, given.starts_with('/')));
  std::string folder;
  StoredModel m{.reader = find_checkpoint(fs, path, verify, folder)};
  m.folder = folder;
  m.config = stored_model_config(m.reader);
  const bool huggingface = m.reader.path() == path && fs.exists(path + "/config.json");
  const std::string small = huggingface ? path : m.folder + "/" + kSmallFiles;
  if (!m.folder.empty() && fs.exists(small)) {
    m.small_files = small;
    m.tokenizer_places.push_back(small);
  }
  if (m.reader.manifest().blobs.contains(kImportBlob))
    read_import(m);
  else
    read_recipe(fs, m);
  for (const std::string& place : m.tokenizer_places)
    if (m.tokenizer_folder.empty() && Tokenizer::holds_tokenizer(fs, place)) m.tokenizer_folder = place;
  return m;
}

Tokenizer load_tokenizer(const StoredModel& m, const std::string& given) {
  const std::string folder = given.empty() ? m.tokenizer_folder : given;
  const std::string trained_with = stored_tokenizer_hash(m.reader);
  if (folder.empty() && trained_with.empty())
    throw Error(fmt::format("'{}' came without a tokenizer", m.reader.path()),
                "give one with --tokenizer FOLDER");
  if (folder.empty()) {
    std::string tried;
    for (const std::string& place : m.tokenizer_places)
      tried += fmt::format("{}'{}'", tried.empty() ? "" : ", ", place);
    throw Error(fmt::format("the tokenizer of '{}' is missing; looked in {}", m.reader.path(), tried),
                "give the run's own tokenizer with --tokenizer FOLDER");
  }
  Tokenizer t = Tokenizer::load(folder);
  if (!trained_with.empty() && t.content_hash() != trained_with)
    throw Error(fmt::format("'{}' was trained with tokenizer {}, '{}' is {}", m.reader.path(), trained_with,
                            folder, t.content_hash()),
                "give the run's own tokenizer with --tokenizer");
  if (t.vocab_size() > m.config.vocab)
    throw Error(
        fmt::format("the tokenizer '{}' has {} tokens, the model {}", folder, t.vocab_size(), m.config.vocab),
        "give the run's own tokenizer with --tokenizer");
  return t;
}

}  // namespace ingot
