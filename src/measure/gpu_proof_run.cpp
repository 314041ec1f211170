// See gpu_proof_run.h.
#include "measure/gpu_proof_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/command.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/invocation.h"
#include "device/cuda/cuda_device.h"
#include "device/gemm/library_choice.h"
#include "ops/gpu_registry.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = 64 << 20;

Json facts_json(const KernelProof& p) {
  return {{"record", "gpu"},
          {"date", p.date},
          {"device_kind", p.device_kind},
          {"architecture", p.architecture},
          {"device", p.device},
          {"driver", p.driver},
          {"program", p.program}};
}

/// Lines of a record, on disk as soon as they are known; the first one of a new file states the device.
class RecordFile {
 public:
  RecordFile(const std::string& path, const KernelProof& facts) {
    FileSystem& fs = real_file_system();
    if (path.empty()) return;
    const bool is_new = !fs.exists(path) || fs.size(path) == 0;
    file_ = fs.open_append(path);
    if (is_new) add(facts_json(facts));
  }
  void add(const Json& line) {
    if (file_ == nullptr) return;
    const std::string text = line.dump() + "\n";
    file_->append(text.data(), text.size());
    file_->sync();
  }

 private:
  std::unique_ptr<WritableFile> file_;
};

std::string date_now() {
  const auto seconds = static_cast<std::time_t>(wall_seconds());
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

/// What the test program said of a kernel.
struct Cases {
  int64_t passed = 0;
  std::vector<std::string> failed;
};

fs::path default_tests() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  return folder / "tests" / "ingot_test_ops";
}

/// A line for each case that a kernel took; the last one may be cut off.
std::map<std::string, Cases> cases_of(const std::string& path) {
  std::map<std::string, Cases> all;
  if (!real_file_system().exists(path)) return all;
  std::istringstream lines(read_at_most(real_file_system(), path, kMostBytes));
  for (std::string line; std::getline(lines, line);) {
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_discarded()) continue;
    Cases& kernel = all[j.at("kernel").get<std::string>()];
    if (j.at("passed").get<bool>())
      ++kernel.passed;
    else
      kernel.failed.push_back(j.at("case").get<std::string>());
  }
  return all;
}

std::vector<Json> lines_of_record(const std::string& text, const std::string& path) {
  std::vector<Json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json j = Json::parse(line, nullptr, false);
    if (j.is_object()) all.push_back(j);
  }
  if (all.empty() || !all.front().contains("record"))
    throw Error(fmt::format("'{}' is no record of a machine with a GPU", path),
                "`scripts/gpu run` and `ingot gpu prove --record=FILE` write them");
  return all;
}

}  // namespace

void begin_record(const std::string& path, const KernelProof& facts) {
  const RecordFile record(path, facts);
}

KernelProof facts_of_device(const std::string& kind) {
  KernelProof facts;
  facts.program = build_info().commit, facts.date = date_now();
  if (kind == "sim") {
    facts.device_kind = "sim", facts.architecture = "emulated", facts.device = "the emulator",
    facts.driver = "none";
    return facts;
  }
  if (kind != "cuda")
    throw Error(fmt::format("kernels prove themselves on device cuda or sim, not '{}'", kind));
  const cuda_driver::Driver& driver = cuda_device().driver();
  facts.device_kind = driver.is_faked() ? "faked" : "cuda";
  facts.architecture = driver.architecture(), facts.device = driver.name,
  facts.driver = driver.version_text();
  return facts;
}

