// `ingot tokenizer`: train, encode, decode, info, report, add.
#include "tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/text_io.h"
#include "base/error.h"
#include "base/invocation.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/terminal_text.h"
#include "data/source.h"
#include "exchange/add_tokens.h"
#include "exchange/stored_model.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/tokenizer_report.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

/// Of a tokenizer's folder or file, or of a model.
Tokenizer tokenizer_of(const std::string& path) {
  FileSystem& fs = real_file_system();
  const bool own =
      path.ends_with(".json") || path.ends_with(".model") || Tokenizer::holds_tokenizer(fs, path);
  return own ? Tokenizer::load(path) : load_tokenizer(open_stored_model(fs, path, Verify::structure));
}

using Json = nlohmann::ordered_json;

struct TokenizerArguments {
  std::string tokenizer, text, file, out, field = "text", pattern = "gpt2", kind = "bpe";
  std::vector<std::string> files, ids, special_tokens = {"<|endoftext|>"};
  int64_t vocab = 8192;
  bool special = false, begin = false, only_ids = false;
  JsonOption json;
};

/// The text that TEXT or --file gives; "-" is standard input in both. Files are taken byte for byte.
std::string given_text(const TokenizerArguments& o, const char* what) {
  if (!o.file.empty() && !o.text.empty())
    throw Error(fmt::format("{} and --file are both given", what), "give one of the two");
  if (!o.file.empty()) return read_text_input(o.file);
  return o.text == "-" ? read_text_input("-") : o.text;
}

Json token_json(const Tokenizer& t, int32_t id) {
  return {{"id", id}, {"text", t.decode({&id, 1})}};
}

int encode(const TokenizerArguments& o) {
  const Tokenizer t = tokenizer_of(o.tokenizer);
  const std::string text = given_text(o, "TEXT");
  std::vector<int32_t> ids;
  if (o.begin && t.begin_token()) ids.push_back(*t.begin_token());
  SpelledSpecials spelled;
  t.encode_to(text, {.parse_special = o.special, .spelled = &spelled}, ids);
  if (const std::string w = spelled.warning(t, "the text", "--special"); !w.empty()) log::warn("{}", w);
  Json tokens = Json::array();
  for (const int32_t id : ids) tokens.push_back(token_json(t, id));
  std::string lines;
  if (o.only_ids)
    lines = fmt::format("{}\n", fmt::join(ids, " "));
  else
    for (const int32_t id : ids) lines += fmt::format("{}\t{}\n", id, t.decode({&id, 1}));
  o.json.print(text_for(STDOUT_FILENO, lines), json_text({{"ids", ids}, {"tokens", std::move(tokens)}}));
  return 0;
}

/// Ids between spaces, commas and brackets: "1 2 3", "[1, 2, 3]", or {"ids": [1, 2, 3]} as `encode --json`
/// prints.
std::vector<int32_t> parse_ids(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_object() && json.contains("ids") && json["ids"].is_array())
    return parse_ids(json["ids"].dump());
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<int32_t> ids;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
    if (text.empty()) return ids;
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc{} || end != word.data() + word.size())
      throw Error(
          fmt::format("'{}' is no token id", word.substr(0, 40)),
          "give whole numbers between spaces or commas, as `ingot tokenizer encode --ids` prints them");
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

int decode(TokenizerArguments& o) {
  const Tokenizer t = tokenizer_of(o.tokenizer);
  for (const std::string& id : o.ids) o.text += (o.text.empty() ? "" : " ") + id;
  const std::vector<int32_t> ids = parse_ids(given_text(o, "IDS"));
  Json tokens = Json::array();
  for (const int32_t id : ids) tokens.push_back(token_json(t, id));
  const std::string text = t.decode(ids);
  o.json.print(::isatty(STDOUT_FILENO) == 1 ? terminal_text(text) + "\n" : t.decode_bytes(ids),
               json_text({{"text", text}, {"tokens", std::move(tokens)}}));
  return 0;
}

