// The program `ingot`: subcommands, and the one place where errors become messages and exit codes.
//   0 success   1 an error that the user can fix   2 a bug   3 wrong usage   130 interrupted (a run: saved)
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/commands.h"
#include "base/build_info.h"
#include "base/error.h"

namespace ingot {
namespace {

/// `ingot launch ... -- command`: removes the command from argv, so that the parser does not parse it.
std::vector<std::string> take_command(int& argc, char** argv) {
  if (argc < 2 || std::string(argv[1]) != "launch") return {};
  const auto dashes = std::find(argv, argv + argc, std::string("--"));
  std::vector<std::string> command(std::min(dashes + 1, argv + argc), argv + argc);
  argc = static_cast<int>(dashes - argv);
  return command;
}

int run_program(int argc, char** argv) {
  std::vector<std::string> launched = take_command(argc, argv);
  CLI::App app{
      "Ingot trains and runs language models: tokenizer, data, training, generation.\n\n"
      "  ingot run recipe.toml             train; the same command resumes an interrupted run\n"
      "  ingot chat --run runs/first       chat with the trained model\n"
      "  ingot model zaya1-8b              exact parameter counts of a preset\n",
      "ingot"};
  app.set_version_flag("--version", build_info().version + " (" + build_info().commit + ")");
  app.require_subcommand(1);
  int code = 0;
  add_run_command(app, code);
  add_inference_commands(app, code);
  add_eval_command(app, code);
  add_model_command(app, code);
  add_tool_commands(app, code);
  add_exchange_commands(app, code);
  add_finetune_command(app, code);
  add_derive_commands(app, code);
  add_launch_command(app, code, std::move(launched));
  add_bench_command(app, code);
  add_debug_command(app, code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int status = app.exit(e);
    return status == 0 ? 0 : 3;
  }
  return code;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  try {
    return ingot::run_program(argc, argv);
  } catch (const ingot::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    if (!e.hint().empty()) fmt::print(stderr, "hint: {}\n", e.hint());
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "internal error (a bug in ingot, please report it): {}\n", e.what());
    return 2;
  }
}
