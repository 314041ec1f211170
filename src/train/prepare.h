// From the text sources of a recipe to what training reads: a tokenizer and one tokenized dataset per source,
// kept in the data folder and reused while inputs, options and tokenizer are the same.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "chat/chat_template.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"
#include "train/recipe.h"

namespace ingot {

struct PreparedData {
  Tokenizer tokenizer;
  std::vector<data::Dataset> sources;  ///< in the recipe's order
  int32_t vocab = 0;                   ///< what the model needs: the tokenizer's size
};

/// The tokens that stand before and after every document; the first also stands before prompts of samples.
struct DocumentTokens {
  std::optional<int32_t> begin, end;
};
/// Throws Error for a token that [data] asks for and the tokenizer does not name.
DocumentTokens document_tokens(const DataConfig& data, const Tokenizer& tokenizer);
/// How documents and prompts of samples are encoded.
EncodeOptions encode_options(const DataConfig& data);

/// What is read to see whether it is still the same.
enum class DataCheck {
  changed,     ///< text and shards whose size, time or inode has changed since they were read last
  everything,  ///< all text and all shards, by one rank of a node
};

/// Trains the tokenizer if the recipe names none and the folder has none, and tokenizes what is missing.
/// Progress goes to standard error. Errors name the source, file or field; where the folder was prepared with
/// another tokenizer, text or options than the recipe says, they name each difference. Text may be gone
/// once it is tokenized. One process at a time prepares a data folder; a second one waits for it, says so,
/// and then uses what the first one made.
PreparedData prepare_data(FileSystem& fs, const Recipe& recipe, DataCheck check = DataCheck::changed);

/// True where tokenizer and datasets exist: prepare_data() will check them and write nothing.
bool is_prepared(FileSystem& fs, const Recipe& recipe);

/// Where the recipe's tokenizer lies: tokenizer.path, or in the data folder; where that is gone, with the run
/// if it has started.
std::string tokenizer_folder(FileSystem& fs, const Recipe& recipe);
/// The chat template of the recipe's conversations: data.chat_template, else that of the tokenizer's folder.
/// Error where the former cannot be opened; nothing where there is neither.
std::optional<chat::ChatTemplate> find_chat_template(FileSystem& fs, const Recipe& recipe);
/// The same; Error where there is none.
chat::ChatTemplate require_chat_template(FileSystem& fs, const Recipe& recipe);
/// Where a source's tokens lie.
std::string dataset_folder(const Recipe& recipe, const SourceConfig& source);

/// The recipe with the tokenizer's size where model.vocab is 0. Error where the model has fewer tokens.
Recipe with_vocabulary(Recipe recipe, const PreparedData& data);

/// Opens what prepare_data() made; trains and tokenizes nothing.
PreparedData open_data(FileSystem& fs, const Recipe& recipe);

}  // namespace ingot
