// See device_call.h.
#include "tape/device_call.h"

#include <deque>
#include <memory>
#include <utility>

#include "device/host_kernel.h"
#include "tensor/buffer.h"

namespace ingot {
namespace {

/// A call that outlives the tape: its tensors are where the device says when the kernel runs.
class OwnedCall {
 public:
  OwnedCall(const Node& node, const OpCall& call, Direction direction, int64_t scratch_bytes)
      : attr_(node.attr),
        in_(call.in.begin(), call.in.end()),
        out_(call.out.begin(), call.out.end()),
        d_out_(call.d_out.begin(), call.d_out.end()),
        d_in_(call.d_in.begin(), call.d_in.end()),
        scratch_(call.scratch) {
    for (Tensor& t : in_) take(t, false);
    for (Tensor& t : out_) take(t, direction == Direction::forward);
    for (Tensor& t : d_out_) take(t, false);
    for (GradSlot& g : d_in_) take(g.tensor, true);
    addresses_.add(scratch_, scratch_bytes, true);
  }
  OwnedCall(const OwnedCall&) = delete;
  OwnedCall& operator=(const OwnedCall&) = delete;

  const std::vector<KernelRange>& ranges() const { return addresses_.ranges(); }
  bool writes_to_host() const { return writes_to_host_; }
  size_t copies() const { return copies_.size(); }

  void run(void (*kernel)(const OpCall&), std::span<void* const> at) {
    addresses_.bind(at);
    OpCall call{attr_.data(), in_, out_, d_out_, d_in_};
    call.scratch = scratch_;
    kernel(call);
  }

 private:
  /// For the kernel the tensor is one of the host.
  void take(Tensor& t, bool is_written) {
    if (t.data == nullptr || t.bytes() == 0) return void(t.device = DeviceKind::cpu);
    if (std::exchange(t.device, DeviceKind::cpu) != DeviceKind::cpu)
      return addresses_.add(t.data, t.bytes(), is_written);
    if (is_written) return void(writes_to_host_ = true);
    Buffer& copy = copies_.emplace_back(t.bytes());
    std::memcpy(copy.data(), t.data, static_cast<size_t>(t.bytes()));
    t.data = copy.data();
  }

  const AttrBox attr_;
  std::vector<Tensor> in_, out_, d_out_;
  std::vector<GradSlot> d_in_;
  void* scratch_;
  KernelAddresses addresses_;
  std::deque<Buffer> copies_;
  bool writes_to_host_ = false;
};

}  // namespace

void launch_call(Device& device, const Kernel& kernel, const Node& node, const OpCall& call,
                 Direction direction, int64_t scratch_bytes) {
  void (*const function)(const OpCall&) = direction == Direction::forward           ? kernel.forward
                                          : direction == Direction::backward_weight ? kernel.backward_weight
                                                                                    : kernel.backward_input;
  const auto owned = std::make_shared<OwnedCall>(node, call, direction, scratch_bytes);
  for (size_t i = 0; i < owned->copies(); ++i) device.count_unplanned_copy();
  device.launch({owned->ranges(), [owned, function](std::span<void* const> at) { owned->run(function, at); },
                 owned->copies() > 0 || owned->writes_to_host() ? node.op->name : nullptr});
  if (owned->writes_to_host()) device.synchronize(device.record(StreamRole::compute));
}

}  // namespace ingot
