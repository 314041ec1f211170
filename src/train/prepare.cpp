// See prepare.h.
#include "train/prepare.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/folder_lock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/progress.h"
#include "chat/preference_row.h"
#include "data/source.h"
#include "data/tokenize_job.h"
#include "report/run_record.h"
#include "tokenizer/bpe_trainer.h"
#include "train/encode_rows.h"
#include "train/tokenizer_origin.h"

namespace ingot {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

std::vector<chat::Conversation> sides_of(const chat::PreferenceRow& row) {
  std::vector<chat::Conversation> sides;
  for (const auto* side : {&row.chosen, &row.rejected})
    if (*side) sides.push_back(**side);
  return sides;
}

/// Calls body for batches of documents of all sources.
template <class Body>
void for_documents(FileSystem& fs, const Recipe& recipe, Body&& body) {
  uint64_t total = 0;
  for (const SourceConfig& s : recipe.data.sources)
    for (const auto& file : data::find_source_files(fs, {s.path})) total += file.bytes;
  Progress progress("reading text for the tokenizer", static_cast<int64_t>(total), Progress::Unit::bytes);
  uint64_t before = 0;
  for (const SourceConfig& s : recipe.data.sources) {
    data::DocumentReader reader(fs, data::find_source_files(fs, {s.path}), source_options(s));
    std::vector<std::string> held;
    size_t bytes = 0;
    const auto flush = [&] {
      const std::vector<std::string_view> views(held.begin(), held.end());
      body(views);
      held.clear();
      bytes = 0;
    };
    std::string_view document;
    while (reader.next(document)) {
      if (s.conversations)
        for (const std::string& text : chat::texts_of(chat::read_conversation(document, reader.where())))
          held.push_back(text);
      else if (s.preferences)
        for (const auto& side : sides_of(chat::read_preference(document, reader.where())))
          for (const std::string& text : chat::texts_of(side)) held.push_back(text);
      else
        held.emplace_back(document);
      bytes += document.size();
      if (bytes > (size_t{4} << 20)) flush();
      progress.update(static_cast<int64_t>(before + reader.bytes_done()));
    }
    flush();
    before += reader.bytes_done();
  }
  progress.finish();
}

/// Those of the recipe, after end-of-text.
std::vector<std::string> special_tokens(const Recipe& recipe, bool end_of_text) {
  std::vector<std::string> all = recipe.tokenizer.special_tokens;
  if (end_of_text && std::find(all.begin(), all.end(), kEndOfText) == all.end())
    all.insert(all.begin(), kEndOfText);
  return all;
}

Tokenizer train_bpe(FileSystem& fs, const Recipe& recipe) {
  BpeTrainOptions o;
  o.vocab_size = static_cast<int32_t>(recipe.tokenizer.vocab);
  o.pattern = recipe.tokenizer.pattern;
  o.special_tokens = special_tokens(recipe, true);
  Progress progress("learning the vocabulary", o.vocab_size);
  o.progress = [&](int32_t tokens, int32_t) { progress.update(tokens); };
  BpeTrainer trainer(o);
  for_documents(fs, recipe, [&](std::span<const std::string_view> documents) { trainer.add(documents); });
  Tokenizer t = trainer.train();
  progress.finish();
  return t;
}

Tokenizer train_characters(FileSystem& fs, const Recipe& recipe) {
  std::string text;
  for_documents(fs, recipe, [&](std::span<const std::string_view> documents) {
    for (const std::string_view d : documents) text += d;
  });
  return Tokenizer::from_characters(text, special_tokens(recipe, recipe.data.end_of_text));
}

bool holds_datasets(FileSystem& fs, const Recipe& recipe) {
  return std::all_of(recipe.data.sources.begin(), recipe.data.sources.end(), [&](const SourceConfig& s) {
    return fs.exists(dataset_folder(recipe, s) + "/" + data::kManifestName);
  });
}

Tokenizer obtain_tokenizer(FileSystem& fs, const Recipe& recipe, double checked_since) {
  const std::string folder = tokenizer_folder(fs, recipe);
  if (!recipe.tokenizer.path.empty()) return Tokenizer::load(folder);
  if (Tokenizer::holds_tokenizer(fs, folder)) {
    Tokenizer t = Tokenizer::load(folder);
    if (folder.starts_with(recipe.data.folder + "/"))
      require_tokenizer_origin(fs, folder, recipe, t, checked_since);
    return t;
  }
  record_tokenizer_origin(fs, folder, recipe);
  Tokenizer t =
      recipe.tokenizer.kind == TokenizerKind::bpe ? train_bpe(fs, recipe) : train_characters(fs, recipe);
  t.save(folder, fs);
  return t;
}

/// Says what a person may not expect: text that spells special tokens, and a template that training leaves
/// out.
void warn_about_special_tokens(const Recipe& recipe, const Tokenizer& t, const SpelledSpecials& spelled) {
  if (const std::string w =
          spelled.warning(t, "the text", "data.special_tokens = \"parse\" (finetune: --special)");
      !w.empty())
    log::warn("{}", w);
  if (t.begin_token() && !document_tokens(recipe.data, t).begin)
    log::warn(
        "the tokenizer's template begins every text with {}, these documents begin without it; "
        "data.begin_of_text = true puts it there",
        t.token_bytes(*t.begin_token()));
}

}  // namespace

