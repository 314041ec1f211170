// The command line as a whole: help and version however people ask for them, and wrong usage in the program's
// one style of errors, with the nearest names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ingot {

/// A wrong use of the command line: exit code 2. The hint says how it is used.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Names of a command's own commands, in the order of its help.
std::vector<std::string> command_names(const CLI::App& app);

/// Parses the words after the program's name and runs the command that they name, or prints help or version.
/// `help X` is `X --help`, `version` is `--version`. Throws UsageError, and what the command throws.
void run_command_line(CLI::App& app, std::vector<std::string> words);

/// Prints text with parts that come from files or models; where a terminal reads it, what it would obey is
/// escaped.
void print_text(std::string_view text);

/// --json of a command: prints the numbers as JSON instead of the text; --json=FILE writes them to a file,
/// beside the text ("-": standard output).
struct JsonOption {
  std::string file;  ///< empty: not given
  bool alone() const { return file == "-"; }
  /// Prints `text`, or the JSON, or the text and writes the file.
  void print(const std::string& text, const std::string& json) const;
  /// The same, of a text in which nothing is left to escape and which may colour a terminal.
  void print_escaped(const std::string& text, const std::string& json) const;
};
CLI::Option* add_json_option(CLI::App& command, JsonOption& option);

}  // namespace ingot
