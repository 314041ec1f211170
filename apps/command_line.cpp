// See command_line.h.
#include "apps/command_line.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <regex>

#include "base/config_node.h"
#include "base/file_system.h"
#include "base/invocation.h"
#include "base/log.h"
#include "base/terminal_text.h"

namespace ingot {
namespace {

using Words = std::vector<std::string>;

/// What people call these commands elsewhere.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"train", "run"},        {"pretrain", "run"},      {"resume", "run"},   {"plan", "run"},
    {"sample", "generate"},  {"complete", "generate"}, {"sft", "finetune"}, {"lora", "finetune"},
    {"convert", "export"},   {"save", "export"},       {"load", "import"},  {"evaluate", "eval"},
    {"perplexity", "eval"},  {"test", "doctor"},       {"check", "doctor"}, {"tokenize", "tokenizer"},
    {"prepare", "data"},     {"benchmark", "bench"},   {"compare", "diff"}, {"merge", "average"},
    {"presets", "model"},    {"models", "model"},      {"plot", "report"},  {"mpirun", "launch"},
    {"verify", "checkpoint"}};

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-';
}

std::string name_of_option(const std::string& word) {
  return word.substr(0, word.find('='));
}

Words option_names(const CLI::App& command) {
  Words names;
  for (const CLI::Option* o : command.get_options([](const CLI::Option* o) { return o->nonpositional(); }))
    for (const std::string& name : CLI::detail::split(o->get_name(false, true), ','))
      names.push_back(name.substr(0, name.find('{')));
  return names;
}

/// "ingot tokenizer encode".
std::string path_of(const CLI::App& command) {
  return command.get_parent() ? path_of(*command.get_parent()) + " " + command.get_name()
                              : command.get_name();
}

/// "`ingot run --help` lists the options", after a question or alone.
std::string help_hint(const CLI::App& command, const std::string& what, const std::string& question = "") {
  return fmt::format("{}`{} --help` lists the {}", question.empty() ? "" : question + " ", path_of(command),
                     what);
}

[[noreturn]] void unknown_command(const CLI::App& app, const std::string& word) {
  Words names = command_names(app);
  if (!app.get_parent())
    for (const auto& other : kOtherNames) names.push_back(other.first);
  std::string meant =
      std::find(names.begin(), names.end(), word) == names.end() ? nearest_name(word, names) : word;
  for (const auto& [name, ours] : kOtherNames)
    if (!app.get_parent() && meant == name) meant = ours;
  throw UsageError(fmt::format("there is no command '{} {}'", path_of(app), word),
                   help_hint(app, "commands",
                             meant.empty() ? "" : fmt::format("did you mean `{} {}`?", path_of(app), meant)));
}

[[noreturn]] void unknown_option(const CLI::App& command, const std::string& name) {
  const std::string meant = nearest_name(name, option_names(command));
  throw UsageError(
      fmt::format("`{}` has no option '{}'", path_of(command), name),
      help_hint(command, "options", meant.empty() ? "" : fmt::format("did you mean '{}'?", meant)));
}

/// The command that the words name: at the top, and in commands that have some of their own.
const CLI::App& find_command(const CLI::App& app, const Words& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    if (is_option(word) || command_names(*command).empty()) break;
    const auto named = command->get_subcommands([&](const CLI::App* c) { return c->get_name() == word; });
    if (named.empty() && command->get_require_subcommand_min() == 0) break;  // an argument of its own
    if (named.empty()) unknown_command(*command, word);
    command = named.front();
  }
  return *command;
}

Words plain_requests(Words words) {
  if (words.empty()) return {"--help"};
  if (words[0] == "version" || words[0] == "-V") words[0] = "--version";
  if (words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  return words;
}

/// Commands that take fields of a recipe as options leave unknown ones to it. Without a section they are
/// none.
void refuse_misspelt(const CLI::App& command, const Words& words) {
  if (!command.get_allow_extras()) return;
  const Words names = option_names(command);
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string name = name_of_option(word);
    if (!word.starts_with("--") || name.find('.') != std::string::npos) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    Words bare;
    for (const std::string& n : names) bare.push_back(n.substr(n.find_first_not_of('-')));
    if (!nearest_name(name.substr(2), bare).empty()) unknown_option(command, name);
  }
}

