// Where kernels of GPUs have proven that they have the CPU's bits, or, on tensor cores, that they are near
// the reference and treat every row alike: the op table ran them on a device of that kind and architecture,
// from these very sources. Elsewhere they are off, since nothing that was never run
// may compute in silence; the policy strict refuses the op by name, and `ingot gpu prove` runs the table.
//
// Proofs come with the program (docs/gpu/proven.json when it was built) and from the user's own file, which
// `ingot gpu prove` writes.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct KernelProof {
  std::string kernel;        ///< one of gpu_kernel_names()
  std::string sources;       ///< kernel_sources() of the program that ran it
  std::string device_kind;   ///< "cuda"; "faked": of a driver without a GPU, in tests
  std::string architecture;  ///< "sm_90"
  std::string device, driver, program, date;
  int64_t cases = 0;  ///< of the op table, all passed
};

/// The hash of the sources that this program's kernel was built from (cmake/IngotGpuProof.cmake); "" where
/// there is none of this name.
std::string kernel_sources(std::string_view kernel);

/// Reads what write_proofs() wrote. Error, which names `path`, for other text, and for a proof that somebody
/// changed.
std::vector<KernelProof> read_proofs(const std::string& text, const std::string& path);
std::string write_proofs(std::span<const KernelProof> proofs);
/// The newer proof of a kernel on a kind and an architecture replaces the older one.
void add_proofs(std::vector<KernelProof>& to, std::span<const KernelProof> more);

/// The user's own file: $INGOT_GPU_PROOFS, or ingot/gpu-proofs.json in $XDG_DATA_HOME or ~/.local/share; ""
/// where there is no home.
std::string own_proofs_path();
/// Those that came with the program and the user's own, read once.
const std::vector<KernelProof>& known_proofs();
bool is_proven(std::span<const KernelProof> proofs, std::string_view device_kind, std::string_view kernel,
               std::string_view architecture);

/// The kernels that a run may use, as --kernels names them: a KernelPolicy (tape/op.h), or "unproven": as
/// any, and kernels of a GPU run that have not proven themselves, for tests. Of the process. Error for
/// another.
void set_kernels(const std::string& name);

/// Why the kernel is off on the process's CUDA device; nullptr: it has proven itself, or need not.
const char* refuse_unproven(std::string_view kernel);

}  // namespace ingot
