// See run_folder.h.
#include "train/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "base/progress.h"
#include "chat/chat_template.h"
#include "checkpoint/model_state.h"
#include "exchange/huggingface_folder.h"
#include "exchange/import.h"
#include "report/run_paths.h"
#include "report/run_record.h"

namespace ingot {
namespace {

namespace stdfs = std::filesystem;

constexpr int64_t kMostKeptBytes = int64_t{64} << 20;  // of a validation split

/// Where a run lies, and its recipe; no file: that of its newest checkpoint.
struct RunPlace {
  std::string folder, file;
};

std::optional<RunPlace> find_run(FileSystem& fs, const std::string& path) {
  std::error_code broken;  // links in circles are no folder
  const bool folder = stdfs::is_directory(path, broken);
  RunPlace place{path, path};
  if (!folder) place.folder = stdfs::path(path).parent_path().string();
  while (place.folder.size() > 1 && place.folder.ends_with('/')) place.folder.pop_back();
  const auto holds = [&](const char* name) {
    return fs.exists((place.folder.empty() ? "." : place.folder) + "/" + name);
  };
  const bool run = holds(run_files::kRecord) || (holds(run_files::kConfig) && holds(run_files::kCheckpoints));
  if (folder) {
    place.file = holds(run_files::kConfig) ? place.folder + "/" + run_files::kConfig : "";
    if (place.file.empty() && !holds(run_files::kCheckpoints))
      throw Error(fmt::format("'{}' is a folder without a run: it holds neither {} nor {}", path,
                              run_files::kConfig, run_files::kCheckpoints),
                  "name a recipe (TOML), or the folder of a run that has started");
  } else if (!run || !path.ends_with(".toml")) {
    return std::nullopt;
  }
  if (place.folder.empty() || place.folder == ".") place.folder = stdfs::current_path().string();
  return place;
}

ConfigNode recorded_recipe(FileSystem& fs, const RunPlace& place) {
  if (!place.file.empty()) return load_toml(place.file);
  const std::string checkpoints = place.folder + "/" + run_files::kCheckpoints;
  const CheckpointReader newest = CheckpointReader::open(fs, checkpoints, Verify::structure);
  if (newest.manifest().blobs.contains(kImportBlob))
    throw Error(fmt::format("'{}' holds an imported model, not a run", place.folder),
                fmt::format("`ingot finetune {} data.jsonl` trains it", place.folder));
  log::warn("'{}' has no {}: taking the recipe of '{}'", place.folder, run_files::kConfig, newest.path());
  return parse_toml(config_of_blob(newest, "recipe"), newest.path() + ": recipe");
}

/// Throws Error for the recipe of another run than the one in whose folder it lies. `recorded`: its
/// run.folder. A run that was moved has its old place in its recipe and in its record.
void require_own_recipe(FileSystem& fs, const RunPlace& place, const std::string& recorded) {
  std::string own;
  try {
    const std::string path = place.folder + "/" + run_files::kRecord;
    const RunRecord record =
        fs.exists(path) ? RunRecord::parse(fs.read(path), path) : RunRecord::parse("{}", path);
    if (const RunRecord::Value* name = record.find("run", "name")) own = value_text(*name);
  } catch (const NewerRun&) {
    throw;
  } catch (const Error&) {  // the record is damaged: nothing speaks against the recipe
  }
  if (own.empty() || own == recorded) return;
  throw Error(
      fmt::format("'{}' is the recipe of the run '{}', but lies in the folder of the run '{}'", place.file,
                  recorded, place.folder),
      fmt::format("to resume the run in that folder name the folder; for the other run move the recipe "
                  "elsewhere, or say --run.folder={}",
                  recorded));
}

/// Makes the paths of a recipe lead where they led.
void relocate(ConfigNode& recipe, const RunPaths& paths) {
  const auto relocate_text = [&](ConfigNode* section, const char* key) {
    ConfigNode* value = section != nullptr ? section->find(key) : nullptr;
    if (value != nullptr && value->kind == ConfigNode::Kind::string)
      value->string = paths.find(value->string);
  };
  relocate_text(recipe.find("run"), "start_from");
  relocate_text(recipe.find("run"), "branch_from");
  relocate_text(recipe.find("tokenizer"), "path");
  relocate_text(recipe.find("memory"), "offload_folder");
  ConfigNode* data = recipe.find("data");
  relocate_text(data, "folder");
  if (ConfigNode* sources = data != nullptr ? data->find("sources") : nullptr)
    for (ConfigNode& source : sources->items) relocate_text(&source, "path");
}

void keep_tokenizer(FileSystem& fs, const Recipe& recipe, const Tokenizer& tokenizer) {
  const std::string to = recipe.run.folder + "/" + run_files::kTokenizer, from = tokenizer_folder(fs, recipe);
  const auto is_kept = [&] {
    try {
      return fs.exists(to + "/tokenizer.json") &&
             Tokenizer::load(to).content_hash() == tokenizer.content_hash();
    } catch (const Error&) {  // written again
      return false;
    }
  };
  if (is_kept()) return;
  std::error_code broken;
  if (stdfs::is_directory(from, broken)) {
    fs.create_folders(to);
    const auto copy = [&](const std::string& name) {
      if (fs.exists(from + "/" + name))
        write_file_atomically(fs, to + "/" + name, fs.read(from + "/" + name));
    };
    for (const std::string& name : huggingface_small_files())
      if (name != "config.json" && name != "tokenizer.json") copy(name);
    copy("tokenizer.json");  // last: a folder with this file holds a tokenizer
  }
  if (!is_kept()) tokenizer.save(to, fs);
}

/// Beside the tokenizer, where chat, serve, eval and export look for it.
void keep_chat_template(FileSystem& fs, const Recipe& recipe) {
  if (recipe.data.chat_template.empty()) return;
  const std::string to = recipe.run.folder + "/" + run_files::kTokenizer + "/chat_template.jinja",
                    text = chat::open_template(fs, recipe.data.chat_template).source();
  if (!fs.exists(to) || fs.read(to) != text) write_file_atomically(fs, to, text);
}

std::string kept_validation(const Recipe& recipe, const std::string& source) {
  return recipe.run.folder + "/" + run_files::kValidation + "/" + source;
}

void copy_file(FileSystem& fs, const std::string& from, const std::string& to) {
  const auto bytes = fs.map(from);
  const auto file = fs.create(to);
  file->append(bytes->bytes().data(), bytes->bytes().size());
  file->sync();
  file->close();
}

void keep_validation(FileSystem& fs, const Recipe& recipe, const data::Dataset& source) {
  if (!source.has_split("validation")) return;
  data::DatasetManifest m = source.manifest();
  std::erase_if(m.splits, [](const data::SplitInfo& split) { return split.name != "validation"; });
  const std::string to = kept_validation(recipe, source.name()), partial = to + ".partial";
  const std::string manifest = to + "/" + data::kManifestName, text = to_json(m);
  if (fs.exists(manifest) && fs.read(manifest) == text) return;
  const int64_t bytes = m.splits.front().file_bytes();
  if (bytes > kMostKeptBytes)
    return log::info("the validation split of '{}' stays in '{}': {} are too many to keep with the run",
                     source.name(), source.folder(), format_bytes(static_cast<double>(bytes)));
  fs.remove_all(partial);
  fs.create_folders(partial);
  for (const data::ShardInfo& shard : m.splits.front().shards)
    copy_file(fs, source.folder() + "/" + shard.file, partial + "/" + shard.file);
  write_file_atomically(fs, partial + "/" + data::kManifestName, text);
  fs.remove_all(to);
  fs.rename(partial, to);
}

}  // namespace

Recipe load_run(FileSystem& fs, const std::string& path, const std::vector<std::string>& overrides,
                std::string* moved_from) {
  const std::optional<RunPlace> place = find_run(fs, path);
  if (!place) return load_recipe(path, overrides);
  ConfigNode recipe = recorded_recipe(fs, *place);
  add_later_keys(recipe);
  const RunPaths paths(fs, place->folder, recipe);
  const bool named = std::any_of(overrides.begin(), overrides.end(),
                                 [](const std::string& o) { return o.starts_with("--run.folder"); });
  if (!named && !paths.leads_here() && !place->file.empty() && !paths.recorded().empty())
    require_own_recipe(fs, *place, paths.recorded());
  relocate(recipe, paths);
  if (!paths.leads_here()) apply_override(recipe, to_node(Recipe{}), "--run.folder=" + place->folder);
  if (moved_from != nullptr && paths.moved()) *moved_from = paths.recorded();
  return recipe_from_tree(std::move(recipe), overrides);
}

void keep_with_run(FileSystem& fs, const Recipe& recipe, const PreparedData& data) {
  keep_tokenizer(fs, recipe, data.tokenizer);
  keep_chat_template(fs, recipe);
  for (const data::Dataset& source : data.sources) keep_validation(fs, recipe, source);
}

PreparedData open_validation_data(FileSystem& fs, const Recipe& recipe) {
  const std::string own = recipe.run.folder + "/" + run_files::kTokenizer;
  PreparedData data{
      Tokenizer::load(fs.exists(own + "/tokenizer.json") ? own : tokenizer_folder(fs, recipe)), {}, 0};
  data.vocab = data.tokenizer.vocab_size();
  for (const SourceConfig& s : recipe.data.sources) {
    const std::string kept = kept_validation(recipe, s.name);
    const bool here = fs.exists(kept + "/" + data::kManifestName);
    data.sources.push_back(data::Dataset::open(fs, here ? kept : dataset_folder(recipe, s),
                                               {.tokenizer_hash = data.tokenizer.content_hash()}));
  }
  return data;
}

}  // namespace ingot
