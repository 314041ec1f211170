// See manifest.h.
#include "data/manifest.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "data/json_fields.h"

namespace ingot::data {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "ingot token dataset";
constexpr int64_t kMost = int64_t{1} << 56;  // sums and byte counts still fit 63 bits

void check_hash(const std::string& hash, const std::string& where, const char* key) {
  const bool hex = std::all_of(hash.begin(), hash.end(),
                               [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (hash.size() != 32 || !hex) fail("{}: '{}' is '{}', expected 32 hex digits", where, key, hash);
}

void check_file_name(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && name.size() <= 255 && name[0] != '.' &&
                     name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
  if (!plain) fail("{}: '{}' is not a plain file name", where, name);
}

ShardInfo read_shard(const json& value, const std::string& where) {
  JsonFields f(value, where);
  ShardInfo s;
  s.file = f.text("file");
  check_file_name(s.file, where);
  s.tokens = f.integer("tokens", 0, kMost);
  s.documents = f.integer("documents", 0, kMost);
  s.text_bytes = f.integer("text_bytes", 0, kMost);
  s.file_bytes = f.integer("file_bytes", 0, kMost);
  s.hash = f.text("hash");
  check_hash(s.hash, where, "hash");
  f.refuse_others();
  return s;
}

SplitInfo read_split(const json& value, const std::string& where) {
  JsonFields f(value, where);
  SplitInfo s;
  s.name = f.text("name");
  s.tokens = f.integer("tokens", 0, kMost);
  s.documents = f.integer("documents", 0, kMost);
  s.text_bytes = f.integer("text_bytes", 0, kMost);
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t text_bytes = 0;
  for (const json& shard : f.list("shards")) {
    s.shards.push_back(read_shard(shard, fmt::format("{}.shards[{}]", where, s.shards.size())));
    tokens += s.shards.back().tokens;
    documents += s.shards.back().documents;
    text_bytes += s.shards.back().text_bytes;
    if (tokens > kMost || documents > kMost || text_bytes > kMost)
      fail("{}: the shards' counts are too large", where);
  }
  if (tokens != s.tokens || documents != s.documents || text_bytes != s.text_bytes)
    fail("{}: the shards hold {} tokens, {} documents, {} text bytes; the split claims {}, {}, {}", where,
         tokens, documents, text_bytes, s.tokens, s.documents, s.text_bytes);
  f.refuse_others();
  return s;
}

InputInfo read_input(const json& value, const std::string& where) {
  JsonFields f(value, where);
  InputInfo input{f.text("path"), f.integer("bytes", 0, kMost), f.text("hash")};
  check_hash(input.hash, where, "hash");
  f.refuse_others();
  return input;
}

json shard_json(const ShardInfo& s) {
  return {{"file", s.file},
          {"tokens", s.tokens},
          {"documents", s.documents},
          {"text_bytes", s.text_bytes},
          {"file_bytes", s.file_bytes},
          {"hash", s.hash}};
}

}  // namespace

int64_t SplitInfo::file_bytes() const {
  int64_t bytes = 0;
  for (const ShardInfo& shard : shards) bytes += shard.file_bytes;
  return bytes;
}

std::string DatasetManifest::content_hash(const SplitInfo& split) const {
  Hasher hasher;
  for (const ShardInfo& s : split.shards) hasher.update(s.hash.data(), s.hash.size());
  return hasher.hex();
}

std::string to_json(const DatasetManifest& m) {
  json inputs = json::array();
  for (const InputInfo& i : m.inputs)
    inputs.push_back({{"path", i.path}, {"bytes", i.bytes}, {"hash", i.hash}});
  json splits = json::array();
  for (const SplitInfo& s : m.splits) {
    json shards = json::array();
    for (const ShardInfo& shard : s.shards) shards.push_back(shard_json(shard));
    splits.push_back({{"name", s.name},
                      {"tokens", s.tokens},
                      {"documents", s.documents},
                      {"text_bytes", s.text_bytes},
                      {"shards", std::move(shards)}});
  }
  json out = {{"format", kFormat},
              {"version", kManifestVersion},
              {"name", m.name},
              {"token_bytes", m.token_bytes},
              {"vocabulary", m.vocabulary},
              {"eos", m.eos},
              {"tokenizer_hash", m.tokenizer_hash},
              {"job", m.job},
              {"options", m.options},
              {"inputs", std::move(inputs)},
              {"splits", std::move(splits)}};
  if (m.prompts) out["prompts"] = true;
  // Paths need not be UTF-8; a replacement character in a provenance path is better than no dataset.
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

DatasetManifest parse_manifest(std::string_view text, const std::string& origin) {
  const json value = parse_json(text, origin);
  const std::string where = fmt::format("'{}'", origin);
  JsonFields f(value, where);
  check_format(f, kFormat, kManifestVersion);
  DatasetManifest m;
  m.name = f.text("name");
  m.token_bytes = f.integer("token_bytes", 2, 4);
  if (m.token_bytes == 3) fail("{}: 'token_bytes' is 3, expected 2 or 4", where);
  m.vocabulary = f.integer("vocabulary", 1, m.token_bytes == 2 ? 65536 : INT32_MAX);
  m.eos = f.integer("eos", -1, m.vocabulary - 1);
  if (value.contains("prompts")) {
    if (f.get("prompts") != json(true))
      fail("{}: 'prompts' is {}, expected true", where, f.get("prompts").dump());
    m.prompts = true;
  }
  m.tokenizer_hash = f.text("tokenizer_hash");
  check_hash(m.tokenizer_hash, where, "tokenizer_hash");
  m.job = f.text("job");
  check_hash(m.job, where, "job");
  m.options = f.text("options");
  for (const json& input : f.list("inputs"))
    m.inputs.push_back(read_input(input, fmt::format("{}: inputs[{}]", where, m.inputs.size())));
  for (const json& split : f.list("splits")) {
    m.splits.push_back(read_split(split, fmt::format("{}: splits[{}]", where, m.splits.size())));
    for (size_t i = 0; i + 1 < m.splits.size(); ++i)
      if (m.splits[i].name == m.splits.back().name)
        fail("{}: split '{}' is there twice", where, m.splits[i].name);
  }
  f.refuse_others();
  return m;
}

}  // namespace ingot::data
