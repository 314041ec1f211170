// What the tokenizer of a data folder was trained from, in `trained_from.json` beside it, so that a recipe
// that describes another one does not take it silently.
#pragma once
#include <string>

#include "data/tokenize_job.h"
#include "tokenizer/tokenizer.h"
#include "train/recipe.h"

namespace ingot {

/// How a source's text is read.
data::SourceOptions source_options(const SourceConfig& source);

/// Writes the file into the tokenizer's folder, which is made if absent. Before the tokenizer is saved.
void record_tokenizer_origin(FileSystem& fs, const std::string& folder, const Recipe& recipe);

/// Throws Error, with each difference, where the recipe describes another tokenizer: another kind,
/// vocabulary, pattern or text. Of a tokenizer without the file (of an earlier version) kind, pattern and
/// vocabulary are compared; that it has fewer tokens is a warning, because a short text has no more.
/// `checked_since`: see data/checked_files.h.
void require_tokenizer_origin(FileSystem& fs, const std::string& folder, const Recipe& recipe,
                              const Tokenizer& tokenizer, double checked_since);

}  // namespace ingot
