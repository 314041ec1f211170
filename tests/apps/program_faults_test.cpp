// Bad input to the program: exit code 1 (never a crash, never 2, the code of internal errors), a message that
// names the cause, and nothing lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "base/folder_lock.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::program_faults_test {

namespace fs = std::filesystem;

using Arguments = std::vector<std::string>;

ProcessResult ingot(const Arguments& arguments) {
  Arguments command{INGOT_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command);
}

/// The program must refuse: exit code 1 and a message with all of these.
void refuses(const Arguments& arguments, const Arguments& parts) {
  const ProcessResult r = ingot(arguments);
  EXPECT_EQ(r.exit_code, 1) << "signal " << r.signal << "\n" << r.output.substr(0, 300);
  EXPECT_NE(r.output.find("error: "), std::string::npos) << r.output;
  for (const std::string& part : parts)
    EXPECT_NE(r.output.find(part), std::string::npos) << "'" << part << "' is not in:\n" << r.output;
}

class Program : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempDir>();
    write_text(*folder_ / "text.txt", tiny_text(3000));
    write_text(*folder_ / "recipe.toml",
               tiny_recipe(*folder_ / "run", *folder_ / "data", *folder_ / "text.txt"));
    const ProcessResult r = ingot({"run", *folder_ / "recipe.toml", "--kernels=any"});
    ASSERT_EQ(r.exit_code, 0) << r.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string at(const std::string& name) { return *folder_ / name; }
  /// Arguments of a run of the recipe with additional overrides; `run` names another run folder.
  static Arguments run(Arguments more, const std::string& run = "other") {
    Arguments all{"run", at("recipe.toml"), "--kernels=any", "--run.folder=" + at(run)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// A copy of the finished run, to be damaged; its newest checkpoint.
  static std::string copy_of_run(const std::string& name) {
    fs::remove_all(at(name));
    fs::copy(at("run"), at(name), fs::copy_options::recursive);
    return newest(name);
  }
  static std::string newest(const std::string& name) {
    return CheckpointReader::open(real_file_system(), at(name) + "/checkpoints").path();
  }
  /// All but what a start says of itself, even one that is refused.
  static std::map<std::string, std::string> files_of(const std::string& name) {
    const std::set<std::string> said = {"run.lock", "failure.json"};
    std::map<std::string, std::string> files;
    for (const auto& f : fs::recursive_directory_iterator(at(name)))
      if (f.is_regular_file() && !said.contains(f.path().filename()) &&
          f.path().parent_path().filename() != "status")
        files[f.path()] = read_text(f.path());
    return files;
  }
  static inline std::unique_ptr<TempDir> folder_;
};

void flip(const std::string& path, size_t at) {
  std::string text = read_text(path);
  text.at(at) = static_cast<char>(text.at(at) ^ 1);
  write_text(path, text);
}

TEST_F(Program, MistypedSettings) {
  refuses(run({"--model.widht=32"}), {"widht", "width"});
  refuses(run({"--phase.0.lr=1"}), {"phase", "phases"});
  refuses(run({"--run.precision=fp16"}), {"run.precision", "fp16", "bf16"});
  refuses(run({"--model.preset=zaya-tny"}), {"zaya-tny", "zaya-tiny"});
  refuses(run({"--memory.recompute=[\"activatoin\"]"}), {"activatoin", "activation"});
  refuses(run({"--memory.fp8=[\"mlp/activatoin\"]"}), {"memory.fp8", "activatoin", "activation"});
  refuses(run({"--model.width=abc"}), {"model.width", "abc"});
  refuses({"run", at("recipe.toml"), "--kernels=fastest"}, {"fastest", "strict"});
  refuses({"run", at("absent.toml")}, {"absent.toml"});
  refuses({"run", folder_->path()}, {folder_->path()});
  refuses({"model", "gpt3"}, {"gpt3", "gpt2"});
  write_text(at("broken.toml"), "[run]\nfolder = \n");
  refuses({"run", at("broken.toml")}, {"broken.toml", "2"});
  write_text(at("typo.toml"), "[optimizer]\nclipp = 1\n");
  refuses({"run", at("typo.toml")}, {"clipp", "clip"});
}

TEST_F(Program, ContradictorySettings) {
  refuses(run({"--phases.0.batch=5"}), {"phases.0.micro_batch", "5", "2", "1 would be left over"});
  refuses(run({"--phases.1.sequence=65"}), {"phases.1.sequence", "65", "64"});
  refuses(run({"--model.heads=3"}), {"heads", "3"});
  refuses(run({"--model.moe.top_k=9"}), {"top_k", "9", "4"});
  refuses(run({"--model.vocab=5"}), {"model.vocab", "5"});
  refuses(run({"--phases.0.lr=-1"}), {"phases.0.lr", "-1"});
  refuses(run({"--phases.0.warmup=100"}), {"phases.0.schedule", "warm-up", "100", "14"});
  refuses(run({"--phases.0.steps=0"}), {"phases.0.steps"});
  refuses(run({"--phases.0.batch=1048576", "--phases.0.micro_batch=1048576"}), {"GiB", "micro_batch"});
  refuses(run({"--samples.prompts=[\"#\"]"}), {"samples.prompts", "#"});
}

TEST_F(Program, TextThatIsNotThere) {
  write_text(at("empty.txt"), "");
  write_text(at("blank.txt"), "\n\n\n\n");
  for (const char* file : {"empty.txt", "blank.txt", "absent.txt"})
    refuses(run({"--data.sources.0.path=" + at(file), "--data.folder=" + at(std::string("data-") + file)}),
            {file});
  write_text(at("short.txt"), "the sea and a stone");
  refuses(run({"--data.sources.0.path=" + at("short.txt"), "--data.folder=" + at("data-short")}),
          {"words", "token"});
  write_text(at("rows.jsonl"), "{\"text\": \"the sea\"}\n{\"text\": 5}\n");
  refuses(run({"--data.sources.0.path=" + at("rows.jsonl"), "--data.folder=" + at("data-rows")}),
          {"rows.jsonl", "2"});
}

TEST_F(Program, DamagedTokenShards) {
  const auto damaged = [&](const char* name, const auto& damage) {
    const std::string data = at(name);
    fs::copy(at("data"), data, fs::copy_options::recursive);
    std::string shard;
    for (const auto& f : fs::recursive_directory_iterator(data))
      if (f.path().extension() == ".tokens" && f.path().string().find("train") != std::string::npos)
        shard = f.path();
    ASSERT_NE(shard, "");
    damage(shard);
    refuses(run({"--data.folder=" + data}), {fs::path(shard).filename()});
  };
  damaged("data-cut", [](const std::string& shard) { fs::resize_file(shard, fs::file_size(shard) - 3); });
  damaged("data-gone", [](const std::string& shard) { fs::remove(shard); });
  damaged("data-flipped", [](const std::string& shard) { flip(shard, fs::file_size(shard) / 2); });
}

TEST_F(Program, AnotherTokenizer) {
  // The run's text read by another tokenizer: resuming must not mix the two, and generation must not guess.
  copy_of_run("tok");
  write_text(at("more.txt"), tiny_text(3000) + " zebra Quartz 0123456789");
  ASSERT_EQ(
      ingot(run({"--data.sources.0.path=" + at("more.txt"), "--data.folder=" + at("data-more")}, "more"))
          .exit_code,
      0);
  refuses(run({"--tokenizer.path=" + at("data-more/tokenizer"), "--data.folder=" + at("data-tok"),
               "--model.vocab=0"},
              "tok"),
          {"tokenizer"});
  refuses({"generate", "--run", at("run"), "--kernels=any", "--prompt", "the ", "--tokenizer",
           at("data-more/tokenizer")},
          {"tokenizer"});
  refuses({"generate", "--run", at("run"), "--kernels=any", "--tokenizer", at("nowhere")}, {"nowhere"});
}

TEST_F(Program, DamagedCheckpoints) {
  const struct {
    const char* what;
    std::function<void(const std::string&)> damage;
    std::string names;
  } cases[] = {{"cut", [](const std::string& c) { fs::resize_file(c + "/weights-00001.safetensors", 1000); },
                "weights-00001.safetensors"},
               {"gone", [](const std::string& c) { fs::remove(c + "/optimizer-00001.safetensors"); },
                "optimizer-00001.safetensors"},
               {"flipped",
                [](const std::string& c) {
                  flip(c + "/weights-00001.safetensors", fs::file_size(c + "/weights-00001.safetensors") - 9);
                },
                "damaged in"},
               {"manifest", [](const std::string& c) { flip(c + "/manifest.json", 300); }, "manifest.json"},
               {"no manifest", [](const std::string& c) { fs::remove(c + "/manifest.json"); }, "step-"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    copy_of_run("damaged");
    for (const auto& entry : fs::directory_iterator(at("damaged") + "/checkpoints"))
      if (entry.is_directory()) c.damage(entry.path());
    const auto before = files_of("damaged");
    refuses({"checkpoint", "verify", at("damaged") + "/checkpoints"}, {c.names, "no complete checkpoint"});
    refuses({"generate", "--run", at("damaged"), "--kernels=any"}, {c.names});
    refuses(run({}, "damaged"), {c.names, "none of them is complete"});
    EXPECT_EQ(files_of("damaged"), before) << "the program touched what it refused";
  }
  // One good checkpoint is enough for the run to resume.
  const std::string latest = copy_of_run("half");
  flip(latest + "/weights-00001.safetensors", 5000);
  const ProcessResult r = ingot(run({}, "half"));
  EXPECT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("damaged"), std::string::npos) << r.output;
  EXPECT_EQ(difference(at("run"), at("half")), "");
  refuses({"generate", "--run", at("nowhere")}, {"nowhere"});
  refuses({"report", at("nowhere")}, {"nowhere"});
  refuses({"diff", at("nowhere"), at("run")}, {"nowhere"});
}

/// Writes the newest checkpoint once more, one step later, with changes.
void rewrite(const std::string& folder,
             const std::function<void(const std::string&, std::string&)>& change_tensor,
             const std::function<void(std::map<std::string, std::string>&)>& change_blobs) {
  const CheckpointReader reader = CheckpointReader::open(real_file_system(), folder + "/checkpoints");
  std::map<std::string, std::string> memory;
  SaveRequest request;
  request.step = reader.step();
  request.blobs = reader.manifest().blobs;
  for (const auto& [name, t] : reader.tensors()) {
    std::string& bytes = memory[name];
    bytes.resize(static_cast<size_t>(t.meta.bytes()));
    const Tensor tensor(bytes.data(), t.meta.shape, t.meta.dtype);
    reader.read(name, tensor);
    change_tensor(name, bytes);
    request.pieces.push_back(Piece::whole(name, t.kind, tensor));
  }
  change_blobs(request.blobs);
  CheckpointWriter writer(real_file_system(), folder + "/checkpoints");
  writer.save(request);
  writer.wait();
}

TEST_F(Program, NanInALoadedWeight) {
  copy_of_run("nan");
  rewrite(
      at("nan"),
      [](const std::string& name, std::string& bytes) {
        const float bad = NAN;
        if (name == "layers.1.attention.out.weight") std::memcpy(bytes.data() + 8, &bad, 4);
      },
      [](auto&) {});
  refuses(run({}, "nan"), {"layers.1.attention.out.weight"});
  refuses({"generate", "--run", at("nan"), "--kernels=any"}, {"layers.1.attention.out.weight"});
}

TEST_F(Program, CheckpointOfAnotherModelOrProgram) {
  refuses(run({"--model.width=32"}, "run"), {"model.width", "16", "32"});
  refuses(run({"--run.seed=9"}, "run"), {"run.seed", "3", "9"});
  refuses(run({"--phases.0.batch=8"}, "run"), {"phases.0.batch", "4", "8"});
  refuses(run({"--fresh"}, "run"), {at("run"), "already"});
  const auto unchanged = [](const std::string&, std::string&) {};
  copy_of_run("kernels");
  rewrite(at("kernels"), unchanged, [](std::map<std::string, std::string>& blobs) {
    std::string& t = blobs["trainer"];
    const size_t from = t.find("\"kernels\":") + 11;
    t.replace(from, t.find('"', from) - from, "0123456789abcdef");
  });
  refuses(run({}, "kernels"), {"0123456789abcdef"});
  copy_of_run("state");
  rewrite(at("state"), unchanged,
          [](std::map<std::string, std::string>& blobs) { blobs["trainer"] = "{\"step\": 24}"; });
  refuses(run({}, "state"), {"trainer"});
  const std::string newer = copy_of_run("newer") + "/manifest.json";
  std::string text = read_text(newer);
  const size_t version = text.find("\"version\"");
  ASSERT_NE(version, std::string::npos);
  text.replace(text.find('1', version), 1, "9");
  const size_t line = text.find('\n'), comma = text.find(",");
  ASSERT_TRUE(comma != std::string::npos && comma < line);
  const std::string sum = hash128_hex(text.data() + comma + 1, text.size() - comma - 1);
  text.replace(text.find(": \"") + 3, 32, sum);
  write_text(newer, text);
  refuses(run({}, "newer"), {"version", "9"});
  refuses({"generate", "--run", at("newer")}, {"version", "9"});
}

TEST_F(Program, APaddedVocabularyIsNeverDrawn) {
  const ProcessResult r =
      ingot(run({"--model.vocab=512", "--samples.temperature=5", "--samples.top_p=1"}, "padded"));
  EXPECT_EQ(r.exit_code, 0) << r.output;
}

TEST_F(Program, NoPermission) {
  refuses(run({"--run.folder=/proc/no/such/run"}), {"/proc/no"});
  refuses(run({"--data.folder=/proc/no/such/data"}), {"/proc/no"});
}

TEST_F(Program, NoSpace) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount a small file system";
  const std::string disk = at("disk");
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs here";
  refuses(run({"--run.folder=" + disk + "/run"}), {"disk", "space"});
  ::umount(disk.c_str());
}

