// Small datasets for tests: a byte tokenizer and a dataset made of given documents.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/tokenize_job.h"
#include "support/support.h"

namespace ingot::test {

/// Token = byte; token 256 ends a document (or nothing does).
inline data::TokenizerView byte_tokenizer(bool with_eos = true) {
  data::TokenizerView view;
  view.encode = [](std::span<const std::string_view> texts, std::vector<std::vector<int32_t>>& tokens) {
    tokens.clear();
    for (const std::string_view text : texts) {
      tokens.emplace_back();
      for (const char c : text) tokens.back().push_back(static_cast<unsigned char>(c));
    }
  };
  view.vocabulary = with_eos ? 257 : 256;
  view.eos = with_eos ? 256 : -1;
  view.hash = with_eos ? "00000000000000000000000000000001" : "00000000000000000000000000000002";
  return view;
}

/// Tokenizes the documents (none may be empty or contain '|') with the byte tokenizer; no validation split.
inline std::shared_ptr<const data::TokenSplit> make_split(const TempDir& dir, const std::string& name,
                                                          const std::vector<std::string>& documents,
                                                          bool with_eos = true,
                                                          int64_t shard_tokens = 1 << 20) {
  std::string text;
  for (const std::string& d : documents) text += (text.empty() ? "" : "|") + d;
  write_text(dir / (name + ".txt"), text);
  data::TokenizeOptions options;
  options.name = name;
  options.inputs = {dir / (name + ".txt")};
  options.source.split = data::DocumentSplit::marker;
  options.source.marker = "|";
  options.validation_fraction = 0;
  options.shard_tokens = shard_tokens;
  data::tokenize(real_file_system(), dir / name, options, byte_tokenizer(with_eos));
  return data::Dataset::open(real_file_system(), dir / name, {true, {}}).train();
}

}  // namespace ingot::test
