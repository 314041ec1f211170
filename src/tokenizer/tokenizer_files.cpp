// Tokenizer::load and save: tokenizer.json or tokenizer.model, and tokenizer_config.json for the roles of
// tokens.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"
#include "base/json_depth.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

namespace ingot {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMainFile = "tokenizer.json";
constexpr const char* kSentencePieceFile = "tokenizer.model";
constexpr const char* kConfigFile = "tokenizer_config.json";

/// The id that tokenizer_config.json gives to a role ("text" or {"content": "text"}); unset where it is
/// silent.
void read_role(const ordered_json& config, const char* key, const std::string& path, const Tokenizer::Impl& t,
               std::optional<int32_t>& role) {
  const auto it = config.find(key);
  if (it == config.end()) return;
  role.reset();
  if (it->is_null()) return;
  const ordered_json& name = it->is_object() && it->contains("content") ? (*it)["content"] : *it;
  if (!name.is_string()) fail("'{}': {}: expected a token's text, found {}", path, key, it->dump());
  const auto text = name.get<std::string>();
  role = t.find_token(text);
  if (!role) fail("'{}': {} is '{}', which is not an added token of {}", path, key, text, kMainFile);
}

void read_roles(const std::string& path, Tokenizer::Impl& t) {
  const std::string text = real_file_system().read(path);
  require_shallow_json(text, path);
  ordered_json config;
  try {
    config = ordered_json::parse(text);
  } catch (const ordered_json::exception& e) {
    fail("'{}' is not valid JSON: {}", path, e.what());
  }
  if (!config.is_object()) fail("'{}': expected an object", path);
  read_role(config, "bos_token", path, t, t.roles.bos);
  read_role(config, "eos_token", path, t, t.roles.eos);
  read_role(config, "pad_token", path, t, t.roles.pad);
  // transformers replaces the template where the file says either (TokenizersBackend.update_post_processor).
  if (config.contains("add_bos_token") || config.contains("add_eos_token")) {
    const auto add = config.find("add_bos_token");
    if (add != config.end() && !add->is_boolean() && !add->is_null())
      fail("'{}': add_bos_token: expected true or false, found {}", path, add->dump());
    const bool adds = add != config.end() && *add == ordered_json(true) && config.contains("bos_token");
    t.begin = adds ? t.roles.bos : std::nullopt;
  }
}

std::string write_config(const Tokenizer& tokenizer) {
  ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false}};
  const auto role = [&](const char* key, std::optional<int32_t> id) {
    config[key] = id ? ordered_json(std::string(tokenizer.token_bytes(*id))) : ordered_json(nullptr);
  };
  role("bos_token", tokenizer.roles().bos);
  role("eos_token", tokenizer.roles().eos);
  role("pad_token", tokenizer.roles().pad);
  const TokenizerSpec& spec = tokenizer.spec();
  const std::optional<int32_t> begin = tokenizer.begin_token();
  if (begin.value_or(-1) != spec.template_bos) {  // what the file said that it came from
    config["add_bos_token"] = begin.has_value();
    config["add_eos_token"] = spec.template_eos >= 0;
  }
  return config.dump(2) + "\n";
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, const std::string& name) {
  return compiled(parse_tokenizer_json(text, name), name);
}

Tokenizer Tokenizer::from_sentencepiece(std::string_view bytes, const std::string& name) {
  return compiled(parse_sentencepiece(bytes, name), name);
}

Tokenizer Tokenizer::compiled(TokenizerSpec spec, const std::string& name) {
  try {
    return from_spec(std::move(spec));
  } catch (const Error& e) {  // the tables' builders know the field, not the file
    throw Error(fmt::format("'{}': {}", name, e.what()), e.hint());
  }
}

Tokenizer Tokenizer::load(const std::string& path) {
  std::error_code broken;  // links in circles are no folder
  const bool folder = std::filesystem::is_directory(path, broken);
  std::string main = folder ? path + "/" + kMainFile : path;
  if (folder && !real_file_system().exists(main) && holds_tokenizer(real_file_system(), path))
    main = path + "/" + kSentencePieceFile;
  const std::string content = real_file_system().read(main);
  Tokenizer tokenizer =
      main.ends_with(".model") ? from_sentencepiece(content, main) : from_json(content, main);
  const std::string config = path + "/" + kConfigFile;
  // Nobody else has seen these tables yet.
  if (folder && real_file_system().exists(config)) read_roles(config, const_cast<Impl&>(*tokenizer.impl_));
  return tokenizer;
}

bool Tokenizer::holds_tokenizer(FileSystem& fs, const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".model")) return fs.exists(path);
  return fs.exists(path + "/" + kMainFile) || fs.exists(path + "/" + kSentencePieceFile);
}

void Tokenizer::save(const std::string& path, FileSystem& fs) const {
  const std::string main = write_tokenizer_json(impl_->spec);
  if (path.ends_with(".json")) return write_file_atomically(fs, path, main);
  fs.create_folders(path);
  write_file_atomically(fs, path + "/" + kConfigFile, write_config(*this));
  write_file_atomically(fs, path + "/" + kMainFile, main);  // last: a folder with this file holds a tokenizer
}

}  // namespace ingot
