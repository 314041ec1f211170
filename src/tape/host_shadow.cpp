// See host_shadow.h.
#include "tape/host_shadow.h"

#include <utility>

#include "tensor/host_copy.h"

namespace ingot {

HostShadow::HostShadow(Arena& host, const Op& op, const OpCall& call, Direction direction)
    : host_(host), talks_(op.communicates()) {
  const bool forward = direction == Direction::forward;
  for (const Tensor& t : call.in) in_.push_back(on_host(t, true));
  for (const Tensor& t : call.d_out) d_out_.push_back(on_host(t, true));
  for (const Tensor& t : call.out) {
    out_.push_back(on_host(t, !forward));
    if (forward && t.defined() && !t.on_host()) results_.emplace_back(out_.back(), t);
  }
  for (const GradSlot& g : call.d_in) {
    d_in_.push_back({on_host(g.tensor, g.accumulate), g.accumulate});
    if (g.wanted() && !g.tensor.on_host()) results_.emplace_back(d_in_.back().tensor, g.tensor);
  }
  if (device_ != nullptr) device_->synchronize(device_->record(stream()));
  if (!results_.empty()) free_ = device_of(results_[0].second.device).record(StreamRole::compute);
  call_ = {call.attr_data, in_, out_, d_out_, d_in_};
  const int64_t scratch = op.scratch_bytes != nullptr ? op.scratch_bytes(call_) : 0;
  if (scratch > 0) blocks_.push_back(host_.allocate(scratch, "scratch"));
  if (call.pending != nullptr) call_.pending = &pending_;
  call_.scratch = scratch > 0 ? blocks_.back().data : nullptr;
}

HostShadow::~HostShadow() {
  for (const Block& block : blocks_) host_.release(block);
}

Tensor HostShadow::on_host(const Tensor& t, bool is_read) {
  if (!t.defined() || t.on_host()) return t;
  static char nothing;  // an empty tensor has no bytes but is defined
  if (t.bytes() == 0) return Tensor(&nothing, t.meta);
  const auto [at, is_new] = copies_.try_emplace(t.data);
  if (is_new) {
    blocks_.push_back(host_.allocate(t.bytes(), "shadow"));
    at->second = Tensor(blocks_.back().data, t.meta);
    if (is_read) {
      if (device_ == nullptr) {
        device_ = &device_of(t.device);
        if (talks_) device_->wait(StreamRole::comm, device_->record(StreamRole::compute));
      }
      count_copy();
      device_->begin_download(at->second.data, t.data, t.bytes(), stream());
    }
  }
  INGOT_CHECK(at->second.bytes() == t.bytes(), "{} and {} at one address", at->second.meta.str(),
              t.meta.str());
  return Tensor(at->second.data, t.meta);
}

void HostShadow::finish() {
  pending_.wait();
  if (results_.empty()) return;
  device_ = &device_of(results_[0].second.device);
  if (talks_) device_->wait(StreamRole::comm, free_);
  for (const auto& [host, there] : results_) {
    upload(host, there, stream());
    count_copy();
  }
  if (talks_) device_->wait(StreamRole::compute, device_->record(StreamRole::comm));
}

void HostShadow::count_copy() const {
  if (!talks_) device_->count_unplanned_copy();
}

}  // namespace ingot
