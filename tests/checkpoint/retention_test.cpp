// checkpoint/: what is kept and deleted, whether a checkpoint fits a model.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "support/checkpoint_sample.h"
#include "support/fault_fs.h"
#include "support/support.h"

namespace ingot::retention_test {

using test::FaultFs;
using test::FileOp;
using test::kFolder;
using test::message_of;
using test::Quiet;
using test::sample_state;
using test::SampleState;
using test::save_now;
using test::TempDir;

TEST(Retention, KeepsLastPeriodicAndProtected) {
  FaultFs fs;
  for (int64_t step = 10; step <= 100; step += 10) {
    SampleState state = sample_state(step);
    if (step == 30) state.request.protection = "end of phase 'pretrain'";
    save_now(fs, state.request, {.retention = {.keep_last = 2, .keep_every = 40}});
  }
  EXPECT_EQ(fs.list(kFolder), (std::vector<std::string>{"latest", "step-00000030", "step-00000040",
                                                        "step-00000080", "step-00000090", "step-00000100"}));
}

TEST(Retention, DamagedOnesNeitherCountNorGo) {
  const Quiet quiet;
  FaultFs fs;
  for (const int64_t step : {1, 2, 3}) save_now(fs, sample_state(step).request);
  fs.truncate(kFolder + "/step-00000003/manifest.json", 10);
  fs.remove_all(kFolder + "/step-00000002/weights-00001.safetensors");
  EXPECT_EQ(apply_retention(fs, kFolder, {.keep_last = 1}), std::vector<std::string>{});
  EXPECT_EQ(CheckpointReader::open(fs, kFolder).step(), 1);
}

TEST(Retention, AFailedDeletionIsNotFatal) {
  const Quiet quiet;
  FaultFs fs;
  save_now(fs, sample_state(1).request);
  fs.fail_call(FileOp::rename, 2, "Permission denied");  // after those of the folder and of `latest`
  save_now(fs, sample_state(2).request, {.retention = {.keep_last = 1}});
  EXPECT_TRUE(fs.exists(kFolder + "/step-00000001"));
  save_now(fs, sample_state(3).request, {.retention = {.keep_last = 1}});
  EXPECT_EQ(fs.list(kFolder), (std::vector<std::string>{"latest", "step-00000003"}));
}

TEST(Retention, KeepsTheLastFromBeforeASpike) {
  FaultFs fs;
  for (int64_t step = 10; step <= 60; step += 10) {
    SampleState state = sample_state(step);
    state.request.keep_before = step >= 40 ? 35 : 0;  // a spike began at step 35
    save_now(fs, state.request, {.retention = {.keep_last = 1}});
  }
  EXPECT_EQ(fs.list(kFolder), (std::vector<std::string>{"latest", "step-00000030", "step-00000060"}));
  save_now(fs, sample_state(70).request, {.retention = {.keep_last = 1}});
  EXPECT_EQ(fs.list(kFolder), (std::vector<std::string>{"latest", "step-00000070"}));
}

TEST(Retention, AnUnreadableManifestNeitherStopsNorOutranks) {
  const Quiet quiet;
  const TempDir folder;
  const auto save = [&](int64_t step) {
    CheckpointWriter writer(real_file_system(), folder.path(), {});
    writer.save(sample_state(step).request);
    writer.wait();
  };
  const auto manifest = [&](int64_t step) { return folder / fmt::format("step-{:08}/manifest.json", step); };
  for (const int64_t step : {1, 2, 3}) save(step);
  std::filesystem::rename(manifest(3), folder / "kept");
  std::filesystem::create_directory(manifest(3));  // reading it is an error of the system
  save(4);
  EXPECT_EQ(CheckpointReader::open_newest(real_file_system(), folder.path())->step(), 4);
  std::filesystem::remove(manifest(3));
  std::filesystem::rename(folder / "kept", manifest(3));  // readable again: still older
  EXPECT_EQ(CheckpointReader::open_newest(real_file_system(), folder.path())->step(), 4);
}

TEST(Retention, TheDiskMustHoldWhatItKeeps) {
  FaultFs fs;
  CheckpointWriter writer(fs, kFolder, {.retention = {.keep_last = 2}});
  const SampleState state = sample_state(1);
  fs.set_free_bytes(1'000'000);
  writer.prepare(state.request, 100);
  fs.set_free_bytes(200'000);  // one takes some 90 kB, nearly all of it for folder and files
  EXPECT_MESSAGE(writer.prepare(state.request, 100), "3 more must lie there at once");
  writer.prepare(state.request, 1);
  writer.save(state.request);
  writer.wait();
  fs.set_free_bytes(120'000);
  EXPECT_MESSAGE(writer.prepare(state.request, 100), "2 more must lie there at once");
  fs.set_free_bytes(50'000);
  EXPECT_MESSAGE(writer.prepare(state.request, 1), "1 more must lie there at once");
  writer.prepare(state.request, 0);
}

TEST(RequireTensors, ListsEverythingAtOnceWithTheNearestName) {
  FaultFs fs;
  save_now(fs, sample_state(1).request);
  const CheckpointReader reader = CheckpointReader::open(fs, kFolder);
  require_tensors(reader, {{"embed.weight", {37, 8}}, {"layers.0.norm", {19}}, {"temperature", {}}},
                  {TensorKind::weight});
  const std::string message = message_of([&] {
    require_tensors(reader, {{"embed.weight", {38, 8}}, {"layer.0.norm", {19}}, {"head", {2}}},
                    {TensorKind::weight});
  });
  for (const char* part : {"2 missing", "'layer.0.norm' [19] (the checkpoint has 'layers.0.norm')",
                           "'head' [2]", "2 in the checkpoint, unknown", "'temperature' []",
                           "'embed.weight': expected [38, 8], found [37, 8]"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

}  // namespace ingot::retention_test
