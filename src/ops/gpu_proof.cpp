// See gpu_proof.h.
#include "ops/gpu_proof.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "device/cuda/cuda_device.h"
#include "device/gemm/library_choice.h"
#include "ingot_gpu_proof.h"
#include "tape/op.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = 16 << 20;

std::atomic<bool> unproven_run = false;

std::string seal_of(const KernelProof& p) {
  return fmt::format(
      "{:016x}", hash64(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", p.kernel, p.sources, p.device_kind,
                                    p.architecture, p.device, p.driver, p.program, p.date, p.cases)));
}

bool is_of_same(const KernelProof& a, const KernelProof& b) {
  return a.kernel == b.kernel && a.device_kind == b.device_kind && a.architecture == b.architecture;
}

std::vector<KernelProof> read_known_proofs() {
  std::vector<KernelProof> proofs = read_proofs(kProvenKernels, "docs/gpu/proven.json");
  const std::string own = own_proofs_path();
  if (FileSystem& fs = real_file_system(); !own.empty() && fs.exists(own))
    add_proofs(proofs, read_proofs(read_at_most(fs, own, kMostBytes), own));
  return proofs;
}

}  // namespace

std::string kernel_sources(std::string_view kernel) {
  for (const auto& [name, hash] : kGpuKernelSources)
    if (kernel == name) return hash;
  return {};
}

std::vector<KernelProof> read_proofs(const std::string& text, const std::string& path) {
  std::vector<KernelProof> proofs;
  try {
    const Json all = Json::parse(text);
    for (const Json& j : all.at("proofs")) {
      KernelProof p{j.at("kernel"),       j.at("sources"), j.at("device_kind"),
                    j.at("architecture"), j.at("device"),  j.at("driver"),
                    j.at("program"),      j.at("date"),    j.at("cases")};
      if (j.at("seal") != seal_of(p))
        throw Error(fmt::format("'{}': the proof of kernel '{}' on {} was changed by hand", path, p.kernel,
                                p.architecture),
                    "remove it; `ingot gpu prove` makes a new one on a machine with the GPU");
      proofs.push_back(std::move(p));
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("'{}' is no list of proofs of GPU kernels: {}", path, e.what()),
                "remove it; `ingot gpu prove` makes a new one on a machine with the GPU");
  }
  return proofs;
}

std::string write_proofs(std::span<const KernelProof> proofs) {
  std::string text = "{\"proofs\": [";
  for (const KernelProof& p : proofs) {
    const Json j{{"kernel", p.kernel},
                 {"sources", p.sources},
                 {"device_kind", p.device_kind},
                 {"architecture", p.architecture},
                 {"device", p.device},
                 {"driver", p.driver},
                 {"program", p.program},
                 {"date", p.date},
                 {"cases", p.cases},
                 {"seal", seal_of(p)}};
    text += (&p == proofs.data() ? "\n  " : ",\n  ") + j.dump();
  }
  return text + (proofs.empty() ? "" : "\n") + "]}\n";
}

void add_proofs(std::vector<KernelProof>& to, std::span<const KernelProof> more) {
  for (const KernelProof& p : more) {
    const auto known =
        std::find_if(to.begin(), to.end(), [&](const KernelProof& k) { return is_of_same(k, p); });
    if (known == to.end())
      to.push_back(p);
    else if (known->sources != kernel_sources(known->kernel) || known->date <= p.date)
      *known = p;
  }
}

std::string own_proofs_path() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string own = variable("INGOT_GPU_PROOFS"); !own.empty()) return own;
  if (const std::string data = variable("XDG_DATA_HOME"); !data.empty())
    return data + "/ingot/gpu-proofs.json";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.local/share/ingot/gpu-proofs.json";
}

const std::vector<KernelProof>& known_proofs() {
  static const std::vector<KernelProof> proofs = read_known_proofs();
  return proofs;
}

bool is_proven(std::span<const KernelProof> proofs, std::string_view device_kind, std::string_view kernel,
               std::string_view architecture) {
  const std::string sources = kernel_sources(kernel);
  return !sources.empty() && std::any_of(proofs.begin(), proofs.end(), [&](const KernelProof& p) {
    return p.kernel == kernel && p.device_kind == device_kind && p.architecture == architecture &&
           p.sources == sources;
  });
}

void set_kernels(const std::string& name) {
  unproven_run = name == "unproven";
  if (unproven_run) return set_kernel_policy(KernelPolicy::any);
  set_kernel_policy(enum_from<KernelPolicy>(name, "kernel policy"));
}

const char* refuse_unproven(std::string_view kernel) {
  if (unproven_run) return nullptr;
  if (kernel.ends_with("_mma") && !library_that_multiplies().empty())
    return "its products are cuBLASLt's, which nothing proves: --kernels=unproven takes them";
  static std::mutex mutex;
  static std::map<std::string, bool, std::less<>> answers;
  const std::lock_guard lock(mutex);
  auto known = answers.find(kernel);
  if (known == answers.end()) {
    const cuda_driver::Driver& driver = cuda_device().driver();
    const bool proven =
        is_proven(known_proofs(), driver.is_faked() ? "faked" : "cuda", kernel, driver.architecture());
    known = answers.emplace(kernel, proven).first;
  }
  return known->second ? nullptr : "it has not proven itself on this GPU: `ingot gpu prove` lets it";
}

}  // namespace ingot