DocumentTokens document_tokens(const DataConfig& data, const Tokenizer& tokenizer) {
  const TokenRoles& roles = tokenizer.roles();
  DocumentTokens tokens;
  if (data.end_of_text) tokens.end = roles.eos;
  if (data.end_of_text && !tokens.end)
    throw Error("the tokenizer names no end-of-text token",
                "set data.end_of_text = false, or use a tokenizer with one");
  if (data.end_of_text_first) tokens.begin = tokens.end, tokens.end.reset();
  if (!data.begin_of_text) return tokens;
  tokens.begin = tokenizer.begin_token() ? tokenizer.begin_token() : roles.bos;
  if (!tokens.begin)
    throw Error("the tokenizer names no begin-of-text token",
                "set data.begin_of_text = false, or use a tokenizer with one");
  return tokens;
}

EncodeOptions encode_options(const DataConfig& data) {
  return {.parse_special = data.special_tokens == SpecialText::parse};
}

std::string tokenizer_folder(FileSystem& fs, const Recipe& recipe) {
  const std::string& path = recipe.tokenizer.path;
  const std::string place = path.empty() ? recipe.data.folder + "/tokenizer" : path;
  const std::string own = recipe.run.folder + "/" + run_files::kTokenizer;
  // A tokenizer that would be trained anew is the run's only as long as its tokens are.
  const bool gone = !Tokenizer::holds_tokenizer(fs, place) && (!path.empty() || holds_datasets(fs, recipe));
  return gone && Tokenizer::holds_tokenizer(fs, own) ? own : place;
}

std::optional<chat::ChatTemplate> find_chat_template(FileSystem& fs, const Recipe& recipe) {
  const std::string& given = recipe.data.chat_template;
  if (!given.empty()) return chat::open_template(fs, given);
  return chat::ChatTemplate::from_folder(fs, tokenizer_folder(fs, recipe));
}

chat::ChatTemplate require_chat_template(FileSystem& fs, const Recipe& recipe) {
  const std::string& given = recipe.data.chat_template;
  return chat::open_template(fs, given.empty() ? tokenizer_folder(fs, recipe) : given);
}

std::string dataset_folder(const Recipe& recipe, const SourceConfig& source) {
  return recipe.data.folder + "/" + source.name;
}

/// A dataset appears whole, and after its tokenizer.
bool is_prepared(FileSystem& fs, const Recipe& recipe) {
  const bool tokenizer =
      !recipe.tokenizer.path.empty() || Tokenizer::holds_tokenizer(fs, tokenizer_folder(fs, recipe));
  return tokenizer && holds_datasets(fs, recipe);
}

