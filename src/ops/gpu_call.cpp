// See gpu_call.h.
#include "ops/gpu_call.h"

#include <map>
#include <utility>
#include <vector>

namespace ingot {
namespace {

/// The call with all of its tensors on the device.
class DeviceSide {
 public:
  DeviceSide(CudaDevice& device, const OpCall& call, Direction direction) : device_(device), call_(call) {
    const bool forward = direction == Direction::forward;
    for (const Tensor& t : call.in) in_.push_back(there(t, true));
    for (const Tensor& t : call.d_out) d_out_.push_back(there(t, true));
    for (const Tensor& t : call.out) out_.push_back(there(t, !forward, forward));
    for (const GradSlot& g : call.d_in)
      d_in_.push_back({there(g.tensor, g.accumulate, g.wanted()), g.accumulate});
    call_.in = in_, call_.d_out = d_out_, call_.out = out_, call_.d_in = d_in_;
  }
  ~DeviceSide() {
    try {
      for (const auto& [host, memory] : copies_) device_.give_back(memory);
    } catch (...) {  // a device that fails says so in every later call
    }
  }
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  const OpCall& call() const { return call_; }
  /// Copies what was written for the host, and waits for it.
  void finish() {
    if (results_.empty()) return;
    for (const auto& [host, copy] : results_) {
      device_.begin_download(host.data, copy, host.bytes(), StreamRole::compute);
      device_.count_unplanned_copy();
    }
    device_.synchronize(device_.record(StreamRole::compute));
  }

 private:
  Tensor there(const Tensor& t, bool is_read, bool is_written = false) {
    if (!t.defined() || !t.on_host() || t.bytes() == 0) return t;
    const auto [at, is_new] = copies_.try_emplace({t.data, t.bytes()}, nullptr);
    if (is_new) {
      at->second = device_.borrow(t.bytes());
      if (is_read) {
        device_.upload(at->second, t.data, t.bytes());
        device_.count_unplanned_copy();
      }
    }
    if (is_written) results_.emplace_back(t, at->second);
    Tensor copy = t;
    copy.data = at->second, copy.device = device_.kind();
    return copy;
  }

  CudaDevice& device_;
  OpCall call_;
  std::map<std::pair<const void*, int64_t>, void*> copies_;  ///< by address and size on the host
  std::vector<Tensor> in_, out_, d_out_;
  std::vector<GradSlot> d_in_;
  std::vector<std::pair<Tensor, const void*>> results_;
};

}  // namespace

void launch_on(CudaDevice& device, void (*launches)(const OpCall&), const OpCall& call, Direction direction) {
  DeviceSide side(device, call, direction);
  {
    const LaunchOn on(&device);
    launches(side.call());
  }
  side.finish();
}

}  // namespace ingot
