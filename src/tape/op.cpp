// See op.h: kernel selection and the arithmetic of calls.
#include "tape/op.h"

#include <atomic>
#include <mutex>
#include <set>

#include "base/log.h"
#include "tensor/host_copy.h"

namespace ingot {
namespace {

std::atomic<KernelPolicy> policy{KernelPolicy::strict};

bool is_double(const OpCall& call) {
  for (const auto& list : {call.in, call.out, call.d_out})
    for (const Tensor& t : list)
      if (t.defined() && t.dtype() == DType::f64) return true;
  return false;
}

/// Once for each op and place.
void warn_of_slow(const Op& op, const std::string& place, const std::string& reasons) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  const std::string what = fmt::format("op '{}' runs {}", op.name, place);
  if (seen.insert(what).second)
    log::warn("{}: {}", what, reasons.empty() ? "no other kernel exists" : reasons);
}

/// The first input whose format the kernel does not read, as a reason to refuse the call; else "".
std::string unreadable_input(const Op& op, const Kernel& kernel, const OpCall& call) {
  for (size_t i = 0; i < call.in.size(); ++i) {
    const WeightFormat* format = call.in[i].meta.format;
    if (format == nullptr) continue;
    const uint32_t readable = call.in[i].rounded() ? kernel.formats.rounded
                              : call.d_out.empty() ? kernel.formats.packed
                                                   : 0;
    if (!(readable >> i & 1u)) return fmt::format("its {} is {}", op.inputs[i].name, format->name);
  }
  return {};
}

/// The first kernel of the device that takes a call with the op's inputs; nullptr: none does, for `reasons`.
const Kernel* first_that_takes(const Op& op, std::span<const Kernel> kernels, const OpCall& call,
                               DeviceKind device, std::string& reasons) {
  for (const Kernel& kernel : kernels) {
    if (kernel.device != device) continue;
    std::string reason = unreadable_input(op, kernel, call);
    if (reason.empty()) {
      const char* refused = kernel.refuse(call);
      if (refused == nullptr) return &kernel;
      reason = refused;
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", kernel.name, reason);
  }
  return nullptr;
}

std::span<const Kernel> all_but_the_reference(const Op& op) {
  return {op.kernels.data(), op.kernels.size() - 1};
}

}  // namespace

void set_kernel_policy(KernelPolicy p) {
  policy = p;
}
KernelPolicy kernel_policy() {
  return policy;
}

const Kernel& select_kernel(const Op& op, const OpCall& call) {
  const Kernel& reference = op.kernels.back();
  for (size_t i = 0; i < call.in.size(); ++i)
    INGOT_CHECK(call.in[i].meta.format == nullptr || op.inputs[i].kind != InputKind::activation,
                "op '{}': its {} is {}, a weight", op.name, op.inputs[i].name, call.in[i].meta.str());
  const KernelPolicy p = policy.load(std::memory_order_relaxed);
  // Double is the precision parity is judged in; it exists on the reference only.
  if (p == KernelPolicy::reference || is_double(call)) return reference;
  std::string reasons;
  if (const Kernel* k = first_that_takes(op, all_but_the_reference(op), call, DeviceKind::cpu, reasons))
    return *k;
  if (p == KernelPolicy::strict)
    throw Error(
        fmt::format("no fast kernel for op '{}' ({})", op.name, reasons.empty() ? "none exists" : reasons),
        "--kernels=any runs it on the slow reference instead and says so");
  warn_of_slow(op, "on its slow reference kernel", reasons);
  return reference;
}

const Kernel* select_device_kernel(const Op& op, const OpCall& call, DeviceKind device) {
  const KernelPolicy p = kernel_policy();
  std::string reasons;
  if (p != KernelPolicy::reference)
    if (const Kernel* k = first_that_takes(op, all_but_the_reference(op), call, device, reasons)) return k;
  // A message is copied to the host and back on every device (docs/gpu.md, several ranks).
  if (op.communicates() && reasons.empty()) return nullptr;
  if (const Device& d = device_of(device); d.runs_host_kernels() && !op.communicates())
    if (p != KernelPolicy::strict || d.owns_host_kernels()) return &select_kernel(op, call);
  if (p == KernelPolicy::strict)
    throw Error(fmt::format("op '{}' has no kernel on device '{}'{}", op.name, name_of(device),
                            reasons.empty() ? "" : fmt::format(" for this call ({})", reasons)),
                "--kernels=any runs it on the host instead, with copies to and fro, and says so");
  warn_of_slow(op, fmt::format("on the host, with copies to device '{}' and back", name_of(device)), reasons);
  return nullptr;
}

const Kernel* select_pair_kernel(const OpPair& pair, const OpCall& call, DeviceKind device) {
  std::string reasons;  // which nobody needs: there is another way
  if (kernel_policy() == KernelPolicy::reference) return nullptr;
  return first_that_takes(pair.first, pair.kernels, call, device, reasons);
}

uint32_t early_slots(const Op& op, const void* attr) {
  return op.early_gradients != nullptr ? op.early_gradients(attr) : 0;
}

double tensor_bytes(const OpCall& call) {
  double bytes = 0;
  for (const auto& list : {call.in, call.out})
    for (const Tensor& t : list) bytes += t.defined() ? static_cast<double>(t.bytes()) : 0;
  return bytes;
}

int64_t rows_before_end(const Tensor& offsets, int64_t rows) {
  if (!offsets.defined()) return rows;
  const int64_t end = HostCopy(offsets).as<int32_t>()[offsets.numel() - 1];
  INGOT_CHECK(end >= 0 && end <= rows, "offsets end at {}, beyond the capacity of {} rows", end, rows);
  return end;
}

void clear_beyond_live_rows(const Op& op, const OpCall& call) {
  if (op.live_rows == nullptr) return;
  const LiveRows live = op.live_rows(call);
  const auto clear = [&](const Tensor& t) {
    if (!t.defined() || t.dim(0) == live.count) return;
    const Tensor rest = t.slice(live.count, t.dim(0));
    set_zero(rest);
  };
  for (uint32_t i = 0; call.d_out.empty() && i < call.out.size(); ++i)
    if (live.outputs & slot_bit(i)) clear(call.out[i]);
  for (uint32_t i = 0; i < call.d_in.size(); ++i)
    if ((live.gradients & slot_bit(i)) && call.d_in[i].wanted() && !call.d_in[i].accumulate)
      clear(call.d_in[i].tensor);
}

double touched_bytes(const OpCall& call) {
  double bytes = tensor_bytes(call);
  for (const Tensor& t : call.d_out) bytes += t.defined() ? static_cast<double>(t.bytes()) : 0;
  for (const GradSlot& g : call.d_in)
    bytes += g.wanted() ? static_cast<double>(g.tensor.bytes()) * (g.accumulate ? 2 : 1) : 0;
  return bytes;
}

}  // namespace ingot
