// Runs an op's CPU kernel for a call whose tensors lie on a device that has no kernel of the op: inputs are
// copied to the host, results back. So every model runs on a device from the first day; kernels replace
// shadows one by one.
#pragma once
#include <map>
#include <vector>

#include "tape/node.h"
#include "tensor/arena.h"

namespace ingot {

class HostShadow {
 public:
  /// Copies what the kernel reads. `call` must outlive this; `host` is an arena of the host.
  HostShadow(Arena& host, const Op& op, const OpCall& call, Direction direction);
  ~HostShadow();
  HostShadow(const HostShadow&) = delete;
  HostShadow& operator=(const HostShadow&) = delete;

  /// The call with its tensors on the host. A transfer is waited for inside.
  const OpCall& call() const { return call_; }
  /// Copies what the kernel has written to the device.
  void finish();

 private:
  Tensor on_host(const Tensor& t, bool is_read);

  Arena& host_;
  Device* device_ = nullptr;              ///< what copies come from; nullptr: nothing is copied
  std::map<const void*, Tensor> copies_;  ///< by the address on the device: a tensor may be there twice
  std::vector<Block> blocks_;
  std::vector<Tensor> in_, out_, d_out_;
  std::vector<GradSlot> d_in_;
  OpCall call_;
  std::vector<std::pair<Tensor, Tensor>> results_;  ///< on the host, on the device
};

}  // namespace ingot
