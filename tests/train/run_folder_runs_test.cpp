// A run is a folder: moved, copied, or without the data it was made from, its model works and it resumes to
// the bits of the run that stayed; what cannot work is refused by name.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "comm/threads.h"
#include "report/metrics.h"
#include "report/run_paths.h"
#include "report/run_record.h"
#include "support/support.h"
#include "support/tiny_run.h"
#include "train/resume_check.h"
#include "train/trainer.h"

namespace ingot::test::run_folder_runs_test {

namespace stdfs = std::filesystem;

/// `ingot ARGUMENTS` from a folder.
ProcessResult ingot_in(const std::string& folder, const std::string& arguments) {
  return run_process({"/bin/bash", "-c", "cd '" + folder + "' && '" INGOT_BINARY "' " + arguments});
}

void expect_fails(const ProcessResult& r, const std::vector<std::string>& parts) {
  EXPECT_EQ(r.exit_code, 1) << r.output;
  for (const std::string& part : parts)
    EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
}

void expect_says(const ProcessResult& r, const std::string& part) {
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
}

/// A project with a finished run whose paths are relative: text.txt, recipe.toml, data/words, runs/first.
class RunFolder : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    finished_ = std::make_unique<TempDir>();
    write_text(*finished_ / "text.txt", tiny_text(4000));
    std::string recipe = tiny_recipe("runs/first", "data", "text.txt");
    const std::string every = "every = 4\n";
    write_text(*finished_ / "recipe.toml",
               recipe.insert(recipe.find(every) + every.size(), "keep_last = 0\n"));
    const ProcessResult r = ingot_in(finished_->path(), "run recipe.toml");
    ASSERT_EQ(r.exit_code, 0) << r.output;
  }
  static void TearDownTestSuite() { finished_.reset(); }

  void SetUp() override { stdfs::copy(finished_->path(), project(), stdfs::copy_options::recursive); }
  std::string project() const { return dir_ / "project"; }
  std::string in_project(const std::string& name) const { return project() + "/" + name; }
  static std::string finished_run() { return *finished_ / "runs/first"; }
  /// Takes a run back to its checkpoint at step 12 of 24.
  static void take_back(const std::string& run) {
    for (const int step : {14, 16, 20, 24})
      stdfs::remove_all(fmt::format("{}/checkpoints/step-{:08}", run, step));
    ASSERT_TRUE(stdfs::exists(run + "/checkpoints/step-00000012"));
  }
  TempDir dir_;
  static inline std::unique_ptr<TempDir> finished_;
};

TEST_F(RunFolder, CopiedAwayWithoutDataAndTextTheModelWorks) {
  const std::string run = dir_ / "elsewhere/x";
  stdfs::create_directories(dir_ / "elsewhere");
  stdfs::rename(in_project("runs/first"), run);
  stdfs::remove_all(project());
  write_text(dir_ / "some.txt", "the river runs under a stone bridge.");
  for (const std::string& command :
       {"generate '" + run + "' --prompt 'the ' --max-tokens 4",
        "generate --run '" + run + "' --prompt 'the '", "generate '" + run + "/checkpoints' --prompt 'the '",
        "generate '" + run + "/checkpoints/step-00000012/' --prompt 'the '",
        "chat '" + run + "' --max-tokens 4 <<<'the sea'", "eval '" + run + "'",
        "eval '" + run + "' --text '" + (dir_ / "some.txt") + "'",
        "eval '" + run + "/checkpoints/step-00000012'", "export '" + run + "' '" + (dir_ / "hf") + "'",
        "tokenizer info '" + run + "'", "tokenizer encode '" + run + "' 'the sea'",
        "checkpoint verify '" + run + "'", "checkpoint show '" + run + "'",
        "average '" + run + "' --last 2 -o '" + (dir_ / "mean") + "'", "report '" + run + "'",
        "run '" + run + "' --plan"}) {
    const ProcessResult r = ingot_in("/", command);
    EXPECT_EQ(r.exit_code, 0) << command << "\n" << r.output;
  }
  const ProcessResult before = ingot_in(finished_->path(), "eval runs/first"),
                      after = ingot_in("/", "eval " + run);
  EXPECT_EQ(before.output, after.output);
}

