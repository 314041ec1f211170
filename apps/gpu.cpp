// `ingot gpu`: which GPU there is, whether its kernels have proven that they have the CPU's bits, and the
// proof.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/checks.h"
#include "apps/command_line.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/file_system.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/kernel_images.h"
#include "measure/gpu_proof_run.h"
#include "ops/gpu_registry.h"
#include "report/table.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostProofBytes = 64 << 20;

/// A list of proofs in a file, which need not exist.
std::vector<KernelProof> proofs_in(const std::string& path) {
  FileSystem& fs = real_file_system();
  return fs.exists(path) ? read_proofs(read_at_most(fs, path, kMostProofBytes), path)
                         : std::vector<KernelProof>();
}

void keep_proofs(const std::string& path, const std::vector<KernelProof>& more) {
  std::vector<KernelProof> all = proofs_in(path);
  add_proofs(all, more);
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) real_file_system().create_folders(folder);
  write_file_atomically(real_file_system(), path, write_proofs(all));
}

int show_gpu(const std::string& kind, const std::string& record, const JsonOption& json) {
  const KernelProof f = facts_of_device(kind);
  if (!record.empty()) begin_record(record, f);
  Table table({words("kernel"), words("sources"), words("proven here")});
  Json j{{"device", f.device},
         {"architecture", f.architecture},
         {"driver", f.driver},
         {"faked", f.device_kind == "faked"}};
  for (const std::string& kernel : gpu_kernel_names()) {
    const bool proven = kind == "cuda" && refuse_unproven(kernel) == nullptr;
    table.add({kernel, kernel_sources(kernel), proven ? "yes" : "no"});
    j["kernels"][kernel] = {{"sources", kernel_sources(kernel)}, {"proven", proven}};
  }
  json.print(fmt::format("{}, {}, driver of CUDA {}\n", f.device, f.architecture, f.driver) + table.text(),
             j.dump(2));
  return 0;
}

int prove_on_gpu(const ProofRunOptions& o) {
  const ProofRun run = prove_kernels(o);
  std::string text;
  for (const KernelProof& p : run.proofs) text += fmt::format("proven: {} ({} cases)\n", p.kernel, p.cases);
  for (const auto& [kernel, cases] : run.passed)
    text += fmt::format("passed: {} ({} cases; a proof takes the whole op table)\n", kernel, cases);
  for (const auto& [kernel, cases] : run.failed)
    text += fmt::format("FAILED: {}: {} cases, the first '{}'\n", kernel, cases.size(), cases.front());
  for (const std::string& kernel : run.not_run) text += fmt::format("not run: {}\n", kernel);
  const std::string own = own_proofs_path();
  if (o.kind != "sim" && !run.proofs.empty() && !own.empty()) {
    keep_proofs(own, run.proofs);
    text += fmt::format("{} kernels may run on {} from now on: '{}'\n", run.proofs.size(),
                        run.proofs.front().architecture, own);
  }
  print_text(text);
  if (!run.trouble.empty())
    throw Error(fmt::format("the op table did not end as it should: {}", run.trouble));
  return run.failed.empty() ? 0 : 1;
}

struct RecordArguments {
  std::string record, into = "docs/gpu";
  bool any_device = false;
};

int record_gpu(const RecordArguments& o) {
  FileSystem& fs = real_file_system();
  const std::string text = read_at_most(fs, o.record, kMostProofBytes);
  const std::vector<KernelProof> proofs = proofs_of_record(text, o.record, o.any_device);
  const std::string row = row_of_record(text, o.record), rows = o.into + "/rows.json";
  keep_proofs(o.into + "/proven.json", proofs);
  Json all =
      fs.exists(rows) ? Json::parse(read_at_most(fs, rows, kMostProofBytes), nullptr, false) : Json::array();
  if (!all.is_array()) throw Error(fmt::format("'{}' is no list of measured rows", rows));
  const Json j = Json::parse(row);
  if (std::find(all.begin(), all.end(), j) == all.end()) all.push_back(j);
  write_file_atomically(fs, rows, all.dump(1) + "\n");
  print_text(fmt::format("{} proofs and a row of {} parts are in '{}'\n", proofs.size(), j.at("parts").size(),
                         o.into));
  return 0;
}

}  // namespace

void add_gpu_command(CLI::App& app, int& code) {
  CLI::App* c =
      app.add_subcommand("gpu", "which GPU there is, and proof that its kernels have the CPU's bits");
  c->require_subcommand(1);
  CLI::App* p = c->add_subcommand("probe", "name the GPU, its driver and the kernels that are proven on it");
  auto o = std::make_shared<ProofRunOptions>();
  auto json = std::make_shared<JsonOption>();
  const auto add_common = [o](CLI::App* command) {
    command
        ->add_option("--device", o->kind,
                     "cuda, or sim: a dry run on emulated kernels, which proves nothing of a GPU")
        ->capture_default_str();
    command->add_option("--record", o->record, "file of the record, for `ingot gpu record`");
  };
  add_common(p);
  add_json_option(*p, *json);
  p->callback([o, json, &code] { code = show_gpu(o->kind, o->record, *json); });

  CLI::App* e = c->add_subcommand("prove", "run the op table on the GPU; kernels that pass may run there");
  e->footer(
      "A kernel that has not proven itself on an architecture is off there, and --kernels=strict refuses its "
      "op.\nThe exit code is 1 where a kernel fails.");
  add_common(e);
  e->add_option("--tests", o->tests,
                "the test program ingot_test_ops; default: in tests/ beside this program");
  e->add_option(
      "--filter", o->filter,
      "tests to run, as GoogleTest takes them, for a look: no proof is kept; default: the op table");
  e->add_option("--seconds", o->seconds, "time limit")
      ->capture_default_str()
      ->check(in(between(1.0, 86400.0)));
  e->callback([o, &code] { code = prove_on_gpu(*o); });

  auto r = std::make_shared<RecordArguments>();
  CLI::App* m = c->add_subcommand("record", "add a record's proofs and rows to those of the source tree");
  m->add_option("record", r->record, "what `ingot gpu prove --record` or scripts/gpu wrote")->required();
  m->add_option("--into", r->into, "folder of proven.json and rows.json")->capture_default_str();
  m->add_flag("--any-device", r->any_device, "also what a dry run or a faked driver wrote, for tests");
  m->callback([r, &code] { code = record_gpu(*r); });
}

}  // namespace ingot