PreparedData prepare_data(FileSystem& fs, const Recipe& recipe, DataCheck check) {
  const double since = check == DataCheck::everything ? wall_seconds() : 0;
  const bool complete = is_prepared(fs, recipe);
  if (!complete) fs.create_folders(recipe.data.folder);
  std::optional<FolderLock> lock;  // the first rank or run reads and checks, others find what it remembered
  try {
    lock.emplace(recipe.data.folder, "data", FolderLock::Busy::wait);
  } catch (const Error&) {  // from a disk that is read-only
    if (!complete) throw;
  }
  PreparedData prepared{obtain_tokenizer(fs, recipe, since), {}, 0};
  const Tokenizer& tokenizer = prepared.tokenizer;
  prepared.vocab = tokenizer.vocab_size();
  const DocumentTokens ends = document_tokens(recipe.data, tokenizer);
  SpelledSpecials spelled;
  EncodeOptions encoding = encode_options(recipe.data);
  encoding.spelled = &spelled;
  data::TokenizerView view;
  view.encode = [&](std::span<const std::string_view> texts, std::vector<std::vector<int32_t>>& tokens) {
    tokens = tokenizer.encode_batch(texts, encoding);
  };
  view.vocabulary = tokenizer.vocab_size();
  view.eos_first = recipe.data.end_of_text_first;
  view.eos = (view.eos_first ? ends.begin : ends.end).value_or(-1);
  view.bos = view.eos_first ? -1 : ends.begin.value_or(-1);
  view.parses_special = encoding.parse_special;
  view.hash = tokenizer.content_hash();
  const RowEncoder rows(fs, recipe, tokenizer, tokenizer_folder(fs, recipe));
  for (const SourceConfig& s : recipe.data.sources) {
    rows.describe(s, view);
    data::TokenizeOptions o;
    o.name = s.name;
    o.inputs = {s.path};
    o.source = source_options(s);
    o.validation_fraction = s.validation_fraction;
    o.validation = s.tail_validation ? data::ValidationSplit::tail : data::ValidationSplit::document_hash;
    o.checked_since = since;
    std::optional<Progress> progress;
    data::tokenize(fs, dataset_folder(recipe, s), o, view, [&](const data::TokenizeProgress& p) {
      if (!progress) progress.emplace("tokenizing " + s.name, 0, Progress::Unit::bytes);
      progress->update(static_cast<int64_t>(p.bytes_done));
    });
    if (progress) progress->finish();
    data::CheckedFiles checked(fs, dataset_folder(recipe, s), since);
    prepared.sources.push_back(
        data::Dataset::open(fs, dataset_folder(recipe, s),
                            {.verify_hashes = true, .tokenizer_hash = view.hash, .checked = &checked}));
    checked.save();
  }
  if (!complete) warn_about_special_tokens(recipe, tokenizer, spelled);
  return prepared;
}

PreparedData open_data(FileSystem& fs, const Recipe& recipe) {
  PreparedData prepared{Tokenizer::load(tokenizer_folder(fs, recipe)), {}, 0};
  prepared.vocab = prepared.tokenizer.vocab_size();
  for (const SourceConfig& s : recipe.data.sources)
    prepared.sources.push_back(data::Dataset::open(fs, dataset_folder(recipe, s),
                                                   {.tokenizer_hash = prepared.tokenizer.content_hash()}));
  return prepared;
}

Recipe with_vocabulary(Recipe recipe, const PreparedData& data) {
  if (recipe.model.vocab == 0) recipe.model.vocab = data.vocab;
  if (recipe.model.vocab < data.vocab)
    throw Error(
        fmt::format("model.vocab is {}, but the tokenizer has {} tokens", recipe.model.vocab, data.vocab),
        "set model.vocab = 0 to take the tokenizer's size");
  return recipe;
}

}  // namespace ingot