TEST_F(RunFolder, MovedItResumesToTheSameBitsWithoutText) {
  const std::string moved = in_project("runs/moved");
  stdfs::rename(in_project("runs/first"), moved);
  stdfs::remove(in_project("text.txt"));
  take_back(moved);
  const ProcessResult r = ingot_in("/", "run '" + moved + "/'");
  expect_says(r, "was recorded in 'runs/first'");
  EXPECT_EQ(difference(finished_run(), moved), "") << r.output;
  EXPECT_FALSE(stdfs::exists(in_project("runs/first")));
}

/// Routers of bf16 runs rounded to bf16 before there was a key for it; its default is f32.
TEST_F(RunFolder, AnOlderRunInBf16ResumesWithItsRouters) {
  const std::string old = in_project("runs/old");
  const ProcessResult first = ingot_in(
      project(),
      "run recipe.toml --run.folder=runs/old --run.precision=bf16 --model.moe.router_precision=bf16");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  stdfs::copy(old, in_project("runs/undisturbed"), stdfs::copy_options::recursive);
  take_back(old);
  std::string config = read_text(old + "/config.toml");
  const size_t at = config.find("router_precision = \"bf16\"");
  ASSERT_NE(at, std::string::npos);
  write_text(old + "/config.toml", config.erase(at, config.find('\n', at) - at));
  const ProcessResult r = ingot_in(project(), "run runs/old");
  expect_says(r, "resuming at step 12 of 24");
  EXPECT_EQ(difference(in_project("runs/undisturbed"), old), "") << r.output;
  // What the checkpoint itself recorded is read alike.
  const Recipe then = recipe_from_toml(config, "config.toml");
  EXPECT_EQ(then.model.moe.router_precision, RouterPrecision::bf16);
  const Recipe f32 = recipe_from_toml(read_text(finished_run() + "/config.toml"), "config.toml");
  EXPECT_EQ(f32.model.moe.router_precision, RouterPrecision::f32);
}

TEST_F(RunFolder, AConfigInAMovedRunMeansThatRun) {
  stdfs::rename(in_project("runs/first"), in_project("runs/moved"));
  take_back(in_project("runs/moved"));
  const ProcessResult r = ingot_in(project(), "run runs/moved/config.toml");
  expect_says(r, "resuming at step 12 of 24");
  EXPECT_EQ(difference(finished_run(), in_project("runs/moved")), "") << r.output;
  EXPECT_FALSE(stdfs::exists(in_project("runs/first")));
  const ProcessResult other =
      ingot_in(project(), "run runs/moved/config.toml --run.folder=runs/other --plan");
  EXPECT_EQ(other.exit_code, 0) << other.output;
}

TEST_F(RunFolder, MovedWithEverythingAroundIt) {
  take_back(in_project("runs/first"));
  stdfs::rename(project(), dir_ / "renamed");
  for (const auto& [from, name] : {std::pair<std::string, std::string>{dir_.path(), "renamed/runs/first"},
                                   {dir_ / "renamed/runs/first", "."}}) {
    const ProcessResult r = ingot_in(from, "run " + name);
    EXPECT_EQ(r.exit_code, 0) << r.output;
    EXPECT_EQ(difference(finished_run(), dir_ / "renamed/runs/first"), "") << r.output;
    EXPECT_FALSE(stdfs::exists(dir_ / "runs")) << "started somewhere else";
  }
}

