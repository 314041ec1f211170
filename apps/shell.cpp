// `ingot completion` and `ingot man`: scripts for shells and a manual page, made from the commands
// themselves.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/build_info.h"
#include "base/invocation.h"

namespace ingot {
namespace {

/// An option or argument as help shows it.
struct OptionText {
  std::vector<std::string> names;  ///< "-n", "--ranks"; of an argument its name
  std::string value, meaning;      ///< value: "INT=3", or "" for a flag
};

/// A command with all that its help says.
struct CommandText {
  std::string path, meaning, footer;  ///< path: "" for the program itself, "tokenizer encode"
  std::vector<OptionText> options, arguments;
  std::vector<CommandText> commands;
};

OptionText option_text(const CLI::Option& o) {
  OptionText t{{}, {}, o.get_description()};
  for (const std::string& name : CLI::detail::split(o.get_name(o.get_positional(), o.nonpositional()), ','))
    t.names.push_back(name.substr(0, name.find('{')));
  if (o.get_items_expected_max() > 0) t.value = o.get_type_name();
  if (!o.get_option_text().empty()) t.value = o.get_option_text();
  if (!t.value.empty() && !o.get_default_str().empty()) t.value += "=" + o.get_default_str();
  return t;
}

CommandText command_text(const CLI::App& app, const std::string& path) {
  CommandText t{path, app.get_description(), app.get_footer(), {}, {}, {}};
  for (const CLI::Option* o : app.get_options([](const CLI::Option* o) { return !o->get_group().empty(); }))
    (o->get_positional() ? t.arguments : t.options).push_back(option_text(*o));
  for (const CLI::App* c : app.get_subcommands([](const CLI::App*) { return true; }))
    t.commands.push_back(command_text(*c, path.empty() ? c->get_name() : path + " " + c->get_name()));
  return t;
}

/// Calls visit(command) for a command and, after it, all of its commands.
template <class Visit>
void for_each(const CommandText& command, const Visit& visit) {
  visit(command);
  for (const CommandText& c : command.commands) for_each(c, visit);
}

std::string last_word(const std::string& path) {
  return path.substr(path.find_last_of(' ') + 1);
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

std::string joined(const std::vector<OptionText>& options) {
  std::string all;
  for (const OptionText& o : options)
    for (const std::string& name : o.names) all += (all.empty() ? "" : " ") + name;
  return all;
}

/// The branches of a `case` over paths of commands: those that complete, and those that have commands below.
std::string path_pattern(const CommandText& program) {
  std::string pattern;
  for_each(program, [&](const CommandText& c) {
    if (!c.path.empty()) pattern += (pattern.empty() ? "" : "|") + shell_word(c.path);
  });
  return pattern;
}

std::string bash_completion(const CommandText& program) {
  std::string cases;
  for_each(program, [&](const CommandText& c) {
    std::string names;
    for (const CommandText& below : c.commands) names += (names.empty() ? "" : " ") + last_word(below.path);
    cases += fmt::format("    {}) commands={} options={} ;;\n", shell_word(c.path), shell_word(names),
                         shell_word(joined(c.options)));
  });
  return fmt::format(
      "# bash completion for ingot: source this file, or save it as\n"
      "# ~/.local/share/bash-completion/completions/ingot\n"
      "_ingot() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} path= commands= options= word next\n"
      "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
      "    next=${{path:+$path }}$word\n"
      "    case $next in {}) path=$next ;; esac\n"
      "  done\n"
      "  case $path in\n{}  esac\n"
      "  [[ $current == -* ]] && commands=$options\n"
      "  COMPREPLY=($(compgen -W \"$commands\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _ingot ingot\n",
      path_pattern(program), cases);
}

/// "name:meaning" for zsh's _describe, in which a colon of the name or meaning is escaped.
std::string described(const std::string& name, const std::string& meaning) {
  std::string text;
  for (const char c : first_line(meaning)) text += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_word(name + ":" + text);
}

std::string zsh_completion(const CommandText& program) {
  std::string cases;
  for_each(program, [&](const CommandText& c) {
    std::string commands, options;
    for (const CommandText& below : c.commands)
      commands += " " + described(last_word(below.path), below.meaning);
    for (const OptionText& o : c.options)
      for (const std::string& name : o.names) options += " " + described(name, o.meaning);
    cases += fmt::format("    {}) commands=({} ) options=({} ) ;;\n", shell_word(c.path), commands, options);
  });
  return fmt::format(
      "#compdef ingot\n"
      "# zsh completion for ingot: save this file as _ingot in a folder of $fpath\n"
      "_ingot() {{\n"
      "  local path_of= next word\n"
      "  local -a commands options\n"
      "  for word in ${{words[2,CURRENT-1]}}; do\n"
      "    next=${{path_of:+$path_of }}$word\n"
      "    case $next in {}) path_of=$next ;; esac\n"
      "  done\n"
      "  case $path_of in\n{}  esac\n"
      "  if [[ $PREFIX == -* ]]; then _describe -o option options\n"
      "  elif (( $#commands )); then _describe command commands\n"
      "  else _files; fi\n"
      "}}\n"
      "if [[ $funcstack[1] == _ingot ]]; then _ingot \"$@\"; else compdef _ingot ingot; fi\n",
      path_pattern(program), cases);
}

/// A condition of fish: the words of a path are there, and no command below it.
std::string fish_condition(const CommandText& c) {
  std::string condition = c.path.empty() ? "" : "__fish_seen_subcommand_from " + last_word(c.path);
  const size_t space = c.path.find(' ');
  if (space != std::string::npos)
    condition = "__fish_seen_subcommand_from " + c.path.substr(0, space) + "; and " + condition;
  if (c.commands.empty()) return condition;
  condition +=
      condition.empty() ? "not __fish_seen_subcommand_from" : "; and not __fish_seen_subcommand_from";
  for (const CommandText& below : c.commands) condition += " " + last_word(below.path);
  return condition;
}

std::string fish_completion(const CommandText& program) {
  std::string lines =
      "# fish completion for ingot: save this file as ~/.config/fish/completions/ingot.fish\n";
  for_each(program, [&](const CommandText& c) {
    const std::string begin = "complete -c ingot -n " + shell_word(fish_condition(c));
    for (const CommandText& below : c.commands)
      lines += fmt::format("{} -f -a {} -d {}\n", begin, last_word(below.path),
                           shell_word(first_line(below.meaning)));
    for (const OptionText& o : c.options) {
      lines += begin;
      for (const std::string& name : o.names)
        lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      lines += fmt::format("{} -d {}\n", o.value.empty() ? "" : " -r", shell_word(first_line(o.meaning)));
    }
  });
  return lines;
}

/// Text of a manual page: no line of it is a request, no hyphen becomes another character.
std::string roff(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n')) result += "\\&";
    result += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  }
  return result;
}

void add_entries(std::string& page, const std::vector<OptionText>& options) {
  for (const OptionText& o : options) {
    page += ".TP\n.B ";
    for (const std::string& name : o.names) page += (&name == &o.names.front() ? "" : ", ") + roff(name);
    if (!o.value.empty()) page += (o.value[0] == '[' ? "" : " ") + roff(o.value);
    page += "\n" + roff(o.meaning) + "\n";
  }
}

std::string usage_of(const CommandText& c) {
  std::string usage = "ingot" + (c.path.empty() ? "" : " " + c.path);
  if (!c.options.empty()) usage += " [OPTIONS]";
  for (const OptionText& o : c.arguments) usage += " " + o.names.front();
  return c.commands.empty() ? usage : usage + " COMMAND";
}

std::string manual_page(const CommandText& program) {
  std::string page = fmt::format(
      ".TH INGOT 1 \"\" \"ingot {}\" \"User commands\"\n.SH NAME\ningot \\- train and run language models\n"
      ".SH SYNOPSIS\n.B {}\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      build_info().version, roff(usage_of(program)), roff(program.meaning));
  for_each(program, [&](const CommandText& c) {
    if (c.path.empty()) return;
    page += fmt::format(".SS {}\n{}\n", roff(usage_of(c)), roff(c.meaning));
    add_entries(page, c.arguments);
    add_entries(page, c.options);
    if (!c.footer.empty()) page += ".PP\n.nf\n" + roff(c.footer) + "\n.fi\n";
  });
  return page +
         ".SH EXIT STATUS\n0: success. 1: an error that can be mended. 2: wrong usage. 3: a bug of ingot. "
         "130: interrupted; "
         "a run is saved.\n"
         ".SH ENVIRONMENT\n.TP\n.B INGOT_LOG\ndebug, info, warn, error or silent: the least severe lines to "
         "show.\n"
         ".TP\n.B INGOT_THREADS\nnumber of threads; default: the cores.\n"
         ".TP\n.B INGOT_ISA\ngeneric, avx2 or avx512: the best instruction set to use.\n"
         ".TP\n.B INGOT_SIM\nordered, or async,SEED: when work of the simulated device runs, at once or "
         "late.\n"
         ".TP\n.B INGOT_EMULATE\nSEED, then ,alone or not, then ,mma, ,wgmma or neither: the simulated "
         "device "
         "runs the kernels of GPUs, emulated; alone: and refuses what has none; mma: products of bf16 on "
         "tensor cores, too; wgmma: by Hopper's instructions.\n"
         ".SH EXAMPLES\n.nf\n" +
         roff(program.footer) + "\n.fi\n";
}

void print_completion(const CommandText& program, const std::string& shell) {
  if (shell == "bash")
    std::cout << bash_completion(program);
  else if (shell == "zsh")
    std::cout << zsh_completion(program);
  else
    std::cout << fish_completion(program);
}

}  // namespace

void add_shell_commands(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c =
      app.add_subcommand("completion", "print a script that completes commands and options in a shell");
  c->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->footer("Examples:\n  source <(ingot completion bash)");
  c->callback([&app, shell] { print_completion(command_text(app, ""), *shell); });
  CLI::App* man = app.add_subcommand("man", "print the manual page");
  man->footer("Examples:\n  ingot man > ingot.1");
  man->callback([&app] { std::cout << manual_page(command_text(app, "")); });
}

}  // namespace ingot
