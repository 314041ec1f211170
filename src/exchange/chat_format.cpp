// See chat_format.h.
#include "exchange/chat_format.h"

#include "checkpoint/model_state.h"
#include "report/run_paths.h"

namespace ingot {
namespace {

/// data.chat_template of its run's recipe: a shipped name, or where that file or folder is now.
std::string trained_with(FileSystem& fs, const StoredModel& model) {
  if (model.imported) return "";
  const ConfigNode recipe =
      parse_toml(config_of_blob(model.reader, "recipe"), model.reader.path() + ": recipe");
  const ConfigNode* data = recipe.find("data");
  const ConfigNode* given = data != nullptr ? data->find("chat_template") : nullptr;
  if (given == nullptr || given->kind != ConfigNode::Kind::string) return "";
  if (given->string.find('/') == std::string::npos || model.folder.empty()) return given->string;
  return RunPaths(fs, model.folder, recipe).find(given->string);
}

}  // namespace

std::optional<chat::ChatTemplate> chat_template_of(FileSystem& fs, const StoredModel& model,
                                                   const std::string& named) {
  if (named == "none") return std::nullopt;
  if (named.empty()) {
    for (const std::string& folder : {model.small_files, model.tokenizer_folder})
      if (!folder.empty())
        if (auto found = chat::ChatTemplate::from_folder(fs, folder)) return found;
    const std::string trained = trained_with(fs, model);
    if (trained.empty()) return std::nullopt;
    return chat::open_template(fs, trained);
  }
  if (!fs.exists(named)) return chat::ChatTemplate::shipped(named);
  chat::NamedTokens tokens;
  const std::string config = model.tokenizer_folder + "/tokenizer_config.json";
  if (!model.tokenizer_folder.empty() && fs.exists(config))
    tokens = chat::named_tokens(fs.read(config), config);
  return chat::ChatTemplate::from_text(fs.read(named), std::move(tokens), named);
}

}  // namespace ingot