TEST_F(RunFolder, PathsAreFoundWhereverTheRunLies) {
  FileSystem& fs = real_file_system();
  const std::string here = stdfs::current_path().string();
  const RunPaths same(fs, in_project("runs/first"), in_project("runs/first"), here);
  EXPECT_FALSE(same.moved());
  EXPECT_EQ(same.find("nowhere/text.txt"), "nowhere/text.txt");
  const RunPaths relative(fs, in_project("runs/first"), "runs/first", project());
  EXPECT_FALSE(relative.moved());
  EXPECT_EQ(relative.find("data"), in_project("data"));
  EXPECT_EQ(relative.find("*.txt"), in_project("*.txt"));
  const RunPaths together(fs, in_project("runs/first"), "runs/first", "/gone");
  EXPECT_EQ(together.find("data"), in_project("data"));
  EXPECT_EQ(together.find("/gone/data"), in_project("data"));
  const RunPaths alone(fs, in_project("runs/first"), "runs/other", project());
  EXPECT_TRUE(alone.moved());
  EXPECT_EQ(alone.find("data"), in_project("data"));
  EXPECT_EQ(alone.find("runs/other/tokenizer"), in_project("runs/first/tokenizer"));
  EXPECT_EQ(alone.find(""), "");
}

TEST_F(RunFolder, EveryStartIsRecordedWithWhatChanged) {
  take_back(in_project("runs/first"));
  const std::string before = read_text(in_project("runs/first/config.toml"));
  const ProcessResult r = run_process(
      {"/bin/bash", "-c",
       "cd '" + project() + "' && INGOT_THREADS=1 '" INGOT_BINARY "' run runs/first --phases.1.lr=1e-3"},
      {"SLURM_JOB_ID=77", "SECRET_TOKEN=x"});
  expect_says(r, "phases.1.lr was 0.005 and is now 0.001");
  const RunRecord record = read_run_record(real_file_system(), in_project("runs/first"));
  ASSERT_EQ(record.starts().size(), 2u);
  const RunRecord::Start &first = record.starts()[0], &second = record.starts()[1];
  const auto text = [](const RunRecord::Start& s, const char* name) {
    return s.find(name) != nullptr ? value_text(*s.find(name)) : "absent";
  };
  for (const char* fact : {"time", "program", "commit", "command", "kernels", "instruction set", "threads"}) {
    EXPECT_NE(text(first, fact), "absent") << fact;
    EXPECT_NE(text(second, fact), "absent") << fact;
  }
  EXPECT_EQ(text(first, "first step"), "1");
  EXPECT_EQ(text(second, "first step"), "13");
  EXPECT_EQ(text(second, "threads"), "1");
  EXPECT_EQ(text(second, "working folder"), project());
  EXPECT_TRUE(first.changes.empty());
  ASSERT_EQ(second.changes.size(), 1u);
  EXPECT_EQ(second.changes[0].path + " " + second.changes[0].left + " " + second.changes[0].right,
            "phases.1.lr 0.005 0.001");
  EXPECT_EQ(text(first, "recipe"), "config.1.toml");
  EXPECT_EQ(read_text(in_project("runs/first/config.1.toml")), before);
  bool job = false;
  for (const auto& [name, value] : second.environment) {
    job |= name == "SLURM_JOB_ID" && value == "77";
    EXPECT_NE(name, "SECRET_TOKEN");
  }
  EXPECT_TRUE(job);
  const std::string page = read_text(in_project("runs/first/report.html"));
  EXPECT_NE(page.find("phases.1.lr 0.005 -&gt; 0.001"), std::string::npos) << "what the start changed";
  EXPECT_NE(page.find("run runs/first --phases.1.lr=1e-3"), std::string::npos) << "its command";
  const ProcessResult diff = ingot_in(project(), "diff runs/first '" + finished_run() + "'");
  expect_says(diff, "start 2 at step 13");
  expect_says(diff, "phases.1.lr");
}

