// The program `ingot`: subcommands, and the one place where errors become messages and exit codes.
//   0 success   1 an error that the user can fix   2 wrong usage   3 a bug   130 interrupted (a run: saved)
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>
#include <system_error>

#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/invocation.h"
#include "base/log.h"
#include "base/standard_streams.h"
#include "base/terminal_text.h"
#include "device/gemm/product_table.h"
#include "post/register.h"

namespace ingot {
namespace {

using Words = std::vector<std::string>;

/// `ingot launch ... -- command`: removes the command, so that the parser does not parse it.
Words take_command(Words& words) {
  if (words.empty() || words[0] != "launch") return {};
  const auto dashes = std::find(words.begin(), words.end(), "--");
  Words command(std::min(dashes + 1, words.end()), words.end());
  words.erase(dashes, words.end());
  return command;
}

/// Headings of the commands in `ingot --help`.
constexpr std::pair<const char*, std::string_view> kHeadings[] = {
    {"Train", " run finetune pairs data tokenizer environment launch guard "},
    {"Use a model", " generate chat serve eval reason "},
    {"Models and checkpoints", " model import export average upcycle checkpoint "},
    {"Look at runs", " report diff replay rollouts debug "},
    {"Measure and plan", " doctor bench profile plan kernels gpu "},
    {"Shell", " completion man "}};

void group_commands(CLI::App& app) {
  const std::function<bool(CLI::App*)> all = [](CLI::App*) { return true; };
  for (CLI::App* c : app.get_subcommands(all))
    for (const auto& [heading, names] : kHeadings)
      if (names.find(" " + c->get_name() + " ") != std::string_view::npos) c->group(heading);
}

int run_program(const std::string& called, Words words) {
  register_post();
  Words launched = take_command(words);
  CLI::App app{"Ingot trains and runs language models: tokenizer, data, training, generation.", "ingot"};
  app.set_version_flag("--version", build_info().version + " (" + build_info().commit + ")");
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  int code = 0;
  add_run_command(app, code);
  add_inference_commands(app, code);
  add_eval_command(app, code);
  add_model_command(app, code);
  add_data_command(app, code);
  add_tool_commands(app, code);
  add_tokenizer_command(app, code);
  add_exchange_commands(app, code);
  add_finetune_command(app, code);
  add_replay_command(app, code);
  add_rollouts_command(app, code);
  add_pairs_command(app, code);
  add_derive_commands(app, code);
  add_launch_command(app, code, std::move(launched));
  add_guard_command(app, code);
  add_bench_command(app, code);
  add_gpu_command(app, code);
  add_debug_command(app, code);
  add_environment_command(app, code);
  add_reason_command(app, code);
  add_plan_command(app, code);
  add_shell_commands(app);
  group_commands(app);
  // The commands would inherit it if it were set before them.
  app.footer(
      "Examples, in the folder of Ingot's source:\n"
      "  ingot run recipes/first.toml                    # train a tiny model in seconds; again: resumes\n"
      "  ingot generate runs/first --prompt \"The \"      # let it write\n"
      "  ingot model zaya1-8b                            # exact parameter counts of a preset\n"
      "  ingot help finetune                             # options and examples of a command");
  Words names = command_names(app);
  names.insert(names.end(), {"help", "version"});
  set_invocation(called, std::move(names));
  install_named_product_table();
  run_command_line(app, std::move(words));
  return code;
}

/// On lines of their own, after a line of progress that stands without an end.
void print_error(const std::string& message, const std::string& hint = "") {
  log::set_status("");
  write_to_reader(STDERR_FILENO, terminal_text(as_typed(message)) + "\n");
  if (!hint.empty()) write_to_reader(STDERR_FILENO, terminal_text(as_typed("hint: " + hint)) + "\n");
}

/// Runs the program; errors become messages and codes.
int exit_code(int argc, char** argv) {
  try {
    return run_program(argv[0], {argv + 1, argv + argc});
  } catch (const UsageError& e) {
    print_error(fmt::format("error: {}", e.what()), e.hint());
    return 2;
  } catch (const Error& e) {
    print_error(fmt::format("error: {}", e.what()), e.hint());
    return 1;
  } catch (const std::exception& e) {
    // What could not be printed: end_with() says so.
    if (std::ferror(stdout) != 0 && dynamic_cast<const std::system_error*>(&e) != nullptr) return 0;
    print_error(fmt::format("internal error (a bug in ingot, please report it): {}", e.what()));
    return 3;
  }
}

/// What was printed must have arrived before a command counts as successful.
int end_with(int code) {
  std::string reason;
  if (flush_standard_output(reason) || code != 0) return code;
  print_error(fmt::format("error: cannot write to standard output: {}", reason));
  return 1;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  ingot::open_standard_streams();
  return ingot::end_with(ingot::exit_code(argc, argv));
}
