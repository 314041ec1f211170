// `ingot checkpoint reshape`: other pieces, the same values; a run resumes from them as from the original,
// bit for bit.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "checkpoint/reader.h"
#include "comm/threads.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/reshape.h"
#include "train/trainer.h"

namespace ingot::test::reshape_ranks_test {

namespace fs = std::filesystem;

struct NewLayout {
  const char* name;
  int ranks;
  std::vector<std::string> options;
};

class Reshape : public ::testing::Test {
 protected:
  void SetUp() override { write_text(folder_ / "text.txt", tiny_text(4000)); }

  Recipe recipe(const std::string& run, std::vector<std::string> options) {
    const std::string path = folder_ / (run + ".toml");
    write_text(path, tiny_recipe(folder_ / run, folder_ / "data", folder_ / "text.txt"));
    options.insert(options.end(), {"--phases.1.batch=8", "--phases.0.batch=8", "--phases.0.micro_batch=1",
                                   "--phases.1.micro_batch=1", "--model.mtp.depths=1"});
    return load_recipe(path, options);
  }
  /// Trains to the end of the first stage, or on from there to the end.
  void run(const std::string& name, int ranks, std::vector<std::string> options, bool first_stage) {
    if (first_stage) options.push_back("--checkpoint.keep_last=1");
    const Recipe r = recipe(name, std::move(options));
    run_ranks(ranks, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer trainer(real_file_system(), r, StartMode::resume_or_start, &self);
      Stop stop(first_stage ? static_cast<int>(r.phases[0].steps) : -1);
      if (trainer.leads()) trainer.observe(&stop);
      trainer.run();
    });
  }

  class Stop final : public RunObserver {
   public:
    explicit Stop(int steps) : left_(steps) {}
    void enters(StepPart phase) override {
      if (phase == StepPart::data && --left_ == 0) Trainer::interrupt();
    }
    void tensor(const std::string&, const Tensor&) override {}

   private:
    int left_;
  };

  TempDir folder_;
  const Quiet quiet_;
};

TEST_F(Reshape, OtherPiecesTheSameValuesAndTheSameRun) {
  run("run", 2, {"--parallel.expert=2", "--parallel.shard=optimizer"}, true);
  const auto content = checkpoint_content(folder_ / "run");
  for (const NewLayout& to :
       {NewLayout{"one", 1, {}},
        {"full4", 4, {"--parallel.shard=full"}},
        {"ep2_dp4", 4, {"--parallel.expert=2"}},
        {"tp2", 2, {"--parallel.tensor=2"}},
        {"pp2_dp2", 4, {"--parallel.pipeline=2"}},
        {"pp2_full2", 4, {"--parallel.pipeline=2", "--parallel.shard=full"}},
        {"pp2_ahead",
         2,
         {"--parallel.pipeline=2", "--parallel.schedule=interleaved", "--parallel.layout=E|tt|m|L"}}}) {
    const Recipe layout = recipe("layout", to.options);
    const std::string reshaped = to.name + std::string("_reshaped"),
                      direct = to.name + std::string("_direct");
    for (const std::string& name : {reshaped, direct})
      fs::copy(folder_ / "run", folder_ / name, fs::copy_options::recursive);
    fs::remove_all(folder_ / (reshaped + "/checkpoints"));
    const ReshapeReport r =
        reshape_checkpoint(real_file_system(), folder_ / "run/checkpoints",
                           folder_ / (reshaped + "/checkpoints"), to.ranks, layout.parallel);
    auto copy = checkpoint_content(folder_ / reshaped), original = content;
    copy.erase("recipe"), original.erase("recipe");
    EXPECT_EQ(copy, original) << to.name;
    std::set<std::string> owners;
    const CheckpointReader reader = CheckpointReader::open(real_file_system(), r.path);
    for (const auto& [file, stored] : reader.manifest().files)
      owners.insert(to.ranks > 1 ? file.substr(0, 8) : "alone");
    EXPECT_EQ(owners.size(), static_cast<size_t>(to.ranks));
    EXPECT_LT(r.largest_share, to.ranks > 1 ? r.bytes * 3 / 4 : r.bytes + 1) << to.name;
    run(reshaped, to.ranks, to.options, false);
    run(direct, to.ranks, to.options, false);
    EXPECT_EQ(difference(folder_ / reshaped, folder_ / direct), "") << to.name;
  }
}

TEST_F(Reshape, WhatDoesNotFitIsRefusedAndLeavesNothing) {
  run("run", 1, {}, true);
  const auto message = [&](int ranks, std::vector<std::string> options) {
    try {
      reshape_checkpoint(real_file_system(), folder_ / "run/checkpoints", folder_ / "out", ranks,
                         recipe("layout", std::move(options)).parallel);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(
      message(3, {"--parallel.tensor=2"}).find("3 ranks do not divide into groups of parallel.tensor = 2"),
      std::string::npos);
  EXPECT_NE(message(64, {"--parallel.pipeline=64"}).find("64"), std::string::npos);
  EXPECT_NE(message(8, {"--parallel.tensor=8"}), "accepted");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

}  // namespace ingot::test::reshape_ranks_test