TEST_F(RunFolder, AnotherKernelSetIsAcceptedWhenAsked) {
  const std::string run = in_project("runs/first");
  take_back(run);
  // The checkpoint of a release with another kernel set: its manifest with another fingerprint and checksum.
  const std::string manifest = run + "/checkpoints/step-00000012/manifest.json";
  Manifest m = parse_manifest(read_text(manifest), manifest);
  std::string& trainer = m.blobs.at("trainer");
  const size_t at = trainer.find("\"kernels\":\"") + 11;
  trainer[at] = trainer[at] == '0' ? '1' : '0';
  write_text(manifest, encode_manifest(m));
  expect_fails(ingot_in(project(), "run runs/first"), {"kernel set", "--accept-kernels"});
  const ProcessResult r = ingot_in(project(), "run runs/first --accept-kernels");
  expect_says(r, "accepted");
  EXPECT_EQ(difference(finished_run(), run), "");  // the kernels are the same in truth
  const RunRecord record = read_run_record(real_file_system(), run);
  EXPECT_NE(record.starts().back().find("accepted kernels of the checkpoint"), nullptr);
}

TEST_F(RunFolder, HalfACopyIsUnderstoodOrRefused) {
  const std::string run = in_project("runs/first");
  take_back(run);
  stdfs::remove(run + "/config.toml");
  const ProcessResult r = ingot_in(project(), "run runs/first");
  expect_says(r, "taking the recipe of");
  EXPECT_EQ(difference(finished_run(), run), "") << r.output;

  const std::string cut = in_project("runs/cut");
  stdfs::copy(finished_run(), cut, stdfs::copy_options::recursive);
  for (const auto& entry : stdfs::directory_iterator(cut + "/checkpoints"))
    if (entry.is_directory() && !entry.is_symlink())
      stdfs::remove(entry.path() / "weights-00001.safetensors");
  expect_fails(ingot_in(project(), "run runs/cut"), {"holds checkpoints", "overwrite"});
  expect_fails(ingot_in(project(), "generate runs/cut"),
               {"none of the checkpoints in 'runs/cut/checkpoints'"});
  stdfs::remove_all(cut + "/checkpoints");
  expect_fails(ingot_in(project(), "run runs/cut"), {"metrics up to step 24", "first was due at step 4"});
  expect_fails(ingot_in(project(), "generate runs/cut"), {"no checkpoint yet", "step 4"});
  EXPECT_EQ(losses(cut), losses(finished_run())) << "metrics were lost";
}

// A run may begin at a later step (a branch), and may have failed to save: only without the folder of
// checkpoints is it part of a copy.
TEST_F(RunFolder, WhatStartsAgainIsNoPartOfACopy) {
  FileSystem& fs = real_file_system();
  Recipe recipe;
  recipe.run.folder = dir_ / "branch";
  recipe.phases.front().steps = 200;
  recipe.checkpoint.every = 50;
  EXPECT_NO_THROW(require_new_run(fs, recipe));
  fs.create_folders(recipe.run.folder);
  MetricsWriter metrics(fs, recipe.run.folder + "/" + run_files::kMetrics, 100);
  const auto come_to = [&](int64_t step) {
    MetricRow row;
    row.step = step;
    metrics.write(row);
    metrics.sync();
  };
  come_to(101);
  come_to(150);
  EXPECT_NO_THROW(require_new_run(fs, recipe));
  come_to(151);
  try {
    require_new_run(fs, recipe);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("first was due at step 150"), std::string::npos) << e.what();
  }
  fs.create_folders(recipe.run.folder + "/" + run_files::kCheckpoints);
  EXPECT_NO_THROW(require_new_run(fs, recipe));
}

TEST_F(RunFolder, ANewerProgramsRunIsRefused) {
  const std::string record = in_project("runs/first/run.json");
  std::string text = read_text(record);
  const std::string format = fmt::format("\"format\": {}", kRecordFormat);
  ASSERT_NE(text.find(format), text.npos);
  write_text(record, text.replace(text.find(format), format.size(), "\"format\": 1000"));
  for (const char* command :
       {"run runs/first", "run runs/first/config.toml", "generate runs/first", "report runs/first"})
    expect_fails(ingot_in(project(), command), {"format 1000", "use that version"});
}

