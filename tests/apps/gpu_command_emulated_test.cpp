// `ingot gpu` and scripts/gpu: a machine without a GPU, kernels that have not proven themselves, their proof
// on a driver that is faked, and what a record may add to the source tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ops/gpu_proof.h"
#include "ops/gpu_registry.h"
#include "support/fake_cuda.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::gpu_command_emulated_test {

const std::string kScript = INGOT_SOURCE_DIR "/scripts/gpu",
                  kBuild = std::string("INGOT_BUILD=") + INGOT_BUILD_DIR,
                  kNoLibrary = "INGOT_CUDA_LIBRARY=libcuda-which-nobody-has.so.1",
                  kFaked = std::string("INGOT_CUDA_LIBRARY=") + kFakeCuda;

bool has(const ProcessResult& r, const std::string& part) {
  return r.output.find(part) != r.output.npos;
}

KernelProof proof_of(const std::string& kernel, const std::string& kind = "cuda") {
  return {kernel, kernel_sources(kernel),    kind, "sm_90", "a GPU", "13.0",
          "abc",  "2026-01-01 00:00:00 UTC", 3};
}

TEST(GpuProofs, AreOfTheseSourcesAndThisArchitecture) {
  for (const std::string& kernel : gpu_kernel_names())
    EXPECT_EQ(kernel_sources(kernel).size(), 16u) << kernel;
  EXPECT_NE(kernel_sources("linear"), kernel_sources("add"));
  EXPECT_EQ(kernel_sources("permute"), kernel_sources("unpermute"));  // one text
  EXPECT_EQ(kernel_sources("nothing"), "");
  std::vector<KernelProof> proofs{proof_of("add"), proof_of("linear", "faked")};
  EXPECT_TRUE(is_proven(proofs, "cuda", "add", "sm_90"));
  EXPECT_FALSE(is_proven(proofs, "cuda", "add", "sm_80"));
  EXPECT_FALSE(is_proven(proofs, "cuda", "linear", "sm_90"));
  proofs[0].sources = "0123456789abcdef";
  EXPECT_FALSE(is_proven(proofs, "cuda", "add", "sm_90"));
  add_proofs(proofs, std::vector{proof_of("add"), proof_of("mix")});
  EXPECT_EQ(proofs.size(), 3u);
  EXPECT_TRUE(is_proven(proofs, "cuda", "add", "sm_90"));
}

TEST(GpuProofs, AreNotChangedByHand) {
  const std::string text = write_proofs(std::vector{proof_of("add"), proof_of("mix")});
  EXPECT_EQ(read_proofs(text, "f").size(), 2u);
  EXPECT_EQ(write_proofs(read_proofs(text, "f")), text);
  std::string changed = text;
  changed.replace(changed.find("sm_90"), 5, "sm_80");
  const std::string message = message_of([&] { read_proofs(changed, "list.json"); });
  EXPECT_NE(message.find("'list.json': the proof of kernel 'add' on sm_80 was changed by hand"), message.npos)
      << message;
  EXPECT_NE(message_of([&] { read_proofs("[1]", "list.json"); }).find("no list of proofs"), message.npos);
}

/// The hash of a kernel in a copy of the sources.
std::string hash_in(const std::string& source, const std::string& out, const std::string& kernel) {
  const ProcessResult r = run_process({"/usr/bin/env", "cmake", "-DSOURCE=" + source, "-DOUTPUT=" + out, "-P",
                                       INGOT_SOURCE_DIR "/cmake/IngotGpuProof.cmake"});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  const std::string text = read_text(out), before = "{\"" + kernel + "\", \"";
  const size_t at = text.find(before);
  return at == text.npos ? "" : text.substr(at + before.size(), 16);
}

TEST(GpuProofs, EndWithAChangeOfTheTextButNotOfAComment) {
  namespace fs = std::filesystem;
  const TempDir folder;
  fs::create_directories(folder / "docs/gpu");
  fs::create_directory(folder / "src");
  fs::copy(INGOT_SOURCE_DIR "/docs/gpu/proven.json", folder / "docs/gpu/proven.json");
  for (const char* part : {"base", "device", "ops", "optim"})
    fs::copy(std::string(INGOT_SOURCE_DIR "/src/") + part, folder / ("src/" + std::string(part)),
             fs::copy_options::recursive);
  const auto now = [&](const char* kernel) { return hash_in(folder.path(), folder / "h.h", kernel); };
  const std::string linear = now("linear"), add = now("add");
  EXPECT_EQ(linear, kernel_sources("linear"));
  const std::string file = folder / "src/device/gemm/product_block.h", text = read_text(file);
  write_text(file, text + "// a comment\n");
  EXPECT_EQ(now("linear"), linear);
  write_text(file, text + "inline int other;\n");
  EXPECT_NE(now("linear"), linear);
  EXPECT_EQ(now("add"), add);
  write_text(file, text);
  EXPECT_EQ(now("linear"), linear);
  const std::string choice = folder / "src/device/gemm/gpu_tensor_cores.cpp";
  write_text(choice, read_text(choice) + "inline int other;\n");
  EXPECT_NE(now("linear"), linear) << "which kernel multiplies";
  const std::string update = now("update"), muon = folder / "src/optim/gpu_muon.cpp";
  write_text(muon, read_text(muon) + "inline int other;\n");
  EXPECT_NE(now("update"), update);
}

