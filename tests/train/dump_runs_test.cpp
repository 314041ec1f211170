// `ingot debug dump` shows what the trainer does: the same rows (the phase's mixture, sampling mode, position
// in the order) and so the same tensors, at the start of a run and after a checkpoint.
#include <gtest/gtest.h>

#include "support/first_step.h"
#include "support/tiny_run.h"
#include "train/dump.h"

namespace ingot::test::dump_runs_test {

/// Every word a document, which fits into every row.
std::string short_documents(uint64_t seed) {
  std::string text;
  for (const char c : tiny_text(1500, seed)) text += c == ' ' || c == '\n' ? "\n\n" : std::string(1, c);
  return text;
}

class Dump : public FirstStepTest {
 protected:
  Dump() {
    write_text(folder_ / "verse.txt", short_documents(1));
    write_text(folder_ / "prose.txt", short_documents(2));
  }

  /// Two phases of two steps; the second has a mixture of its own.
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
  void expect_equal(const Recipe& r, int64_t steps) const { expect_the_runs_step(r, steps, "dump"); }
};

TEST_F(Dump, IsTheTrainersStep) {
  Recipe r = recipe("stream", R"({source = "prose", weight = 1})");
  expect_equal(r, 1);  // step 0, the sources' own weights
  expect_equal(r, 1);  // step 1, from a checkpoint within the phase
  // Step 2, from the end of the first phase with the weights of the second, then to the end of the run.
  expect_equal(r, 2);
  EXPECT_THROW(dumped(r), Error);  // there is no next step
  real_file_system().remove_all(folder_ / "run");
  r = recipe("random", R"({source = "prose", weight = 1})");
  expect_equal(r, 2);
  expect_equal(r, 2);
}

// The comparison above detects other rows.
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

}  // namespace ingot::test::dump_runs_test
