// `ingot data`: prepare a recipe's data; look at conversations as they would be trained (lint, preview).
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "apps/model_argument.h"
#include "apps/text_io.h"
#include "base/error.h"
#include "base/terminal_text.h"
#include "chat/lint.h"
#include "chat/preview.h"
#include "data/source.h"
#include "exchange/stored_model.h"
#include "report/table.h"
#include "train/prepare.h"
#include "train/recipe.h"
#include "train/run_folder.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

/// Writes each source's validation text, decoded from its tokens, to FOLDER/SOURCE.txt.
void write_validation_text(const DataConfig& data, const PreparedData& d, const std::string& folder) {
  FileSystem& fs = real_file_system();
  fs.create_folders(folder);
  for (const data::Dataset& s : d.sources) {
    if (!s.has_split("validation")) continue;
    const auto split = s.validation();
    std::vector<int32_t> ids(static_cast<size_t>(split->tokens()));
    split->read(0, ids);
    std::erase(ids, static_cast<int32_t>(split->eos()));
    if (const auto begin = document_tokens(data, d.tokenizer).begin) std::erase(ids, *begin);
    write_file_atomically(fs, folder + "/" + s.name() + ".txt", d.tokenizer.decode(ids));
  }
}

struct DataArguments {
  std::string recipe, texts;
  JsonOption json;
};

int prepare(const DataArguments& o, const std::vector<std::string>& overrides) {
  if (o.recipe.empty()) throw UsageError("`ingot data` needs the argument 'recipe'", "`ingot data --help`");
  const Recipe r = load_run(real_file_system(), o.recipe, overrides);
  const PreparedData d = prepare_data(real_file_system(), r);
  if (!o.texts.empty()) write_validation_text(r.data, d, o.texts);
  std::string text = fmt::format("tokenizer: {} tokens\n", d.vocab);
  Json j{{"vocabulary", d.vocab}};
  for (const auto& s : d.sources) {
    text +=
        fmt::format("{}: {} tokens in {} documents\n", s.name(), s.train()->tokens(), s.train()->documents());
    j["sources"][s.name()] = {{"tokens", s.train()->tokens()}, {"documents", s.train()->documents()}};
  }
  o.json.print(text, j.dump(2));
  return 0;
}

/// Conversations, and how they would be rendered.
struct RowsArguments {
  std::vector<std::string> files;
  std::string model, chat_template, tokenizer, against;
  int64_t from = 1, rows = 3;
  JsonOption json;
};

struct OpenedTemplate {
  chat::ChatTemplate chat_template;
  std::optional<Tokenizer> tokenizer;
};

chat::ChatTemplate template_of_model(const StoredModel& stored, const std::string& name) {
  for (const std::string& folder : {stored.small_files, stored.tokenizer_folder})
    if (!folder.empty())
      if (auto found = chat::ChatTemplate::from_folder(real_file_system(), folder)) return *found;
  throw Error(fmt::format("the model '{}' has no chat template", name),
              "name one with --chat-template: a folder, a .jinja file, or chatml-think, which is shipped");
}

/// What its tokenizer_config.json names, if there is one.
std::optional<chat::NamedTokens> tokens_of_model(const StoredModel& stored) {
  FileSystem& fs = real_file_system();
  const std::string config = stored.tokenizer_folder + "/tokenizer_config.json";
  if (stored.tokenizer_folder.empty() || !fs.exists(config)) return {};
  return chat::named_tokens(fs.read(config), config);
}

/// The template and tokenizer that finetune would take for --model; without it, those that are named.
OpenedTemplate open_template_and_tokenizer(const RowsArguments& o) {
  FileSystem& fs = real_file_system();
  if (o.model.empty() && o.chat_template.empty())
    throw UsageError("no chat template is named",
                     "--model takes a model's own; --chat-template takes a folder, a .jinja file, or "
                     "chatml-think, which is shipped");
  std::optional<StoredModel> stored;
  if (!o.model.empty()) stored = open_stored_model(fs, o.model, Verify::structure);
  OpenedTemplate opened{o.chat_template.empty() ? template_of_model(*stored, o.model)
                                                : chat::open_template(fs, o.chat_template),
                        std::nullopt};
  if (stored && !o.chat_template.empty())  // training puts it beside the model's tokenizer
    if (auto tokens = tokens_of_model(*stored))
      opened.chat_template = chat::ChatTemplate::from_text(opened.chat_template.source(), std::move(*tokens),
                                                           opened.chat_template.name());
  if (stored)
    opened.tokenizer = load_tokenizer(*stored, o.tokenizer);
  else if (!o.tokenizer.empty())
    opened.tokenizer = Tokenizer::load(o.tokenizer);
  else if (Tokenizer::holds_tokenizer(fs, o.chat_template))
    opened.tokenizer = Tokenizer::load(o.chat_template);
  return opened;
}

