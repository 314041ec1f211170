// See stored_model.h.
#include "exchange/stored_model.h"

#include <nlohmann/json.hpp>

#include "checkpoint/layout.h"
#include "checkpoint/model_state.h"
#include "exchange/import.h"

namespace ingot {
namespace {

/// The text of a key of a configuration, or "".
std::string text_at(const ConfigNode& tree, const char* section, const char* key) {
  const ConfigNode* s = tree.find(section);
  const ConfigNode* v = s != nullptr ? s->find(key) : nullptr;
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

void read_recipe(StoredModel& m) {
  const ConfigNode recipe = parse_toml(config_of_blob(m.reader, "recipe"), m.reader.path() + ": recipe");
  m.precision = text_at(recipe, "run", "precision") == "bf16" ? Precision::bf16() : Precision::f32();
  m.document_start = is_true(recipe, "data", "begin_of_text")       ? DocumentStart::begin_of_text
                     : is_true(recipe, "data", "end_of_text_first") ? DocumentStart::end_of_text
                                                                    : DocumentStart::nothing;
  const std::string path = text_at(recipe, "tokenizer", "path");
  m.tokenizer_folder = !path.empty() ? path : text_at(recipe, "data", "folder") + "/tokenizer";
}

}  // namespace

StoredModel open_stored_model(FileSystem& fs, const std::string& given, Verify verify) {
  const std::string path = given.substr(0, given.find_last_not_of('/') + 1);
  const std::string inner = path + "/checkpoints";
  StoredModel m{.reader = CheckpointReader::open(fs, fs.exists(inner) ? inner : path, verify)};
  m.config = stored_model_config(m.reader);
  const std::string checkpoints = checkpoint_layout::parent_of(m.reader.path());
  if (checkpoints.ends_with("checkpoints")) m.folder = checkpoint_layout::parent_of(checkpoints);
  if (m.reader.manifest().blobs.contains(kImportBlob))
    read_import(m);
  else
    read_recipe(m);
  const std::string small = m.folder + "/" + kSmallFiles;
  if (!m.folder.empty() && fs.exists(small)) {
    m.small_files = small;
    if (fs.exists(small + "/tokenizer.json")) m.tokenizer_folder = small;
  }
  return m;
}

Tokenizer load_tokenizer(const StoredModel& m, const std::string& given) {
  const std::string folder = given.empty() ? m.tokenizer_folder : given;
  const std::string trained_with = stored_tokenizer_hash(m.reader);
  if (folder.empty())
    throw Error(fmt::format("'{}' came without a tokenizer", m.reader.path()),
                "give one with --tokenizer FOLDER");
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
