// See add_tokens.h.
#include "exchange/add_tokens.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/model_state.h"
#include "exchange/derived_folder.h"
#include "exchange/import.h"
#include "tensor/buffer.h"
#include "tensor/convert.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

constexpr size_t kMaxTokenBytes = 1024;  // what a tokenizer.json may hold

Tokenizer with_tokens(const Tokenizer& tokenizer, const std::vector<std::string>& tokens,
                      std::vector<int32_t>& ids) {
  if (tokens.empty())
    throw Error("no token is named", "give --special-token \"<|think|>\", as often as needed");
  TokenizerSpec spec = tokenizer.spec();
  int32_t next = tokenizer.vocab_size();
  for (const std::string& token : tokens) {
    if (token.empty() || token.size() > kMaxTokenBytes)
      fail("a special token has {} bytes, expected 1 to {}", token.size(), kMaxTokenBytes);
    const bool twice = std::any_of(spec.added_tokens.begin(), spec.added_tokens.end(),
                                   [&](const AddedToken& a) { return a.content == token; });
    if (twice) throw Error(fmt::format("'{}' is a token of this tokenizer already", token), "leave it out");
    ids.push_back(next);
    spec.added_tokens.push_back({.id = next++, .content = token});
  }
  return Tokenizer::from_spec(std::move(spec));
}

/// Whether a parameter has a row per token.
bool has_token_rows(const std::string& name) {
  return name == "embed.weight" || name == "lm_head.weight" || name.starts_with("value_embed.");
}

/// The first rows of a tensor as they are; those of the new tokens, [first, last), are the mean of the rows
/// before `first`; rows of padding that are new are zero.
void extend_rows(const std::vector<std::byte>& from, const Tensor& to, int64_t first, int64_t last) {
  const int64_t width = to.dim(1), row_bytes = width * size_of(to.dtype());
  auto* out = static_cast<std::byte*>(to.data);
  std::memset(out, 0, static_cast<size_t>(to.bytes()));
  std::memcpy(out, from.data(), std::min(from.size(), static_cast<size_t>(to.bytes())));
  std::vector<double> mean(static_cast<size_t>(width), 0.0), row(mean);
  for (int64_t r = 0; r < first; ++r) {
    convert_elements(reinterpret_cast<std::byte*>(row.data()), DType::f64, out + r * row_bytes, to.dtype(),
                     width);
    for (size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(first);
  }
  for (int64_t r = first; r < last; ++r)
    convert_elements(out + r * row_bytes, to.dtype(), reinterpret_cast<const std::byte*>(mean.data()),
                     DType::f64, width);
}

}  // namespace

AddedTokens add_special_tokens(FileSystem& fs, const std::string& path,
                               const std::vector<std::string>& tokens, const std::string& out) {
  require_new_folder(fs, out);
  const StoredModel stored = open_stored_model(fs, path);
  if (stored.config.lora.rank > 0)
    throw Error(fmt::format("'{}' has adapters, whose base would change", stored.reader.path()),
                "merge them into the weights first: ingot export, then ingot import");
  const Tokenizer before = load_tokenizer(stored);
  AddedTokens report;
  const Tokenizer after = with_tokens(before, tokens, report.ids);
  ModelConfig config = stored.config;
  config.vocab = std::max<int64_t>(config.vocab, after.vocab_size());
  report.vocab_before = stored.config.vocab, report.vocab_after = config.vocab;
  const Decoder decoder(config);
  std::vector<Buffer> memory;
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : stored.reader.tensors()) {
    if (tensor.kind == TensorKind::optimizer) continue;
    const int p = decoder.table().find(name);
    const Shape shape = p >= 0 ? decoder.table()[p].shape : tensor.meta.shape;
    memory.emplace_back(shape.numel() * size_of(tensor.meta.dtype));
    const Tensor to(memory.back().data(), shape, tensor.meta.dtype);
    if (p >= 0 && has_token_rows(name)) {
      std::vector<std::byte> rows(static_cast<size_t>(tensor.meta.bytes()));
      stored.reader.read(name, Region::whole(tensor.meta.shape), tensor.meta.dtype, rows.data());
      extend_rows(rows, to, before.vocab_size(), after.vocab_size());
    } else {
      stored.reader.read(name, Region::whole(shape), tensor.meta.dtype, to.data);
    }
    pieces.push_back(Piece::whole(name, tensor.kind, to));
  }
  copy_small_files_of(fs, stored, true, out);
  const std::string small = out + "/" + kSmallFiles;
  if (!fs.exists(small + "/tokenizer_config.json")) after.save(small, fs);
  after.save(small + "/tokenizer.json", fs);
  for (const char* older : {"/tokenizer.model", "/added_tokens.json"}) fs.remove_all(small + older);
  nlohmann::json origin{{"made_by", "tokenizer add"}, {"from", stored.reader.path()}, {"tokens", tokens}};
  if (stored.document_start) origin["document_start"] = name_of(*stored.document_start);
  report.checkpoint = write_new_model(fs,
                                      {.config = config,
                                       .layout = stored.layout,
                                       .dtype = stored.precision.compute,
                                       .tokenizer = after.content_hash(),
                                       .pieces = std::move(pieces),
                                       .protection = "tokenizer add",
                                       .origin = std::move(origin)},
                                      out);
  return report;
}

}  // namespace ingot
