// `ingot debug dump` shows what the trainer does: the same rows (mixture of the stage, sampling mode, place in the
// order) and so the same tensors, at the start of a run and after a checkpoint.
#include "train/dump.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "checkpoint/safetensors.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/trainer.h"

namespace ingot::test::dump_test {

/// Bytes of every tensor of the first micro-batch of the first step that run() makes; stops the run after `steps`.
class FirstStep final : public RunObserver {
 public:
  explicit FirstStep(int64_t steps) : steps_(steps) {}
  void enters(RunPhase phase) override {
    if (phase == RunPhase::records && --steps_ == 0) Trainer::interrupt();
  }
  void tensor(const std::string& name, const Tensor& t) override {
    tensors.try_emplace(name, static_cast<const char*>(t.data), static_cast<size_t>(t.bytes()));
  }
  std::map<std::string, std::string> tensors;

 private:
  int64_t steps_;
};

/// Every word a document, which fits into every row.
std::string short_documents(uint64_t seed) {
  std::string text;
  for (const char c : tiny_text(1500, seed)) text += c == ' ' || c == '\n' ? "\n\n" : std::string(1, c);
  return text;
}

class Dump : public ::testing::Test {
 protected:
  Dump() : before_(log::level()) {
    log::set_level(log::Level::silent);
    set_kernel_policy(KernelPolicy::any);
    write_text(folder_ / "verse.txt", short_documents(1));
    write_text(folder_ / "prose.txt", short_documents(2));
  }
  ~Dump() override {
    log::set_level(before_);
    set_kernel_policy(KernelPolicy::strict);
  }

  /// Two stages of two steps; the second has a mixture of its own.
  Recipe recipe(const std::string& sampling, const std::string& second_weights) const {
    const std::string text = fmt::format(
        "[run]\nfolder = \"{0}/run\"\n[model]\npreset = \"gpt2\"\nwidth = 16\nlayers = 1\nheads = "
        "2\nkv_heads = 2\n"
        "head_width = 8\nhidden = 32\nvocab = 0\ncontext = 32\n[tokenizer]\nkind = \"characters\"\n"
        "[data]\nfolder = \"{0}/data\"\nsampling = \"{1}\"\n"
        "[[data.sources]]\nname = \"verse\"\npath = \"{0}/verse.txt\"\ndocuments = \"blank_line\"\n"
        "validation_fraction = 0.1\nweight = 3\n"
        "[[data.sources]]\nname = \"prose\"\npath = \"{0}/prose.txt\"\ndocuments = \"blank_line\"\n"
        "validation_fraction = 0.1\n"
        "[[phases]]\nsteps = 2\nbatch = 8\nmicro_batch = 4\nsequence = 16\nwarmup = 0\n"
        "[[phases]]\nsteps = 2\nbatch = 4\nsequence = 24\nwarmup = 0\nweights = [{2}]\n"
        "[evaluation]\nevery = 0\n[samples]\nevery = 0\nprompts = []\n[memory]\nhead = \"store\"\n",
        folder_.path(), sampling, second_weights);
    write_text(folder_ / "recipe.toml", text);
    return load_recipe(folder_ / "recipe.toml", {});
  }

  /// The dump of the next step; the tensors of the trainer's next step (it takes `steps`); both must be the same.
  std::map<std::string, std::string> dumped(const Recipe& r) const {
    dump_step(real_file_system(), r, folder_ / "dump.safetensors");
    const SafetensorsFile file(real_file_system(), folder_ / "dump.safetensors");
    std::map<std::string, std::string> tensors;
    for (const SafetensorsEntry& e : file.entries()) {
      const auto data = file.data(e);
      tensors[e.name].assign(reinterpret_cast<const char*>(data.data()), data.size());
    }
    return tensors;
  }
  std::map<std::string, std::string> trained(const Recipe& r, int64_t steps) const {
    FirstStep first(steps);
    Trainer trainer(real_file_system(), r, StartMode::resume_or_start);
    trainer.observe(&first);
    trainer.run();
    return first.tensors;
  }
  void expect_equal(const Recipe& r, int64_t steps) const {
    const auto dump = dumped(r), run = trained(r, steps);
    EXPECT_GT(dump.size(), 10u);
    ASSERT_EQ(dump.size(), run.size());
    for (const auto& [name, bytes] : run) {
      const auto it = dump.find(name);
      ASSERT_TRUE(it != dump.end()) << name;
      EXPECT_TRUE(it->second == bytes) << name << " differs";
    }
  }

  TempDir folder_;

 private:
  log::Level before_;
};

TEST_F(Dump, IsTheTrainersStep) {
  Recipe r = recipe("stream", R"({source = "prose", weight = 1})");
  expect_equal(r, 1);  // step 0, the sources' own weights
  expect_equal(r, 1);  // step 1, from a checkpoint within the stage
  expect_equal(
      r, 2);  // step 2, from the first stage's end: the second stage's weights; then to the end of the run
  EXPECT_THROW(dumped(r), Error);  // no next step
  real_file_system().remove_all(folder_ / "run");
  r = recipe("random", R"({source = "prose", weight = 1})");
  expect_equal(r, 2);
  expect_equal(r, 2);
}

// The comparison above would see other rows.
TEST_F(Dump, DependsOnTheMixtureAndTheSamplingMode) {
  const Recipe prose = recipe("stream", R"({source = "prose", weight = 1})");
  trained(prose, 2);
  const auto of_prose = dumped(prose);
  const auto of_verse = dumped(recipe("stream", R"({source = "verse", weight = 1})"));
  real_file_system().remove_all(folder_ / "run");
  const auto of_stream = dumped(prose);
  const auto of_random = dumped(recipe("random", R"({source = "prose", weight = 1})"));
  const std::string rows = "embed.embedding#0.y";
  ASSERT_EQ(of_prose.count(rows), 1u);
  EXPECT_NE(of_prose.at(rows), of_verse.at(rows));
  EXPECT_NE(of_stream.at(rows), of_random.at(rows));
}

}  // namespace ingot::test::dump_test
