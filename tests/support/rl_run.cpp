// See rl_run.h.
#include "support/rl_run.h"

#include <fmt/core.h>

#include <atomic>
#include <limits>
#include <stdexcept>

#include "environments/environment.h"
#include "post/register.h"

namespace ingot::test {
namespace {

using environments::Problem;
using environments::Verdict;

/// Says one of three letters; the first is the right reply to each.
class LetterEnvironment final : public environments::Environment {
 public:
  explicit LetterEnvironment(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  const std::string& about() const override { return about_; }
  environments::DifficultyRange difficulty() const override { return {0, 3}; }
  Problem make(uint64_t seed, uint64_t number, int64_t difficulty) const override {
    Problem p;
    p.environment = name_, p.seed = seed, p.number = number, p.difficulty = difficulty;
    const char letter = static_cast<char>('a' + Random(seed, RandomPurpose::test).below(number, 3));
    p.prompt.messages.push_back(chat::text_message("user", {letter}));
    p.data = "a";
    return p;
  }
  std::optional<chat::Message> solve(const Problem& problem, const Random&,
                                     environments::TraceStyle) const override {
    return chat::text_message("assistant", problem.data);
  }

 protected:
  Verdict verify(const Problem& problem, const std::string& answer) const override {
    static std::atomic<bool> failed = false;
    if (name_ == "throws_test" || (name_ == "once_test" && !failed.exchange(true)))
      throw std::runtime_error("no verdict today");
    Verdict v;
    v.reward = name_ != "never_test" && answer == problem.data ? 1 : 0;
    if (name_ == "nan_test") v.reward = std::numeric_limits<double>::quiet_NaN();
    return v;
  }

 private:
  std::string name_, about_ = "say the letter";
};

}  // namespace

void register_rl_environments() {
  static const bool done = [] {
    register_post();
    for (const std::string name : {"say_test", "throws_test", "once_test", "nan_test", "never_test"})
      environments::register_environment(name, [name] { return std::make_shared<LetterEnvironment>(name); });
    return true;
  }();
  static_cast<void>(done);
}

void write_rl_rows(const std::string& folder, bool reasoning) {
  std::string rows;
  for (int i = 0; i < 90; ++i)
    rows += fmt::format(
        R"({{"messages": [{{"role": "user", "content": "{}"}}, {{"role": "assistant", "content": "{}"{}}}]}})"
        "\n",
        static_cast<char>('a' + i % 3), static_cast<char>('a' + i / 3 % 3),
        reasoning ? R"(, "reasoning_content": "zzzzzz")" : "");
  write_text(folder + "/rows.jsonl", rows);
}

std::string rl_recipe(const std::string& folder, const std::string& run, int steps, const std::string& more) {
  return fmt::format(R"([run]
folder = "{0}/{1}"
seed = 5
[model]
preset = "llama-small"
width = 32
layers = 1
heads = 2
kv_heads = 1
head_width = 16
hidden = 64
context = 64
[tokenizer]
vocab = 261
special_tokens = ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
[data]
folder = "{0}/data"
chat_template = "chatml-think"
[[data.sources]]
name = "rows"
path = "{0}/rows.jsonl"
conversations = true
validation_fraction = 0
[optimizer]
matrices = "muon"
[[phases]]
name = "sft"
kind = "chat"
steps = 40
batch = 4
sequence = 64
lr = 1e-2
warmup = 4
[phases.chat]
[[phases]]
name = "rl"
kind = "rl"
steps = {2}
sequence = 64
lr = 3e-3
schedule = "constant"
warmup = 0
[phases.optimizer]
momentum = 0
[phases.rl]
prompts = 6
samples = 8
max_tokens = 6
record_groups = 1
{3}
[[phases.rl.environments]]
name = "say_test"
[checkpoint]
every = 8
[samples]
prompts = []
)",
                     folder, run, steps, more);
}

}  // namespace ingot::test
