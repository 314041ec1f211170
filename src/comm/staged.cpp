// See staged.h.
#include "comm/staged.h"

#include "tensor/host_copy.h"

namespace ingot {
namespace {

/// An empty tensor has no bytes but is defined.
Tensor on_host(const Buffer& memory, const TensorMeta& meta) {
  static char nothing;
  return Tensor(memory.bytes() > 0 ? memory.data() : &nothing, meta);
}

class Staged final : public Pending::State {
 public:
  Staged(const Tensor& in, const Tensor& out)
      : in_(in), out_(out, in.data == out.data && in.bytes() == out.bytes() ? in_.tensor() : Tensor()) {}
  void start(const std::function<Pending(const Tensor&, const Tensor&)>& start) {
    pending_ = start(in_.tensor(), out_.tensor());
  }
  void wait() override {
    pending_.wait();
    out_.land();
  }

 private:
  StagedOut in_;
  StagedIn out_;
  Pending pending_;  // the last: withdraws before the memory goes
};

}  // namespace

StagedOut::StagedOut(const Tensor& from) : tensor_(from) {
  if (!needs_staging(from)) return;
  memory_ = Buffer(from.bytes());
  Device& device = device_of(from.device);
  device.wait(StreamRole::comm, device.record(StreamRole::compute));
  device.download(memory_.data(), from.data, from.bytes(), StreamRole::comm);
  tensor_ = on_host(memory_, from.meta);
}

StagedIn::StagedIn(const Tensor& to, const Tensor& host) : to_(to), tensor_(to) {
  if (!needs_staging(to)) return;
  free_ = device_of(to.device).record(StreamRole::compute);
  if (!host.defined()) memory_ = Buffer(to.bytes());
  tensor_ = host.defined() ? host : on_host(memory_, to.meta);
}

void StagedIn::land() {
  if (!needs_staging(to_)) return;
  Device& device = device_of(to_.device);
  device.wait(StreamRole::comm, free_);
  upload(tensor_, to_, StreamRole::comm);
  device.wait(StreamRole::compute, device.record(StreamRole::comm));
}

Pending start_staged(const Tensor& in, const Tensor& out,
                     const std::function<Pending(const Tensor&, const Tensor&)>& start) {
  auto staged = std::make_unique<Staged>(in, out);
  staged->start(start);
  return Pending(std::move(staged));
}

}  // namespace ingot