TEST_F(Program, TwoRunsInOneFolder) {
  Process first({INGOT_BINARY, "run", at("recipe.toml"), "--kernels=any", "--run.folder=" + at("twice"),
                 "--phases.0.steps=100000"});
  while (first.running() && !fs::exists(at("twice") + "/metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  refuses(run({}, "twice"), {at("twice"), "process"});
  EXPECT_TRUE(first.running());
  first.signal(SIGINT);
  EXPECT_EQ(first.wait().exit_code, 130);
}

/// A prompt that never ends: the program has begun to read it when the pipe is empty.
TEST_F(Program, CtrlCEndsTheWaitForAPrompt) {
  const std::string pipe = at("prompt");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int fd = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "x", 1), 1);
  Process p({"/bin/bash", "-c",
             "exec '" INGOT_BINARY "' generate \"$RUN\" --kernels any --prompt-file - <\"$PIPE\""},
            {"RUN=" + at("run"), "PIPE=" + pipe});
  for (int unread = 1; p.running() && unread > 0; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    ASSERT_EQ(::ioctl(fd, FIONREAD, &unread), 0);
  p.signal(SIGINT);
  const ProcessResult r = p.wait();
  EXPECT_EQ(r.signal, SIGINT) << "nothing has begun that would have to be ended: " << r.output;
  ::close(fd);
}

TEST_F(Program, TwoDataJobsInOneFolder) {
  const Arguments job{INGOT_BINARY, "data", at("recipe.toml"), "--data.folder=" + at("shared")};
  fs::create_directories(at("shared"));
  auto lock = std::make_unique<FolderLock>(at("shared"), "data");
  Process first(job), second(job);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(first.running() && second.running());
  EXPECT_EQ(std::distance(fs::directory_iterator(at("shared")), {}),
            1);  // the lock's own file: nothing is written
  lock.reset();
  const ProcessResult a = first.wait(), b = second.wait();
  const std::string waits =
      fmt::format("the data folder '{}' is in use by process {} on ", at("shared"), ::getpid());
  for (const ProcessResult& r : {a, b}) {
    EXPECT_EQ(r.exit_code, 0) << r.output;
    EXPECT_NE(r.output.find(waits), std::string::npos) << r.output;
  }
  // One made the data, the other used it; both are what a job alone makes.
  const std::string made = "reading text for the tokenizer";
  EXPECT_NE(a.output.find(made) == std::string::npos, b.output.find(made) == std::string::npos)
      << a.output << b.output;
  for (const auto& f : fs::recursive_directory_iterator(at("data"))) {
    if (!f.is_regular_file() || f.path().extension() == ".lock") continue;
    if (f.path().filename() == "checked.json") continue;  // times and inodes
    EXPECT_TRUE(read_text(f.path()) == read_text(at("shared") + f.path().string().substr(at("data").size())))
        << f.path();
  }
}

TEST_F(Program, DivergenceStopsWithADiagnosis) {
  refuses(run({"--phases.0.lr=1e38", "--phases.0.warmup=0", "--optimizer.clip=0"}, "overflowed"),
          {"the update of step 1", "not finite", "embed.weight"});
  refuses(run({"--phases.0.lr=1e30", "--phases.0.warmup=0", "--optimizer.clip=0"}, "diverged"),
          {"the loss of step 2", "add_norm", "forward", "batch"});
}

}  // namespace ingot::test::program_faults_test