TEST(GpuCommand, SaysWhyThereIsNoGpuInSeconds) {
  const TempDir folder;
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult script = run_process({kScript, "run", "--record", folder / "r"}, {kBuild, kNoLibrary});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(script.exit_code, 1);
  EXPECT_TRUE(has(script, "no driver of an NVIDIA GPU") && has(script, "libcuda-which-nobody-has.so.1"))
      << script.output;
  EXPECT_FALSE(std::filesystem::exists(folder / "r"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"gpu", "probe"}, {"gpu", "prove"}, {"run", "x.toml", "--device=cuda"}}) {
    std::vector<std::string> command{INGOT_BINARY};
    command.insert(command.end(), words.begin(), words.end());
    if (words[0] == "run") {
      write_text(folder / "text.txt", tiny_text(4000));
      write_text(folder / "x.toml", base_recipe(folder.path(), 32, "kind = \"characters\""));
      command[2] = folder / "x.toml";
    }
    const ProcessResult r = run_process(command, {kNoLibrary});
    EXPECT_EQ(r.exit_code, 1) << r.output;
    EXPECT_TRUE(has(r, "error: device 'cuda': no driver of an NVIDIA GPU") &&
                has(r, "hint: leave --device out"))
        << r.output;
  }
}

TEST(GpuCommand, LabelGpuIsSkippedLoudly) {
  const ProcessResult skipped = run_process({kScript, "test", INGOT_BUILD_DIR}, {kNoLibrary});
  EXPECT_EQ(skipped.exit_code, 77) << skipped.output;
  EXPECT_EQ(std::count(skipped.output.begin(), skipped.output.end(), '\n'), 1) << skipped.output;
  int count = 0;
  ASSERT_EQ(std::sscanf(skipped.output.c_str(),
                        "SKIPPED: label gpu: %d tests were not run: device 'cuda': no driver", &count),
            1)
      << skipped.output;
  EXPECT_GT(count, 30);
  EXPECT_EQ(run_process({kScript, "test", INGOT_BUILD_DIR}, {kNoLibrary, "INGOT_REQUIRE_GPU=1"}).exit_code,
            1);
}