std::string kind_of(const TokenizerSpec& spec) {
  switch (spec.model) {
    case TokenizerSpec::Model::bpe:
      return "bpe";
    case TokenizerSpec::Model::character_bpe:
      return "bpe with byte fallback";
    case TokenizerSpec::Model::unigram:
      return "unigram with byte fallback";
    case TokenizerSpec::Model::chars:
      break;
  }
  return "characters";
}

int info(const TokenizerArguments& o) {
  const Tokenizer t = tokenizer_of(o.tokenizer);
  const TokenizerSpec& spec = t.spec();
  Json special = Json::array();
  for (const AddedToken& a : spec.added_tokens)
    if (a.special) special.push_back(token_json(t, a.id));
  const auto token = [&](std::optional<int32_t> id) { return id ? token_json(t, *id) : Json(nullptr); };
  const std::string kind = kind_of(spec);
  const auto text = [&](std::optional<int32_t> id) {
    return id ? fmt::format("{} {}", *id, terminal_text(t.decode({&*id, 1}))) : std::string("none");
  };
  const Json json = {{"kind", kind},
                     {"tokens", t.vocab_size()},
                     {"bos", token(t.roles().bos)},
                     {"eos", token(t.roles().eos)},
                     {"pad", token(t.roles().pad)},
                     {"begin_token", token(t.begin_token())},
                     {"special_tokens", special},
                     {"hash", t.content_hash()}};
  o.json.print(fmt::format("kind {}\ntokens {}\nbos {}\neos {}\npad {}\nbegins texts with {}\nspecial "
                           "tokens {}\nhash {}\n",
                           kind, t.vocab_size(), text(t.roles().bos), text(t.roles().eos),
                           text(t.roles().pad), text(t.begin_token()), special.size(), t.content_hash()),
               json_text(json, 2));
  return 0;
}

