// See chat_format.h.
#include "exchange/chat_format.h"

namespace ingot {

std::optional<chat::ChatTemplate> chat_template_of(FileSystem& fs, const StoredModel& model,
                                                   const std::string& named) {
  if (named == "none") return std::nullopt;
  if (named.empty()) {
    for (const std::string& folder : {model.small_files, model.tokenizer_folder})
      if (!folder.empty())
        if (auto found = chat::ChatTemplate::from_folder(fs, folder)) return found;
    if (model.chat_template.empty()) return std::nullopt;
    return chat::open_template(fs, model.chat_template);
  }
  if (!fs.exists(named)) return chat::ChatTemplate::shipped(named);
  chat::NamedTokens tokens;
  const std::string config = model.tokenizer_folder + "/tokenizer_config.json";
  if (!model.tokenizer_folder.empty() && fs.exists(config))
    tokens = chat::named_tokens(fs.read(config), config);
  return chat::ChatTemplate::from_text(fs.read(named), std::move(tokens), named);
}

}  // namespace ingot