ProofRun prove_kernels(const ProofRunOptions& o) {
  if (!library_that_multiplies().empty())
    throw Error("INGOT_PRODUCTS=cublaslt takes the place of kernels that would prove themselves",
                "type it without");
  const KernelProof facts = facts_of_device(o.kind);
  FileSystem& files = real_file_system();
  const std::string tests = o.tests.empty() ? default_tests().string() : o.tests;
  const std::string names = fs::path(tests).parent_path() / "gpu_op_tests.txt";
  if (!files.exists(tests) || (o.filter.empty() && !files.exists(names)))
    throw Error(fmt::format("the op table is a test program, and there is none at '{}'", tests),
                "build the tests (-DINGOT_TESTS=ON), or name the program with --tests");
  std::string filter = o.filter.empty() ? read_at_most(files, names, kMostBytes) : o.filter;
  filter.erase(std::remove(filter.begin(), filter.end(), '\n'), filter.end());
  RecordFile record(o.record, facts);
  std::string folder = (fs::temp_directory_path() / "ingot-gpu-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail("no temporary folder '{}'", folder);
  const Unfinished temporary(files, folder);
  const std::string cases = folder + "/cases";
  const double begin = monotonic_seconds();
  Command command({"/usr/bin/env", "INGOT_OP_CHECK=" + (o.kind == "sim" ? std::string("emulated") : o.kind),
                   "INGOT_OP_RECORD=" + cases, tests, "--gtest_filter=" + filter, "--gtest_brief=1"},
                  folder + "/output", o.seconds);
  const CommandResult result = command.wait();
  ProofRun run;
  // 1: tests failed, as the lines say.
  if (result.late)
    run.trouble = fmt::format("it did not end in {:.0f} s", o.seconds);
  else if (result.code != 0 && result.code != 1)
    run.trouble = result.text();
  std::map<std::string, Cases> found = cases_of(cases);
  for (const std::string& kernel : gpu_kernel_names()) {
    const Cases& c = found[kernel];
    if (!c.failed.empty()) {
      run.failed.emplace_back(kernel, c.failed);
      record.add({{"failed", {{"kernel", kernel}, {"cases", c.failed}}}});
    } else if (c.passed == 0) {
      run.not_run.push_back(kernel);
    } else if (!o.filter.empty() || !run.trouble.empty()) {  // others of its cases may not have run
      run.passed.emplace_back(kernel, c.passed);
    } else {
      KernelProof proof = facts;
      proof.kernel = kernel, proof.sources = kernel_sources(kernel), proof.cases = c.passed;
      run.proofs.push_back(proof);
      record.add({{"proof", Json::parse(write_proofs({&proof, 1})).at("proofs")[0]}});
    }
  }
  if (run.trouble.empty() && result.code != 0 && run.failed.empty()) run.trouble = result.text();
  record.add({{"part", "ops"}, {"seconds", monotonic_seconds() - begin}, {"code", result.code}});
  return run;
}

std::vector<KernelProof> proofs_of_record(const std::string& text, const std::string& path, bool any_device) {
  const std::vector<Json> lines = lines_of_record(text, path);
  Json list = Json::array();
  for (const Json& j : lines)
    if (j.contains("proof")) list.push_back(j.at("proof"));
  const std::vector<KernelProof> proofs = read_proofs(Json{{"proofs", list}}.dump(), path);
  std::set<std::string> kinds{lines.front().value("device_kind", "nothing")};
  for (const KernelProof& p : proofs) kinds.insert(p.device_kind);
  for (const std::string& kind : kinds)
    if (kind != "cuda" && !any_device)
      throw Error(fmt::format("'{}' is of device '{}' ({}), which is no GPU", path, kind,
                              lines.front().value("device", "without a name")),
                  "record what a machine with a GPU wrote");
  for (const KernelProof& p : proofs)
    if (p.sources != kernel_sources(p.kernel))
      throw Error(fmt::format("'{}' proves kernel '{}' of other sources ({}) than this program's ({})", path,
                              p.kernel, p.sources, kernel_sources(p.kernel)),
                  fmt::format("record it with the program of commit {}, or prove the kernels of this one",
                              p.program));
  return proofs;
}

std::string row_of_record(const std::string& text, const std::string& path) {
  const std::vector<Json> lines = lines_of_record(text, path);
  Json row = lines.front();
  row.erase("record");
  row["parts"] = Json::array();
  for (const Json& j : lines)
    if (j.contains("part")) row["parts"].push_back(j);
  return row.dump();
}

}  // namespace ingot
