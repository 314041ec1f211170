// The chat template of a model on disk.
#pragma once
#include <optional>
#include <string>

#include "chat/chat_template.h"
#include "exchange/stored_model.h"

namespace ingot {

/// The template that `named` names: a .jinja file, a shipped one, "none" for none. Where it is empty: that
/// of the folder that the model came with, or of its tokenizer's, or the one that its run trained with
/// (data.chat_template); nothing where there is none. Throws Error for a name that is neither file nor
/// shipped.
std::optional<chat::ChatTemplate> chat_template_of(FileSystem& fs, const StoredModel& model,
                                                   const std::string& named = {});

}  // namespace ingot