TEST(GpuCommand, KernelsProveThemselvesBeforeTheyRun) {
  const TempDir folder;
  const std::vector<std::string> environment{kFaked, "INGOT_GPU_PROOFS=" + (folder / "own/proofs.json"),
                                             "INGOT_LOG=warn"};
  write_text(folder / "text.txt", tiny_text(4000));
  write_text(folder / "x.toml", base_recipe(folder.path(), 32, "kind = \"characters\""));
  const auto run = [&](const std::string& kernels) {
    return run_process({INGOT_BINARY, "run", folder / "x.toml", "--device=cuda", "--kernels=" + kernels,
                        "--phases.0.steps=1", "--run.folder=" + (folder / kernels)},
                       environment);
  };
  const ProcessResult strict = run("strict");
  EXPECT_EQ(strict.exit_code, 1) << strict.output;
  EXPECT_TRUE(
      has(strict,
          "op 'embedding' has no kernel on device 'cuda' for this call (cuda: it has not proven itself on "
          "this GPU: `") &&
      has(strict, " gpu prove` lets it)"))
      << strict.output;
  EXPECT_EQ(run("any").exit_code, 0);  // on the host

  // An op table of two ops.
  const std::string record = folder / "record.jsonl", table = folder / "ingot_test_ops";
  std::filesystem::create_symlink(INGOT_BUILD_DIR "/tests/ingot_test_ops", table);
  write_text(folder / "gpu_op_tests.txt", "Add.Cases:Activation.Cases\n");
  const auto prove = [&](const std::string& option) {
    return run_process({INGOT_BINARY, "gpu", "prove", "--tests=" + table, "--record=" + record, option},
                       environment);
  };
  const ProcessResult look = prove("--filter=Add.Cases");
  EXPECT_EQ(look.exit_code, 0) << look.output;
  EXPECT_TRUE(has(look, "passed: add (") && has(look, "not run: activation") && !has(look, "proven"))
      << look.output;
  EXPECT_FALSE(std::filesystem::exists(folder / "own/proofs.json"));
  const ProcessResult proof = prove("--seconds=500");
  EXPECT_EQ(proof.exit_code, 0) << proof.output;
  EXPECT_TRUE(has(proof, "proven: add (") && has(proof, "proven: activation (") &&
              has(proof, "not run: linear"))
      << proof.output;
  const ProcessResult probe = run_process({INGOT_BINARY, "gpu", "probe", "--json"}, environment);
  const nlohmann::json facts = nlohmann::json::parse(probe.output);
  EXPECT_EQ(facts.at("device"), "a faked GPU");
  EXPECT_TRUE(facts.at("kernels").at("add").at("proven"));
  EXPECT_FALSE(facts.at("kernels").at("linear").at("proven"));

  const ProcessResult refused =
      run_process({INGOT_BINARY, "gpu", "record", record, "--into=" + (folder / "docs")}, environment);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(has(refused, "is of device 'faked' (a faked GPU), which is no GPU")) << refused.output;
  for (int again = 0; again < 2; ++again) {
    const ProcessResult added = run_process(
        {INGOT_BINARY, "gpu", "record", record, "--any-device", "--into=" + (folder / "docs")}, environment);
    EXPECT_EQ(added.exit_code, 0) << added.output;
  }
  EXPECT_EQ(read_proofs(read_text(folder / "docs/proven.json"), "").size(), 2u);
  const nlohmann::json rows = nlohmann::json::parse(read_text(folder / "docs/rows.json"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("parts").size(), 2u);
  EXPECT_EQ(rows[0].at("parts")[0].at("part"), "ops");

  std::string other = read_text(record);
  KernelProof old = proof_of("add");
  old.sources = "0123456789abcdef";
  other += "{\"proof\": " + nlohmann::json::parse(write_proofs({&old, 1})).at("proofs")[0].dump() + "}\n";
  write_text(record, other);
  const ProcessResult stale = run_process(
      {INGOT_BINARY, "gpu", "record", record, "--any-device", "--into=" + (folder / "docs")}, environment);
  EXPECT_EQ(stale.exit_code, 1);
  EXPECT_TRUE(has(stale, "of other sources (0123456789abcdef)")) << stale.output;
}

/// A GPU whose kernels have proven themselves trains under the default policy, weights and update there; one
/// whose update has not has its weights on the host, and asks for each gradient.
TEST(GpuCommand, ProvenKernelsTrain) {
  const TempDir folder;
  const std::string path = folder / "proofs.json";
  const std::vector<std::string> environment{kFaked, "INGOT_GPU_PROOFS=" + path, "INGOT_LOG=warn"};
  const nlohmann::json gpu =
      nlohmann::json::parse(run_process({INGOT_BINARY, "gpu", "probe", "--json"}, environment).output);
  const auto waits = [&](bool with_update) {
    std::vector<KernelProof> proofs;
    for (const std::string& kernel : gpu_kernel_names()) {
      KernelProof p = proof_of(kernel, "faked");
      p.architecture = gpu.at("architecture");
      if (with_update || kernel != kUpdateOnGpu) proofs.push_back(p);
    }
    write_text(path, write_proofs(proofs));
    const ProcessResult r = run_process(
        {INGOT_BINARY, "bench", "step", "zaya-tiny", "--model.layers=1", "--model.width=64", "--batch=2",
         "--micro=1", "--length=8", "--trials=1", "--warm-up=2", "--vocab=64", "--device=cuda", "--json"},
        environment);
    EXPECT_EQ(r.exit_code, 0) << r.output;
    return nlohmann::json::parse(r.output).at("device_work").at("synchronizations").get<int>();
  };
  EXPECT_EQ(waits(true), 1);
  EXPECT_GT(waits(false), 10);
}

/// The product of an MLP and its activation are one launch where the kernel for both has proven itself, and
/// two where it has not.
TEST(GpuCommand, AProvenKernelForTwoOpsSavesALaunch) {
  const TempDir folder;
  const std::string path = folder / "proofs.json";
  const std::vector<std::string> environment{kFaked, "INGOT_GPU_PROOFS=" + path, "INGOT_LOG=warn"};
  const nlohmann::json gpu =
      nlohmann::json::parse(run_process({INGOT_BINARY, "gpu", "probe", "--json"}, environment).output);
  const auto launches = [&](bool with_both) {
    std::vector<KernelProof> proofs;
    for (const std::string& kernel : gpu_kernel_names()) {
      KernelProof p = proof_of(kernel, "faked");
      p.architecture = gpu.at("architecture");
      if (with_both || kernel != "linear_activation_mma") proofs.push_back(p);
    }
    write_text(path, write_proofs(proofs));
    const ProcessResult r = run_process(
        {INGOT_BINARY, "bench", "step", "gpt-10m", "--model.layers=3", "--model.width=64", "--model.heads=2",
         "--model.kv_heads=2", "--batch=2", "--micro=1", "--length=8", "--trials=1", "--warm-up=2",
         "--vocab=64", "--device=cuda", "--run.precision=bf16", "--json"},
        environment);
    EXPECT_EQ(r.exit_code, 0) << r.output;
    return nlohmann::json::parse(r.output).at("device_work").at("launches").get<int>();
  };
  EXPECT_EQ(launches(false) - launches(true), 2 * 3) << "micro-batches, layers";
}

/// The parts of a record by their names.
std::map<std::string, nlohmann::json> parts_of(const std::string& record) {
  std::map<std::string, nlohmann::json> parts;
  std::istringstream lines(read_text(record));
  for (std::string line; std::getline(lines, line);)
    if (const nlohmann::json j = nlohmann::json::parse(line); j.contains("part")) parts[j.at("part")] = j;
  return parts;
}

TEST(GpuCommand, ADryRunRecordsWhatItKnows) {
  const TempDir folder;
  const std::string record = folder / "record.jsonl";
  const ProcessResult r = run_process({kScript, "run", "--device=sim", "--record", record, "--minutes", "2",
                                       "models", "bench", "device", "training", "profile", "sanitizer"},
                                      {kBuild});
  EXPECT_EQ(r.exit_code, 0) << r.output;
  const std::string lines = read_text(record);
  EXPECT_NE(lines.find("\"device_kind\":\"sim\""), lines.npos) << lines;
  EXPECT_NE(lines.find("{\"part\": \"models\", "), lines.npos) << lines;
  const std::map<std::string, nlohmann::json> parts = parts_of(record);
  for (const char* part : {"bench products", "bench grouped", "bench rows", "bench update", "bench attention",
                           "bench exact", "bench copies", "bench launches"}) {
    ASSERT_TRUE(parts.contains(part)) << part << "\n" << lines;
    EXPECT_FALSE(parts.at(part).at("report").at("rows").empty()) << part;
  }
  for (const char* part : {"training dense 1", "training mixture 2"})
    EXPECT_EQ(parts.at(part).at("report").at("device_work").at("synchronizations"), 1) << part;
  for (const char* part : {"device", "sanitizer"}) EXPECT_EQ(parts.at(part).at("code"), 77) << part;
  const std::string folder_of_rows = "--into=" + (folder / "docs");
  const ProcessResult added =
      run_process({INGOT_BINARY, "gpu", "record", record, "--any-device", folder_of_rows}, {});
  EXPECT_EQ(added.exit_code, 0) << added.output;
  const nlohmann::json rows = nlohmann::json::parse(read_text(folder / "docs/rows.json"));
  EXPECT_EQ(rows.at(0).at("parts").size(), parts.size());
}

/// With a compute-sanitizer that runs the program and fails once.
TEST(GpuCommand, KeepsWhatTestsAndSanitizersSay) {
  const TempDir folder;
  const std::string record = folder / "record.jsonl", log = folder / "log";
  write_text(folder / "compute-sanitizer", "#!/bin/sh\necho \"$*\" >>" + log +
                                               "\ntest \"$2\" != racecheck && shift 4 && case $1 in *ops) ;; "
                                               "*) exec \"$@\" ;; esac\n");
  std::filesystem::permissions(folder / "compute-sanitizer", std::filesystem::perms::owner_all);
  const ProcessResult r = run_process({"/usr/bin/env", "PATH=" + folder.path() + ":/usr/bin:/bin", kScript,
                                       "run", "--record", record, "--minutes", "5", "device", "sanitizer"},
                                      {kBuild, kFaked, "GTEST_FILTER=CudaProductBits.*"});
  EXPECT_EQ(r.exit_code, 1) << r.output;
  const std::map<std::string, nlohmann::json> parts = parts_of(record);
  ASSERT_TRUE(parts.contains("device") && parts.contains("sanitizer racecheck")) << r.output;
  EXPECT_EQ(parts.at("device").at("code"), 0) << r.output;
  EXPECT_NE(parts.at("device").at("report").dump().find("rows that differ between tiles"), std::string::npos);
  EXPECT_EQ(parts.at("sanitizer memcheck").at("code"), 0) << r.output;
  EXPECT_EQ(parts.at("sanitizer racecheck").at("code"), 1);
  EXPECT_EQ(parts.at("sanitizer synccheck").at("code"), 0);
  EXPECT_NE(read_text(log).find("--tool memcheck --error-exitcode 9 "), std::string::npos);
  EXPECT_NE(read_text(log).find("ingot_test_ops --gtest_brief=1 --gtest_filter=Activation"),
            std::string::npos);
}

}  // namespace ingot::test::gpu_command_emulated_test
