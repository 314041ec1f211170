// See control_tokens.h.
#include "exchange/control_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"

namespace ingot {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxSmallFileBytes = uint64_t{1} << 20;

/// The ids of "eos_token_id", a number or a list, in a file of Hugging Face's layout; none where the file or
/// the field is absent or null.
std::vector<int32_t> end_ids(FileSystem& fs, const std::string& path, int64_t vocab) {
  if (!fs.exists(path)) return {};
  if (fs.size(path) > kMaxSmallFileBytes)
    fail("'{}' has {} bytes, expected at most {}", path, fs.size(path), kMaxSmallFileBytes);
  const std::string text = fs.read(path);
  require_shallow_json(text, path);
  const json root = json::parse(text, nullptr, false);
  if (!root.is_object()) fail("'{}': expected a JSON object", path);
  const auto field = root.find("eos_token_id");
  if (field == root.end() || field->is_null()) return {};
  std::vector<int32_t> ids;
  for (const json& id : field->is_array() ? *field : json::array({*field})) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab))
      throw Error(
          fmt::format("'{}': eos_token_id: expected ids from 0 to {}, found {}", path, vocab - 1,
                      field->dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 80)),
          "correct the field, or remove it: then the tokenizer's end-of-text token ends a generation");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

std::string ControlTokens::text(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string all;
  for (const int32_t id : ids)
    all += (all.empty() ? "" : " ") +
           (id < tokenizer.vocab_size() ? tokenizer.decode({&id, 1}) : fmt::format("id {}", id));
  return all.empty() ? "none" : all;
}

ControlTokens control_tokens(FileSystem& fs, const StoredModel& model, const Tokenizer& tokenizer) {
  ControlTokens tokens;
  const std::optional<int32_t> eos = tokenizer.roles().eos;
  if (!model.small_files.empty())
    tokens.end = end_ids(fs, model.small_files + "/generation_config.json", model.config.vocab);
  if (!model.document_start) {
    tokens.begin = tokenizer.begin_token();
    if (tokens.end.empty() && !model.small_files.empty())
      tokens.end = end_ids(fs, model.small_files + "/config.json", model.config.vocab);
    if (tokens.end.empty() && eos) tokens.end = {*eos};
  } else {
    if (*model.document_start == DocumentStart::begin_of_text)
      tokens.begin = tokenizer.begin_token() ? tokenizer.begin_token() : tokenizer.roles().bos;
    if (*model.document_start == DocumentStart::end_of_text) tokens.begin = eos;
    if (eos) tokens.end.push_back(*eos);
  }
  std::sort(tokens.end.begin(), tokens.end.end());
  tokens.end.erase(std::unique(tokens.end.begin(), tokens.end.end()), tokens.end.end());
  return tokens;
}

}  // namespace ingot
