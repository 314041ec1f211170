// A call of an op on a device, for tests that hold its tensors on the host.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "device/device.h"
#include "tape/op.h"

namespace ingot::test {

/// A call whose tensors are copied to a device, with what lies beyond each, and back.
class OnDevice {
 public:
  OnDevice(DeviceKind kind, const Op& op, const OpCall& call, int64_t beyond)
      : kind_(kind), beyond_(beyond), call_(call), lists_{copy(call.in), copy(call.out), copy(call.d_out)} {
    for (const GradSlot& g : call.d_in) d_in_.push_back({copy(g.tensor), g.accumulate});
    call_.in = lists_[0], call_.out = lists_[1], call_.d_out = lists_[2], call_.d_in = d_in_;
    const int64_t scratch = op.scratch_bytes != nullptr ? op.scratch_bytes(call) : 0;
    if (call.scratch != nullptr && scratch > 0) {
      scratch_ = call.scratch;
      call_.scratch = there(call.scratch, scratch);
    }
  }
  ~OnDevice() {
    for (const auto& [host, block] : blocks_) device().release(block.data, block.bytes);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  const OpCall& call() const { return call_; }
  void copy_back() {
    for (const auto& [host, block] : blocks_)
      if (host != scratch_) device().download(host, block.data, block.bytes);
  }

 private:
  struct Block {
    void* data;
    int64_t bytes;
  };
  Device& device() const { return device_of(kind_); }
  void* there(void* host, int64_t bytes) {
    const auto [at, is_new] = blocks_.try_emplace(host, Block{nullptr, bytes});
    if (is_new) {
      at->second.data = device().allocate(bytes);
      device().upload(at->second.data, host, bytes);
    }
    if (bytes != at->second.bytes) ADD_FAILURE() << "two tensors at one address";
    return at->second.data;
  }
  Tensor copy(const Tensor& t) {
    Tensor moved = t;
    if (t.defined()) moved.data = there(t.data, t.bytes() + beyond_), moved.device = kind_;
    return moved;
  }
  std::vector<Tensor> copy(std::span<const Tensor> list) {
    std::vector<Tensor> moved;
    for (const Tensor& t : list) moved.push_back(copy(t));
    return moved;
  }

  const DeviceKind kind_;
  const int64_t beyond_;
  std::map<void*, Block> blocks_;
  OpCall call_;
  std::array<std::vector<Tensor>, 3> lists_;
  std::vector<GradSlot> d_in_;
  void* scratch_ = nullptr;
};

}  // namespace ingot::test