/// Calls visit(row, where) for each row of the files; false from it ends the walk.
template <class Visit>
void for_rows(const std::vector<std::string>& files, const Visit& visit) {
  FileSystem& fs = real_file_system();
  data::DocumentReader reader(fs, data::find_source_files(fs, files), {.conversations = true});
  for (std::string_view row; reader.next(row);)
    if (!visit(row, reader.where())) return;
}

int lint(const RowsArguments& o) {
  const OpenedTemplate opened = open_template_and_tokenizer(o);
  chat::Lint lint(opened.chat_template, opened.tokenizer);
  for_rows(o.files, [&](std::string_view row, const std::string& where) {
    lint.add(row, where);
    return true;
  });
  const std::vector<chat::LintFault>& faults = lint.finish();
  Json j{{"rows", lint.rows()},
         {"ids_compared", opened.tokenizer.has_value()},
         {"other_borders", lint.other_borders()},
         {"faults", Json::array()}};
  std::map<chat::LintKind, std::vector<const chat::LintFault*>> by_kind;
  for (const chat::LintFault& f : faults) {
    by_kind[f.kind].push_back(&f);
    j["faults"].push_back({{"kind", name_of(f.kind)}, {"where", f.where}, {"text", f.text}});
  }
  std::string text;
  for (const auto& [kind, found] : by_kind) {
    text += fmt::format("{}: {}; {}\n", name_of(kind), count_of(static_cast<int64_t>(found.size()), "case"),
                        chat::advice(kind));
    constexpr size_t kShown = 3;
    for (size_t i = 0; i < std::min(found.size(), kShown); ++i) {
      const chat::LintFault& f = *found[i];
      const bool named = f.where.empty() || f.text.starts_with(f.where);
      text += fmt::format("  {}\n", named ? f.text : f.where + ": " + f.text);
    }
    if (found.size() > kShown) text += fmt::format("  ... {} more (--json)\n", found.size() - kShown);
  }
  text += fmt::format("{}, {}{}\n", count_of(lint.rows(), "row"),
                      faults.empty() ? "no fault" : count_of(static_cast<int64_t>(faults.size()), "fault"),
                      opened.tokenizer ? "" : "; ids are not compared, since no tokenizer is named");
  if (lint.other_borders() > 0)
    text += fmt::format("{} would have other ids with --trust-text, where a token joins prompt and reply\n",
                        count_of(lint.other_borders(), "row"));
  o.json.print(text, json_text(j, 2));
  return faults.empty() ? 0 : 1;
}

Json rendered_json(const chat::Rendered& r) {
  Json j{{"text", r.text}, {"loss_spans", Json::array()}, {"runs", Json::array()}};
  for (const chat::ByteSpan& s : r.loss_spans) j["loss_spans"].push_back({s.begin, s.end});
  for (const chat::Run& run : r.runs) {
    Json one{{"begin", run.begin}, {"end", run.end}, {"source", name_of(run.source)}};
    if (run.message >= 0) one["message"] = run.message;
    j["runs"].push_back(std::move(one));
  }
  return j;
}

