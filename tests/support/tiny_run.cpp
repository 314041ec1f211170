// See tiny_run.h.
#include "support/tiny_run.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/philox.h"
#include "checkpoint/reader.h"
#include "report/metrics.h"
#include "report/run_record.h"

namespace ingot::test {

std::string tiny_text(int64_t words, uint64_t seed) {
  static const char* const kWords[] = {"the",    "river", "runs",  "under", "a",     "stone",
                                       "bridge", "and",   "sea",   "winds", "carry", "salt",
                                       "over",   "green", "hills", "while", "kings", "sleep",
                                       "in",     "quiet", "halls", "of",    "gold",  "rain"};
  const Random random(seed, RandomPurpose::test);
  std::string text;
  for (int64_t i = 0; i < words; ++i) {
    const auto n = static_cast<uint64_t>(i);
    text += kWords[random.below(2 * n, std::size(kWords))];
    const uint64_t end = random.below(2 * n + 1, 24);
    text += end == 0 ? ".\n\n" : end < 3 ? ".\n" : " ";
  }
  return text + "\n";
}

std::string base_recipe(const std::string& folder, int64_t context, const std::string& tokenizer) {
  return fmt::format(R"([run]
folder = "{0}/base"
[model]
preset = "llama-small"
width = 16
layers = 1
heads = 2
kv_heads = 1
head_width = 8
hidden = 24
context = {1}
[tokenizer]
{2}
[data]
folder = "{0}/data"
[[data.sources]]
name = "words"
path = "{0}/text.txt"
tail_validation = true
[[phases]]
steps = 2
warmup = 0
batch = 2
sequence = 16
[samples]
prompts = []
)",
                     folder, context, tokenizer);
}

std::string tiny_recipe(const std::string& run_folder, const std::string& data_folder,
                        const std::string& text_path) {
  return fmt::format(R"([run]
folder = "{}"
seed = 3
[model]
preset = "zaya-tiny"
width = 16
layers = 2
heads = 4
kv_heads = 2
head_width = 8
context = 64
[model.moe]
experts = 4
hidden = 16
router_width = 8
[tokenizer]
kind = "characters"
[data]
folder = "{}"
[[data.sources]]
name = "words"
path = "{}"
documents = "blank_line"
validation_fraction = 0.1
[[phases]]
name = "first"
steps = 14
batch = 4
micro_batch = 2
sequence = 24
lr = 1e-2
warmup = 3
[[phases]]
name = "second"
steps = 10
batch = 3
sequence = 40
lr = 5e-3
schedule = "cosine"
warmup = 0
rope_theta = 1e5
[checkpoint]
every = 4
[evaluation]
every = 5
max_tokens = 80
[samples]
every = 6
prompts = ["the "]
tokens = 8
)",
                     run_folder, data_folder, text_path);
}

std::string keeping_all(const std::string& recipe) {
  return std::regex_replace(recipe, std::regex("\\[checkpoint\\]\n"), "$&keep_last = 0\n");
}

std::map<std::string, std::string> checkpoint_content(const std::string& run_folder) {
  const auto reader =
      CheckpointReader::open_newest(real_file_system(), run_folder + "/" + run_files::kCheckpoints);
  if (!reader) return {};
  std::map<std::string, std::string> content{{"step", std::to_string(reader->step())}};
  for (const auto& [name, stored] : reader->tensors()) {
    std::string bytes(static_cast<size_t>(stored.meta.bytes()), '\0');
    reader->read(name, Tensor(bytes.data(), stored.meta.shape, stored.meta.dtype));
    content[name] = bytes;
  }
  for (const auto& [name, text] : reader->manifest().blobs)
    if (name != "recipe") content["blob:" + name] = text;  // the recipe names the run's folder
  return content;
}

std::vector<std::string> losses(const std::string& run_folder) {
  std::vector<std::string> lines;
  for (const MetricRow& row : read_metrics(real_file_system(), run_folder + "/" + run_files::kMetrics)) {
    std::string line = std::to_string(row.step);
    for (const auto& [name, value] : row.scalars)
      if (name == "loss" || name == "grad_norm" || name == "lr" || name == "tokens" ||
          (name.starts_with("val/") && !name.ends_with("/tokens")))  // how many, not what they gave
        line += fmt::format(" {}={:a}", name, value);
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> samples(const std::string& run_folder) {
  std::vector<std::string> lines;
  for (const Sample& s : read_samples(real_file_system(), run_folder + "/" + run_files::kSamples))
    lines.push_back(fmt::format("{} {}{}", s.step, s.prompt, s.text));
  return lines;
}

namespace {

std::string first_difference(const char* what, const std::vector<std::string>& l,
                             const std::vector<std::string>& r) {
  for (size_t i = 0; i < std::max(l.size(), r.size()); ++i) {
    const std::string a = i < l.size() ? l[i] : "nothing", b = i < r.size() ? r[i] : "nothing";
    if (a != b) return fmt::format("{} {}: '{}' and '{}'\n", what, i, a, b);
  }
  return "";
}

}  // namespace

std::string difference(const std::string& left_folder, const std::string& right_folder) {
  const auto left = checkpoint_content(left_folder), right = checkpoint_content(right_folder);
  std::string text;
  if (left.empty() || right.empty()) text += "a run has no checkpoint\n";
  for (const auto& [name, bytes] : left) {
    const auto it = right.find(name);
    if (it == right.end())
      text += name + " is missing on the right\n";
    else if (it->second != bytes)
      text += name + " differs\n";
  }
  for (const auto& [name, bytes] : right)
    if (left.count(name) == 0) text += name + " is missing on the left\n";
  text += first_difference("metrics row", losses(left_folder), losses(right_folder));
  text += first_difference("sample", samples(left_folder), samples(right_folder));
  return text;
}

Process::Process(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  std::string pattern = "/tmp/ingot-output-XXXXXX";
  const int fd = ::mkstemp(pattern.data());
  output_path_ = pattern;
  std::vector<char*> argv, envp;
  for (const std::string& a : command) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  for (const std::string& e : environment) envp.push_back(const_cast<char*>(e.c_str()));
  for (char** e = environ; *e != nullptr; ++e) envp.push_back(*e);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, fd, 1);
  ::posix_spawn_file_actions_adddup2(&actions, fd, 2);
  const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(fd);
  if (error != 0) fail("cannot start '{}'", command.front());
}

Process::~Process() {
  if (!reaped_) {
    signal(SIGKILL);
    wait();
  }
}

void Process::signal(int number) const {
  ::kill(pid_, number);
}

bool Process::running() {
  if (!reaped_) reaped_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return !reaped_;
}

ProcessResult Process::wait() {
  if (!reaped_) ::waitpid(pid_, &status_, 0);
  reaped_ = true;
  ProcessResult r;
  if (WIFEXITED(status_)) r.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) r.signal = WTERMSIG(status_);
  r.output = read_text(output_path_);
  ::unlink(output_path_.c_str());
  return r;
}

ProcessResult run_process(const std::vector<std::string>& command,
                          const std::vector<std::string>& environment) {
  return Process(command, environment).wait();
}

}  // namespace ingot::test
