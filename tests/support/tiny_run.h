// A complete run small enough for a test: text, recipe file, and what must be equal between two runs of it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "support/support.h"

namespace ingot::test {

/// Words drawn from a fixed list, in documents divided by blank lines; the same on every machine.
std::string tiny_text(int64_t words, uint64_t seed = 1);

/// TOML of a two-phase run (different sequence lengths, batches and schedules; Muon, AdamW and the balancing
/// controller; micro-batches, validation, samples, a checkpoint every four of 24 steps) of a ZAYA-style
/// model, on `text_path`.
std::string tiny_recipe(const std::string& run_folder, const std::string& data_folder,
                        const std::string& text_path);

/// The recipe with all checkpoints kept, so that a script which waits for one finds it however late it looks.
std::string keeping_all(const std::string& recipe);

/// TOML of a two-step run `base` of a dense model of one layer, on `text.txt`, all in `folder`. `tokenizer`
/// is the line of that table.
std::string base_recipe(const std::string& folder, int64_t context, const std::string& tokenizer);

/// Bytes of every tensor of the newest checkpoint by name, and its states ("blob:<name>").
std::map<std::string, std::string> checkpoint_content(const std::string& run_folder);

/// "step loss" of every row of metrics.jsonl, the loss in hexadecimal.
std::vector<std::string> losses(const std::string& run_folder);
std::vector<std::string> samples(const std::string& run_folder);

/// Empty, or what differs between two finished runs: tensors, states, losses, samples.
std::string difference(const std::string& left_folder, const std::string& right_folder);

/// A finished child process.
struct ProcessResult {
  int exit_code = -1;  ///< -1: killed
  int signal = 0;      ///< that killed it
  std::string output;  ///< standard output and error
};

/// A child process with its output in a file that is removed when it has been waited for.
class Process {
 public:
  Process(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  int pid() const { return pid_; }
  void signal(int number) const;
  bool running();
  ProcessResult wait();

 private:
  int pid_ = -1;
  std::string output_path_;
  int status_ = 0;
  bool reaped_ = false;
};

ProcessResult run_process(const std::vector<std::string>& command,
                          const std::vector<std::string>& environment = {});

}  // namespace ingot::test
