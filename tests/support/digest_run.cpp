// See digest_run.h.
#include "support/digest_run.h"

#include <atomic>

#include "tape/op.h"
#include "train/run_failure.h"
#include "train/run_status.h"

namespace ingot::test {

std::string digest_recipe(const std::string& folder, const std::string& run) {
  return fmt::format(R"([run]
folder = "{0}/{1}"
[model]
preset = "llama-small"
width = 16
layers = 1
heads = 2
kv_heads = 2
head_width = 8
hidden = 24
context = 32
[tokenizer]
kind = "characters"
[data]
folder = "{0}/data"
[[data.sources]]
name = "words"
path = "{0}/text.txt"
validation_fraction = 0.0
[[phases]]
name = "first"
steps = 5
warmup = 0
batch = 12
micro_batch = 1
sequence = 16
lr = 1e-3
[[phases]]
name = "second"
steps = 3
warmup = 0
batch = 12
sequence = 24
lr = 5e-4
[checkpoint]
every = 4
keep_last = 0
[samples]
prompts = []
[health]
agree_every = 2
)",
                     folder, run);
}

namespace {

void run_rank(World& self, const Recipe& recipe, const Flip& flip, int64_t from, std::atomic<bool>& struck) {
  FileSystem& fs = real_file_system();
  try {
    Rewind rewind;
    if (from >= 0) rewind.from = from;
    Trainer trainer(fs, recipe, StartMode::resume_or_start, &self, rewind);
    RunStatus status(fs, recipe.run.folder, self.rank(), trainer.step(), recipe.checkpoint.every);
    trainer.publish(&status);
    Flipper flipper(trainer, flip.place, flip.step, flip.seed);
    if (flip.step > 0 && self.rank() == flip.rank) trainer.observe(&flipper);
    const auto end = [&] {
      if (flipper.struck()) struck = true;
    };
    try {
      trainer.run();
    } catch (...) {
      end();
      throw;
    }
    end();
  } catch (...) {
    record_failure(fs, recipe.run.folder, self.rank(), self.step(), true);
    throw;
  }
}

}  // namespace

bool run_with_flip(const std::string& recipe, const std::vector<std::string>& options, int ranks,
                   const Flip& flip, int64_t from) {
  const Recipe loaded = load_recipe(recipe, options);
  set_kernel_policy(KernelPolicy::any);
  std::atomic<bool> struck = false;
  run_ranks(ranks, [&](ThreadRank& self) { run_rank(self, loaded, flip, from, struck); });
  return struck;
}

}  // namespace ingot::test
