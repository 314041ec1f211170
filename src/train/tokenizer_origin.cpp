// See tokenizer_origin.h.
#include "train/tokenizer_origin.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "data/prepared_text.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

constexpr const char* kOriginFile = "trained_from.json";

std::string reading_of(const SourceConfig& s) {
  std::string text = fmt::format("documents {}", name_of(s.documents));
  if (s.documents == data::DocumentSplit::marker) text += fmt::format(" '{}'", s.marker);
  if (s.conversations) return text + ", conversations";
  if (s.preferences) return text + ", preferences";
  return text + fmt::format(", field '{}', prompt field '{}'", s.field, s.prompt_field);
}

/// Adds "what: then; the recipe says now" where they differ.
template <class T>
void compare(std::vector<std::string>& lines, const char* what, const T& then, const T& now) {
  if (then != now) lines.push_back(fmt::format("{}: {}; the recipe says {}", what, then, now));
}

void compare_text(FileSystem& fs, const Json& sources, const Recipe& recipe, data::CheckedFiles& checked,
                  std::vector<std::string>& lines) {
  const auto named = [&](const std::string& name) {
    return std::find_if(recipe.data.sources.begin(), recipe.data.sources.end(),
                        [&](const SourceConfig& s) { return s.name == name; });
  };
  size_t found = 0;
  for (const Json& then : sources) {
    const auto source = named(then.at("name"));
    if (source == recipe.data.sources.end()) {
      lines.push_back(fmt::format("text: of source '{}' too, which the recipe does not have",
                                  then.at("name").get<std::string>()));
      continue;
    }
    ++found;
    compare(lines, fmt::format("source '{}'", source->name).c_str(), then.at("reading").get<std::string>(),
            reading_of(*source));
    std::vector<data::InputInfo> inputs;
    for (const Json& file : then.at("files"))
      inputs.push_back({file.at("path"), file.at("bytes"), file.at("hash")});
    for (const std::string& line : data::changed_text(fs, inputs, {source->path}, checked))
      lines.push_back("text: " + line);
  }
  if (found == recipe.data.sources.size()) return;
  for (const SourceConfig& s : recipe.data.sources)
    if (std::none_of(sources.begin(), sources.end(),
                     [&](const Json& then) { return then.at("name") == s.name; }))
      lines.push_back(fmt::format("text: without source '{}'", s.name));
}

void compare_origin(FileSystem& fs, const std::string& folder, const Json& then, const Recipe& recipe,
                    double checked_since, std::vector<std::string>& lines) {
  const TokenizerConfig& now = recipe.tokenizer;
  compare(lines, "tokenizer.kind", then.at("kind").get<std::string>(), std::string(name_of(now.kind)));
  const Json tokens = then.value("special_tokens", Json::array());
  compare(lines, "tokenizer.special_tokens", tokens.dump(), Json(now.special_tokens).dump());
  if (now.kind == TokenizerKind::bpe && lines.empty()) {
    compare(lines, "tokenizer.vocab", then.at("vocab").get<int64_t>(), now.vocab);
    compare(lines, "tokenizer.pattern", then.at("pattern").get<std::string>(), now.pattern);
  }
  data::CheckedFiles checked(fs, folder, checked_since);
  compare_text(fs, then.at("sources"), recipe, checked, lines);
  checked.save();
}

/// Without a record: what the tokenizer itself shows.
void compare_spec(const std::string& folder, const Recipe& recipe, const Tokenizer& tokenizer,
                  std::vector<std::string>& lines) {
  const TokenizerSpec& spec = tokenizer.spec();
  const TokenizerConfig& now = recipe.tokenizer;
  const TokenizerKind kind =
      spec.model == TokenizerSpec::Model::bpe ? TokenizerKind::bpe : TokenizerKind::characters;
  compare(lines, "tokenizer.kind", std::string(name_of(kind)), std::string(name_of(now.kind)));
  for (const std::string& token : now.special_tokens)
    if (!tokenizer.special_id(token))
      lines.push_back(fmt::format("tokenizer.special_tokens: without {}", token));
  if (kind != TokenizerKind::bpe || !lines.empty()) return;
  TokenizerSpec wanted;
  set_pattern(wanted, now.pattern);
  if (wanted.splits != spec.splits || wanted.gpt2_split != spec.gpt2_split || wanted.nfc != spec.nfc)
    lines.push_back(fmt::format("tokenizer.pattern: another one; the recipe says {}", now.pattern));
  if (tokenizer.vocab_size() > now.vocab)
    compare(lines, "tokenizer.vocab", int64_t{tokenizer.vocab_size()}, now.vocab);
  else if (tokenizer.vocab_size() < now.vocab && lines.empty())
    log::warn(
        "the tokenizer in '{}' has {} tokens, tokenizer.vocab is {}: fine if its text had no more; else "
        "prepare the data anew with --data.folder=NEW",
        folder, tokenizer.vocab_size(), now.vocab);
}

}  // namespace

data::SourceOptions source_options(const SourceConfig& s) {
  return {s.documents, s.marker, s.field, s.prompt_field, s.conversations, s.preferences};
}

void record_tokenizer_origin(FileSystem& fs, const std::string& folder, const Recipe& recipe) {
  fs.create_folders(folder);
  data::CheckedFiles checked(fs, folder);
  Json sources = Json::array();
  for (const SourceConfig& s : recipe.data.sources) {
    Json files = Json::array();
    for (const data::InputInfo& f : data::describe_inputs(data::find_source_files(fs, {s.path}), checked))
      files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"hash", f.hash}});
    sources.push_back({{"name", s.name}, {"reading", reading_of(s)}, {"files", files}});
  }
  const Json origin{{"kind", name_of(recipe.tokenizer.kind)},
                    {"vocab", recipe.tokenizer.vocab},
                    {"pattern", recipe.tokenizer.pattern},
                    {"special_tokens", recipe.tokenizer.special_tokens},
                    {"sources", sources}};
  write_file_atomically(fs, folder + "/" + kOriginFile,
                        origin.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  checked.save();
}

void require_tokenizer_origin(FileSystem& fs, const std::string& folder, const Recipe& recipe,
                              const Tokenizer& tokenizer, double checked_since) {
  std::vector<std::string> lines;
  const std::string path = folder + "/" + kOriginFile;
  if (fs.exists(path)) {
    try {
      compare_origin(fs, folder, Json::parse(fs.read(path)), recipe, checked_since, lines);
    } catch (const Json::exception& e) {
      throw Error(fmt::format("'{}' is damaged: {}", path, e.what()),
                  "prepare the data anew, with --data.folder=NEW, or set --tokenizer.path=" + folder);
    }
  } else {
    compare_spec(folder, recipe, tokenizer, lines);
  }
  if (lines.empty()) return;
  std::string message =
      fmt::format("the tokenizer in '{}' was trained in another way than the recipe says:", folder);
  for (const std::string& line : lines) message += "\n  " + line;
  throw Error(message, fmt::format("undo the change; or prepare the data anew in another place, with "
                                   "--data.folder=NEW; or keep this tokenizer, with --tokenizer.path={}",
                                   folder));
}

}  // namespace ingot