/// "--json" becomes "--json=-" where a file may be named; "--json FILE.json" is how the file was named
/// before.
void complete_json(const CLI::App& command, Words& words) {
  const CLI::Option* option = command.get_option_no_throw("--json");
  if (!option || option->get_items_expected_max() == 0) return;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] != "--json") continue;
    if (i + 1 < words.size() && (words[i + 1].ends_with(".json") || words[i + 1] == "-")) {
      words[i] += "=" + words[i + 1];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      if (!words[i].ends_with("=-")) log::warn("'--json FILE' is written '{}' now", words[i]);
    } else {
      words[i] += "=-";
    }
  }
}

std::string kind_of_value(const CLI::Option* option) {
  const std::string type = option ? option->get_type_name() : "";
  if (type.starts_with("INT")) return "an integer";
  if (type.starts_with("UINT")) return "an integer of at least 0";
  if (type.starts_with("FLOAT")) return "a number";
  return "another value";
}

/// An error of the parser in the program's words. What was not recognized is named before what is missing.
UsageError usage_error(const CLI::App& command, const CLI::ParseError& e) {
  if (!command.get_allow_extras()) {
    const Words rest = command.remaining();
    for (const std::string& word : rest)
      if (is_option(word)) unknown_option(command, name_of_option(word));
    if (!rest.empty())
      return UsageError(fmt::format("`{}` does not take the argument '{}'", path_of(command), rest.front()),
                        help_hint(command, "arguments"));
  }
  const std::string said = e.what(), hint = help_hint(command, "options");
  if (e.get_name() == "RequiredError") {
    const Words names = command_names(command);
    if (!names.empty())
      return UsageError(fmt::format("`{}` needs a command: {}", path_of(command),
                                    fmt::format("{}", fmt::join(names, ", "))),
                        help_hint(command, "commands"));
    const std::string name = said.substr(0, said.find(" is required"));
    return UsageError(
        fmt::format("`{}` needs {}{}", path_of(command), is_option(name) ? "the option " : "the argument ",
                    is_option(name) ? name : "'" + name + "'"),
        help_hint(command, is_option(name) ? "options" : "arguments"));
  }
  constexpr std::string_view kConvert = "Could not convert: ";
  if (const size_t equal = said.find(" = "); said.starts_with(kConvert) && equal != std::string::npos) {
    const std::string name = said.substr(kConvert.size(), equal - kConvert.size());
    return UsageError(fmt::format("{}: expected {}, found '{}'", name,
                                  kind_of_value(command.get_option_no_throw(name)), said.substr(equal + 3)),
                      hint);
  }
  if (const size_t missing = said.find(": 1 required "); missing != std::string::npos)
    return UsageError(said.substr(0, missing) + " needs a value", hint);
  constexpr std::string_view kRange = ": Value ", kNotIn = " not in range ";
  const size_t value = said.find(kRange), range = said.find(kNotIn);
  if (value != std::string::npos && range != std::string::npos) {
    // CLI11 prints numbers with six decimals.
    const std::string bounds =
        std::regex_replace(said.substr(range + kNotIn.size()), std::regex(R"(\.0+(?=\s|$))"), "");
    return UsageError(fmt::format("{}: expected {}, found {}", said.substr(0, value),
                                  bounds.size() > 100 ? "a positive number" : "a number from " + bounds,
                                  said.substr(value + kRange.size(), range - value - kRange.size())),
                      hint);
  }
  return UsageError(said, hint);
}

}  // namespace

Words command_names(const CLI::App& app) {
  Words names;
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(c->get_name());
  return names;
}

void run_command_line(CLI::App& app, Words words) {
  words = plain_requests(std::move(words));
  const CLI::App& command = find_command(app, words);
  complete_json(command, words);
  refuse_misspelt(command, words);
  try {
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::cout << as_typed(app.help());
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << "\n";
  } catch (const CLI::ParseError& e) {
    throw usage_error(command, e);
  }
}

void print_text(std::string_view text) {
  std::cout << text_for(STDOUT_FILENO, text) << std::flush;
}

void JsonOption::print(const std::string& text, const std::string& json) const {
  print_escaped(text_for(STDOUT_FILENO, text), json);
}

void JsonOption::print_escaped(const std::string& text, const std::string& json) const {
  std::cout << (alone() ? text_for(STDOUT_FILENO, json) : text) << std::flush;
  if (alone() && !json.ends_with('\n')) std::cout << "\n";
  if (!file.empty() && !alone()) write_file_atomically(real_file_system(), file, json);
}

CLI::Option* add_json_option(CLI::App& command, JsonOption& option) {
  return command
      .add_option("--json", option.file,
                  "print JSON instead of text; --json=FILE writes it to a file beside the text")
      ->option_text("[=FILE]");
}

}  // namespace ingot