std::string shown_token(const Tokenizer& t, int32_t id) {
  return fmt::format("{} {}", id,
                     Json(t.decode({&id, 1})).dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// The first few of a list of ids, on one line.
std::string first_tokens(const Tokenizer& t, const std::vector<int32_t>& ids, size_t most) {
  std::string line;
  for (size_t i = 0; i < std::min(ids.size(), most); ++i)
    line += (i == 0 ? "" : ", ") + shown_token(t, ids[i]);
  return line + (ids.size() > most ? ", ..." : "");
}

int report(const TokenizerArguments& o) {
  const Tokenizer t = tokenizer_of(o.tokenizer);
  std::vector<NamedText> given;
  for (const std::string& path : o.files) given.push_back({path, read_text_input(path)});
  const TokenizerReport r = report_on(t, given);
  std::string text = fmt::format("{} tokens, {}\n", t.vocab_size(), kind_of(t.spec()));
  Json texts = Json::array();
  for (const TokenizerReport::Text& m : r.texts) {
    const double rate = m.tokens > 0 ? static_cast<double>(m.bytes) / static_cast<double>(m.tokens) : 0;
    text += fmt::format("{:<24} {:5.2f} bytes a token, {} bytes{}\n", m.name, rate, m.bytes,
                        m.comes_back ? "" : ", does not come back");
    texts.push_back({{"name", m.name},
                     {"bytes", m.bytes},
                     {"tokens", m.tokens},
                     {"bytes_per_token", rate},
                     {"comes_back", m.comes_back}});
  }
  if (!given.empty())
    text += fmt::format("unused by these texts    {}: {}\n", r.unused.size(), first_tokens(t, r.unused, 8));
  text += fmt::format("ids without a token      {}\n", r.holes);
  text += fmt::format("never made from text     {}{}{}\n", r.unreachable.size(),
                      r.unreachable.empty() ? "" : ": ", first_tokens(t, r.unreachable, 8));
  text += fmt::format("special tokens           {}{}{}\n", r.special.size(), r.special.empty() ? "" : ": ",
                      first_tokens(t, r.special, 8));
  text += "longest tokens\n";
  for (const int32_t id : r.longest)
    text += fmt::format("  {:3} bytes  {}\n", t.token_bytes(id).size(), shown_token(t, id));
  text += fmt::format("random texts             {} of {} come back\n", r.random_back, r.random_texts);
  o.json.print(text_for(STDOUT_FILENO, text), json_text({{"kind", kind_of(t.spec())},
                                                         {"tokens", t.vocab_size()},
                                                         {"texts", std::move(texts)},
                                                         {"unused", r.unused},
                                                         {"holes", r.holes},
                                                         {"unreachable", r.unreachable},
                                                         {"special", r.special},
                                                         {"longest", r.longest},
                                                         {"random_texts", r.random_texts},
                                                         {"random_back", r.random_back}}));
  return 0;
}

int add(const TokenizerArguments& o) {
  const AddedTokens r = add_special_tokens(real_file_system(), o.tokenizer, o.special_tokens, o.out);
  std::string text;
  for (size_t i = 0; i < r.ids.size(); ++i) text += fmt::format("{} {}\n", r.ids[i], o.special_tokens[i]);
  text +=
      r.vocab_before == r.vocab_after
          ? fmt::format("{} rows of the embedding and the head, of which padding held the new ones\n",
                        r.vocab_after)
          : fmt::format("{} rows of the embedding and the head, before {}\n", r.vocab_after, r.vocab_before);
  text += as_typed(fmt::format("{}\nnext:\n  ingot finetune {} DATA.jsonl --special\n", r.checkpoint, o.out));
  o.json.print(text, json_text({{"checkpoint", r.checkpoint},
                                {"ids", r.ids},
                                {"vocab_before", r.vocab_before},
                                {"vocab_after", r.vocab_after}}));
  return 0;
}

/// Calls body with batches of the documents of all files; standard input is one document.
template <class Body>
void for_documents(const TokenizerArguments& o, Body&& body) {
  std::vector<std::string> paths, held;
  for (const std::string& f : o.files)
    if (f == "-")
      held.push_back(read_text_input(f));
    else
      paths.push_back(f);
  const auto flush = [&] {
    const std::vector<std::string_view> views(held.begin(), held.end());
    if (!views.empty()) body(views);
    held.clear();
  };
  flush();
  if (paths.empty()) return;
  FileSystem& fs = real_file_system();
  data::DocumentReader reader(fs, data::find_source_files(fs, paths), {.field = o.field});
  size_t bytes = 0;
  for (std::string_view document; reader.next(document);) {
    held.emplace_back(document);
    if ((bytes += document.size()) > (size_t{4} << 20)) flush(), bytes = 0;
  }
  flush();
}

Tokenizer train_bpe(const TokenizerArguments& o) {
  BpeTrainOptions options;
  options.vocab_size = static_cast<int32_t>(o.vocab);
  options.pattern = o.pattern;
  options.special_tokens = o.special_tokens;
  Progress progress("learning the vocabulary", o.vocab);
  options.progress = [&](int32_t tokens, int32_t) { progress.update(tokens); };
  BpeTrainer trainer(options);
  for_documents(o, [&](std::span<const std::string_view> documents) { trainer.add(documents); });
  Tokenizer t = trainer.train();
  progress.finish();
  return t;
}

int train(TokenizerArguments& o) {
  std::erase(o.special_tokens, "");
  if (real_file_system().exists(o.out + "/tokenizer.json") ||
      (o.out.ends_with(".json") && real_file_system().exists(o.out)))
    throw Error(fmt::format("'{}' already holds a tokenizer", o.out),
                "choose another --out, or remove that one");
  Tokenizer t = [&] {
    if (o.kind == "bpe") return train_bpe(o);
    if (o.kind != "characters")
      throw Error(fmt::format("--kind is '{}', expected bpe or characters", o.kind));
    std::string text;
    for_documents(o, [&](std::span<const std::string_view> documents) {
      for (const std::string_view d : documents) text += d;
    });
    return Tokenizer::from_characters(text, o.special_tokens);
  }();
  t.save(o.out);
  o.json.print(fmt::format("{}: {} tokens, hash {}\n", o.out, t.vocab_size(), t.content_hash()),
               json_text({{"tokenizer", o.out}, {"tokens", t.vocab_size()}, {"hash", t.content_hash()}}));
  return 0;
}

CLI::App* add_subcommand(CLI::App* parent, const char* name, const char* help,
                         const std::shared_ptr<TokenizerArguments>& o, int& code,
                         int (*body)(TokenizerArguments&)) {
  CLI::App* c = parent->add_subcommand(name, help);
  add_json_option(*c, o->json);
  c->callback([o, &code, body] { code = body(*o); });
  return c;
}

}  // namespace

void add_tokenizer_command(CLI::App& app, int& code) {
  const auto o = std::make_shared<TokenizerArguments>();
  CLI::App* parent =
      app.add_subcommand("tokenizer", "train a tokenizer, encode and decode with one, inspect it");
  parent->require_subcommand(1);
  const char* kWhich = "folder, tokenizer.json or SentencePiece model";
  const char* kFile = "read it from this file, byte for byte (-: standard input)";

  CLI::App* t = add_subcommand(parent, "train", "learn a vocabulary from text", o, code, train);
  t->add_option("files", o->files, "text and .jsonl files, folders, patterns; -: standard input")->required();
  t->add_option("--out", o->out, "folder (or file ending in .json) to write")->required();
  t->add_option("--vocab", o->vocab, "bpe: tokens to learn, special tokens and bytes included")
      ->capture_default_str()
      ->check(in(between(256, 0x1p24)));
  t->add_option("--kind", o->kind, "bpe (byte-level), or characters")->capture_default_str();
  t->add_option("--pattern", o->pattern,
                "bpe: gpt2, llama3, qwen2, o200k, nanochat, deepseek-v3, digits, or a regular expression")
      ->capture_default_str();
  t->add_option("--special-token", o->special_tokens, "text of a special token; may be repeated; \"\": none")
      ->capture_default_str()
      ->allow_extra_args(false);
  t->add_option("--field", o->field, "field of a .jsonl row that holds the text")->capture_default_str();

  CLI::App* e = add_subcommand(parent, "encode", "encode text: one id per line with its text", o, code,
                               [](TokenizerArguments& a) { return encode(a); });
  e->add_option("tokenizer", o->tokenizer, kWhich)->required();
  e->add_option("text", o->text, "text; -: standard input");
  e->add_option("--file", o->file, kFile);
  e->add_flag("--special", o->special,
              "special tokens that the text spells become tokens; default: plain text");
  e->add_flag("--begin-token", o->begin, "put the token before the text that the template puts there");
  e->add_flag("--ids", o->only_ids, "print the ids only, on one line");

  CLI::App* d = add_subcommand(parent, "decode", "turn ids into text", o, code, decode);
  d->add_option("tokenizer", o->tokenizer, kWhich)->required();
  d->add_option("ids", o->ids, "token ids; -: standard input");
  d->add_option("--file", o->file, "read them from this file (-: standard input)");

  CLI::App* i = add_subcommand(parent, "info", "size, special tokens, hash", o, code,
                               [](TokenizerArguments& a) { return info(a); });
  i->add_option("tokenizer", o->tokenizer, kWhich)->required();

  CLI::App* r = add_subcommand(parent, "report", "bytes per token by kind of text, unused ids, round trip", o,
                               code, [](TokenizerArguments& a) { return report(a); });
  r->add_option("tokenizer", o->tokenizer, kWhich)->required();
  CLI::App* m = add_subcommand(parent, "add", "give a model new special tokens", o, code,
                               [](TokenizerArguments& a) { return add(a); });
  m->add_option("model", o->tokenizer, "run folder, import or checkpoint")->required();
  m->add_option("-o,--out", o->out, "new folder: a model like an import")->required();
  m->add_option("--special-token", o->special_tokens, "text of a new token; may be repeated")
      ->required()
      ->allow_extra_args(false);

  r->add_option("files", o->files, "texts to measure; default: short samples of ten kinds");
}

}  // namespace ingot
