// From a recipe's text sources to what training reads: a tokenizer and one tokenized dataset per source, kept in the data
// folder and reused when inputs, options and tokenizer are the same.
#pragma once
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "tokenizer/tokenizer.h"
#include "train/recipe.h"

namespace ingot {

struct PreparedData {
  Tokenizer tokenizer;
  std::vector<data::Dataset> sources;  ///< in the recipe's order
  int32_t vocab = 0;                   ///< what the model needs: the tokenizer's size
};

/// Trains the tokenizer if the recipe names none and the folder has none, and tokenizes what is missing. Progress goes to
/// standard error. Errors name the source, file or field. One process writes a data folder at a time; a second one waits
/// for it (and says so), then uses what it made.
PreparedData prepare_data(FileSystem& fs, const Recipe& recipe);

/// True where tokenizer and datasets are there: preparing will check them and write nothing.
bool is_prepared(FileSystem& fs, const Recipe& recipe);

/// Opens what prepare_data() made for an existing run; nothing is trained or tokenized.
PreparedData open_data(FileSystem& fs, const Recipe& recipe);

}  // namespace ingot