TEST_F(RunFolder, TheRecipeOfAnotherRunInItsFolderIsRefused) {
  std::string recipe = read_text(in_project("recipe.toml"));
  const std::string folder = "runs/first";
  write_text(in_project("runs/first/next.toml"),
             recipe.replace(recipe.find(folder), folder.size(), "runs/next"));
  expect_fails(ingot_in(project(), "run runs/first/next.toml"),
               {"is the recipe of the run 'runs/next'", "lies in the folder of the run 'runs/first'",
                "--run.folder=runs/next"});
  expect_says(ingot_in(project(), "run runs/first/next.toml --run.folder=runs/next --plan"), "parameters");
  EXPECT_EQ(losses(in_project("runs/first")), losses(finished_run()));
}

TEST_F(RunFolder, AFolderThatCannotBeWrittenIsReadAllTheSame) {
  const std::string run = in_project("runs/first");
  // Root may write everywhere, so the folder is made immutable by a read-only mount of its own, where that is
  // allowed; else by its permissions.
  const auto read_only = [&](const std::string& command) {
    return run_process({"/bin/bash", "-c",
                        "if [ $(id -u) = 0 ]; then unshare -m bash -c 'mount --bind " + project() + " " +
                            project() + " && mount -o remount,bind,ro " + project() + " && cd " + project() +
                            " && \"" INGOT_BINARY "\" " + command + "' || exit; else chmod -R a-w " +
                            project() + " && cd " + project() + " && '" INGOT_BINARY "' " + command +
                            "; code=$?; chmod -R u+w " + project() + "; exit $code; fi"});
  };
  if (run_process({"/usr/bin/unshare", "-m", "/bin/true"}).exit_code != 0) GTEST_SKIP() << "no mounts here";
  for (const char* command :
       {"generate runs/first --prompt \"the \"", "eval runs/first", "tokenizer info runs/first",
        "checkpoint verify runs/first", "diff runs/first runs/first"}) {
    const ProcessResult r = read_only(command);
    EXPECT_EQ(r.exit_code, 0) << command << "\n" << r.output;
  }
  take_back(run);
  expect_fails(read_only("run runs/first"), {"Read-only file system"});
  EXPECT_EQ(read_only("report runs/first --out " + (dir_ / "page.html")).exit_code, 0);
}

TEST_F(RunFolder, AStartOfSeveralRanksIsOneEntry) {
  const Quiet quiet;
  write_text(dir_ / "two.toml", tiny_recipe(dir_ / "two", in_project("data"), in_project("text.txt")));
  const Recipe recipe = load_recipe(dir_ / "two.toml", {"--checkpoint.keep_last=0", "--phases.0.batch=4",
                                                        "--phases.0.micro_batch=1", "--phases.1.batch=4"});
  const auto train = [&] {
    run_ranks(2, [&](ThreadRank& self) {
      set_kernel_policy(KernelPolicy::any);
      Trainer(real_file_system(), recipe, StartMode::resume_or_start, &self).run();
    });
  };
  train();
  take_back(dir_ / "two");
  train();
  const RunRecord record = read_run_record(real_file_system(), dir_ / "two");
  ASSERT_EQ(record.starts().size(), 2u);
  EXPECT_EQ(record.starts()[0].text("ranks"), "2");
  EXPECT_NE(record.starts()[0].text("layout"), "unknown");
  EXPECT_EQ(record.starts()[1].text("first step"), "13");
  EXPECT_EQ(start_changes(record)[1], "");
  EXPECT_FALSE(record.starts()[0].predictions.empty());
}