int preview(const RowsArguments& o) {
  const OpenedTemplate opened = open_template_and_tokenizer(o);
  std::optional<chat::ChatTemplate> other;
  if (!o.against.empty()) other = chat::open_template(real_file_system(), o.against);
  const chat::Shown shown = ::isatty(STDOUT_FILENO) == 1 ? chat::Shown::colour : chat::Shown::marks;
  std::string text;
  Json j = Json::array();
  int64_t row_number = 0, equal = 0;
  for_rows(o.files, [&](std::string_view row, const std::string& where) {
    if (++row_number < o.from) return true;
    const chat::Conversation c = chat::read_conversation(row, where);
    const chat::Rendered r = chat::render_row(opened.chat_template, c, where);
    Json one{{"where", where}};
    one.update(rendered_json(r));
    text += "== " + text_for(STDOUT_FILENO, where);
    if (opened.tokenizer) {
      const chat::Encoded e = opened.chat_template.encode(r, *opened.tokenizer);
      const auto in_loss = std::count(e.in_loss.begin(), e.in_loss.end(), true);
      text += fmt::format(": {} tokens, {} in the loss", e.ids.size(), in_loss);
      one["ids"] = e.ids;
      one["in_loss"] = e.in_loss;
    }
    text += "\n";
    if (other) {
      const chat::Rendered second = chat::render_row(*other, c, where);
      const std::string d = chat::difference(r, second, shown);
      equal += d.empty();
      text += d.empty() ? "(equal)\n" : d;
      one["against"] = rendered_json(second);
      one["equal"] = d.empty();
    } else {
      const std::string p = chat::preview(r, shown);
      text += p + (r.text.ends_with('\n') ? "" : "\n");
    }
    j.push_back(std::move(one));
    return row_number + 1 < o.from + o.rows;
  });
  if (j.empty())
    throw Error(fmt::format("there is no row {}: the files have {}", o.from, count_of(row_number, "row")));
  if (other) {
    const std::string d = chat::difference(opened.chat_template, *other, shown);
    if (!d.empty()) text += "== the templates\n" + d;
    text += fmt::format(
        "{} of {} are equal in {} (-) and {} (+)\n", equal, count_of(static_cast<int64_t>(j.size()), "row"),
        text_for(STDOUT_FILENO, opened.chat_template.name()), text_for(STDOUT_FILENO, other->name()));
  }
  o.json.print_escaped(text, json_text(j, 2));
  return 0;
}

std::shared_ptr<RowsArguments> add_rows_options(CLI::App* c) {
  const auto o = std::make_shared<RowsArguments>();
  c->add_option("files", o->files, "conversations: .jsonl files with messages, folders, patterns")
      ->required();
  c->add_option("--model", o->model, fmt::format("whose template and tokenizer are taken: {}", kModelHelp));
  c->add_option("--chat-template", o->chat_template,
                "template: a folder or .jinja file, or chatml-think; default: the model's");
  c->add_option("--tokenizer", o->tokenizer, "tokenizer folder or file; default: the model's or template's");
  add_json_option(*c, o->json);
  return o;
}

void add_lint(CLI::App& data, int& code) {
  CLI::App* c = data.add_subcommand("lint", "faults of conversations as training data; exit code 1: found");
  const auto o = add_rows_options(c);
  c->footer("Examples:\n  ingot data lint chat.jsonl --chat-template chatml-think");
  c->callback([o, &code] { code = lint(*o); });
}

void add_preview(CLI::App& data, int& code) {
  CLI::App* c =
      data.add_subcommand("preview", "conversations as they would be trained, what is in the loss marked");
  const auto o = add_rows_options(c);
  c->add_option("--against", o->against, "a second template: shows the lines in which the two differ");
  c->add_option("--from", o->from, "first row to show, counted from 1")
      ->check(in(between(1, 0x1p40)))
      ->capture_default_str();
  c->add_option("--rows", o->rows, "rows to show")->check(in(between(1, 0x1p40)))->capture_default_str();
  c->footer("Examples:\n  ingot data preview chat.jsonl --chat-template chatml-think --rows 1");
  c->callback([o, &code] { code = preview(*o); });
}

}  // namespace

void add_data_command(CLI::App& app, int& code) {
  CLI::App* c = app.add_subcommand(
      "data", "prepare a recipe's tokenizer and token shards without training; look at conversations");
  const auto o = std::make_shared<DataArguments>();
  c->add_option("recipe", o->recipe, "recipe file (TOML), or run folder");
  c->add_option("--validation-text", o->texts,
                "write the validation text of each source to a file of this folder, e.g. to compress it");
  add_json_option(*c, o->json);
  c->footer("Examples:\n  ingot data recipe.toml\n  ingot data recipe.toml --validation-text held-out");
  c->allow_extras();
  add_lint(*c, code);
  add_preview(*c, code);
  c->callback([=, &code] {
    if (c->get_subcommands().empty()) code = prepare(*o, c->remaining());
  });
}

}  // namespace ingot
