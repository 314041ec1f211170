// The subcommands, one file each (small tools share one). A function adds options and a callback that sets
// `code`, the exit code, or throws.
#pragma once
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ingot {

void add_run_command(CLI::App& app, int& code);
void add_inference_commands(CLI::App& app, int& code);  ///< generate, chat
void add_eval_command(CLI::App& app, int& code);
void add_eval_tools(CLI::App& eval, int& code);  ///< eval quality, eval compare
void add_model_command(CLI::App& app, int& code);
void add_data_command(CLI::App& app, int& code);   ///< data, data lint, data preview
void add_tool_commands(CLI::App& app, int& code);  ///< checkpoint, report, diff, kernels
void add_tokenizer_command(CLI::App& app, int& code);
void add_bench_command(CLI::App& app, int& code);  ///< bench, profile, doctor
/// command: what follows -- on the command line.
void add_launch_command(CLI::App& app, int& code, std::vector<std::string> command);
void add_gpu_command(CLI::App& app, int& code);
void add_guard_command(CLI::App& app, int& code);
void add_debug_command(CLI::App& app, int& code);
void add_exchange_commands(CLI::App& app, int& code);  ///< import, export
void add_finetune_command(CLI::App& app, int& code);
void add_replay_command(CLI::App& app, int& code);
void add_rollouts_command(CLI::App& app, int& code);
void add_pairs_command(CLI::App& app, int& code);
void add_derive_commands(CLI::App& app, int& code);  ///< average, upcycle
void add_environment_command(CLI::App& app, int& code);
void add_reason_command(CLI::App& app, int& code);
void add_plan_command(CLI::App& app, int& code);
void add_shell_commands(CLI::App& app);  ///< completion, man

}  // namespace ingot
