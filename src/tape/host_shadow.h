// Runs an op's CPU kernel for a call whose tensors lie on a device: inputs are copied to the host, results
// back. So ops run that talk to other ranks, whose transports take memory of the host: in the stream
// `comm`, with copies that are planned, and results that may arrive late. So does, on a device with few
// kernels, every op that has none there; kernels replace these shadows one by one.
#pragma once
#include <map>
#include <vector>

#include "comm/communicator.h"
#include "tape/node.h"
#include "tensor/arena.h"

namespace ingot {

class HostShadow {
 public:
  /// Copies what the kernel reads. `call` must outlive its run; `host` is an arena of the host.
  HostShadow(Arena& host, const Op& op, const OpCall& call, Direction direction);
  ~HostShadow();
  HostShadow(const HostShadow&) = delete;
  HostShadow& operator=(const HostShadow&) = delete;

  /// The call with its tensors on the host. Where the op transfers, its results may arrive later.
  const OpCall& call() const { return call_; }
  /// Waits for them, then copies what the kernel has written to the device.
  void finish();

 private:
  Tensor on_host(const Tensor& t, bool is_read);
  StreamRole stream() const { return talks_ ? StreamRole::comm : StreamRole::compute; }
  void count_copy() const;

  Arena& host_;
  const bool talks_;  ///< to other ranks
  Pending pending_;
  Device* device_ = nullptr;              ///< what copies come from; nullptr: nothing is copied
  std::map<const void*, Tensor> copies_;  ///< by the address on the device: a tensor may be there twice
  std::vector<Block> blocks_;
  std::vector<Tensor> in_, out_, d_out_;
  std::vector<GradSlot> d_in_;
  OpCall call_;
  std::vector<std::pair<Tensor, Tensor>> results_;  ///< on the host, on the device
  DeviceEvent free_;  ///< nothing that was asked for before uses the results' memory any more
};

}  // namespace ingot