TEST_F(RunFolder, ARunSaysWhatWasPredictedAndMeasured) {
  const ProcessResult r =
      ingot_in(project(), "run recipe.toml --run.folder=runs/short --phases.0.steps=4 --phases.1.steps=2");
  expect_says(r, "activations at their peak: ");
  const size_t line = r.output.find("\nmemory: ");
  ASSERT_NE(line, std::string::npos) << r.output;
  const RunRecord record = read_run_record(real_file_system(), in_project("runs/short"));
  std::map<Predicted, Prediction> found;
  for (const Prediction& p : record.starts().at(0).predictions) found[p.what] = p;
  const Prediction &memory = found.at(Predicted::memory), &step = found.at(Predicted::step),
                   &checkpoint = found.at(Predicted::checkpoint);
  EXPECT_GT(memory.predicted.value(), 0);
  // A model this small may need less than the preparation of its data, and then nobody knows its peak.
  EXPECT_NE(memory.measured.has_value(), memory.missing.find("data were prepared") != std::string::npos);
  EXPECT_NE(memory.largest, "");
  EXPECT_GT(step.measured.value(), 0);
  EXPECT_GT(step.predicted.value(), 0) << step.missing;
  // The prediction counts all of the optimizer's state, a hundredth more than is saved here.
  EXPECT_NEAR(checkpoint.ratio().value_or(0), 1, 0.02)
      << *checkpoint.predicted << " " << *checkpoint.measured;
  EXPECT_GT(found.at(Predicted::pause).measured.value(), 0);
  EXPECT_GT(found.at(Predicted::write).measured.value(), 0);
  EXPECT_FALSE(found.at(Predicted::write).predicted);
  EXPECT_NE(read_text(in_project("runs/short/report.html")).find("Predicted and measured"),
            std::string::npos);
}

TEST_F(RunFolder, APlanHasItsNumbersAsJson) {
  const ProcessResult r = run_process(
      {"/bin/bash", "-c",
       "cd '" + project() + "' && INGOT_LOG=error '" INGOT_BINARY "' run recipe.toml --plan --json"});
  const auto plan = nlohmann::json::parse(r.output);
  ASSERT_EQ(plan.at("phases").size(), 2u);
  EXPECT_EQ(plan["phases"][0]["name"], "first");
  EXPECT_EQ(plan["phases"][0]["levels"][0]["steps"], 14);
  EXPECT_TRUE(plan.at("fits").get<bool>());
  EXPECT_GT(plan.at("last_validation_seconds").get<double>(), 0);
  int64_t parts = 0;
  for (const auto& [name, bytes] : plan["phases"][0]["levels"][0]["activation_bytes_at_peak"].items())
    parts += bytes.get<int64_t>();
  EXPECT_EQ(parts, plan["phases"][0]["levels"][0]["activation_peak_bytes"]);
  // The copy for a checkpoint is the masters and the optimizer state of this rank; its files hold no more.
  uintmax_t files = 0;
  for (const auto& f : stdfs::directory_iterator(in_project("runs/first/checkpoints/step-00000024")))
    if (f.path().extension() == ".safetensors") files += f.file_size();
  const double predicted = plan.at("checkpoint_bytes").get<double>();
  EXPECT_GE(static_cast<double>(files), predicted);
  EXPECT_LT(static_cast<double>(files), 1.3 * predicted) << "the headers of files this small";
  expect_says(ingot_in(project(), "run recipe.toml --plan --json=plan.json"), "lower bound");
  expect_says(ingot_in(project(), "run recipe.toml --plan --phases.{0,1}.steps=1 --phases.{0,1}.warmup=0"),
              "for the validation at the end, which takes all tokens held out");
  EXPECT_EQ(nlohmann::json::parse(read_text(in_project("plan.json"))).at("tokens"), plan.at("tokens"));
  EXPECT_EQ(ingot_in(project(), "run recipe.toml --json").exit_code, 2) << "only a plan is numbers";
}

TEST_F(RunFolder, WhatIsNoRunIsNamed) {
  stdfs::create_directories(in_project("empty"));
  expect_fails(ingot_in(project(), "run empty"), {"'empty' is a folder without a run", "config.toml"});
  expect_fails(ingot_in(project(), "run nowhere"), {"nowhere"});
  expect_fails(ingot_in(project(), "run runs/first --fresh"), {"already holds a run"});
}

}  // namespace ingot::test::run_folder_runs_test
