// See transfers.h.
#include "tape/transfers.h"

#include "base/clock.h"

namespace ingot {
namespace {

int32_t& pending_transfer(Slot& slot, Direction direction) {
  return direction == Direction::forward ? slot.pending_transfer : slot.gradient.pending_transfer;
}
int32_t& pinned_by_send(Slot& slot, Direction direction) {
  return direction == Direction::forward ? slot.pinned_by_send : slot.gradient.pinned_by_send;
}

}  // namespace

void Transfers::begin(Transfer t) {
  for (const int32_t id : t.sent) ++pinned_by_send(slots_[id], t.direction);
  for (const int32_t id : t.received)
    pending_transfer(slots_[id], t.direction) = static_cast<int32_t>(transfers_.size());
  transfers_.push_back(std::move(t));
  kernels_.took_off(static_cast<int32_t>(transfers_.size()) - 1);
}

/// On the null device only memory is released.
void Transfers::complete(int32_t index) {
  if (index < 0 || (*this)[index].complete) return;
  Transfer& t = transfers_[static_cast<size_t>(index)];
  t.complete = true;
  const double begin = monotonic_seconds();
  t.pending.wait();
  kernels_.waited(t.direction, begin);
  kernels_.landed(index);
  for (const int32_t id : t.received) pending_transfer(slots_[id], t.direction) = -1;
  if (t.node >= 0 && kernels_.are_watched()) {
    std::vector<Tensor> tensors;
    for (const int32_t id : t.received)
      tensors.push_back(t.direction == Direction::forward ? slots_.tensor(id) : slots_[id].gradient.tensor);
    kernels_.wrote(t.node, t.direction, tensors);
  }
  for (const int32_t id : t.sent)
    if (--pinned_by_send(slots_[id], t.direction) == 0) on_unpinned_(id, t.direction);
}

void Transfers::complete_all() {
  for (size_t i = 0; i < transfers_.size(); ++i) complete(static_cast<int32_t>(i));
}

void Transfers::complete_noexcept(int32_t transfer) noexcept {
  try {
    complete(transfer);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
  }
}

void Transfers::complete_all_noexcept() noexcept {
  for (size_t i = 0; i < transfers_.size(); ++i) complete_noexcept(static_cast<int32_t>(i));
}

void Transfers::rethrow_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

void Transfers::detach(const Slot& slot) noexcept {
  complete_noexcept(slot.pending_transfer);
  for (size_t i = 0; i < transfers_.size() && slot.pinned_by_send > 0; ++i)
    complete_noexcept(static_cast<int32_t>(i));
}

Tensor Transfers::received(int32_t id) {
  complete(slots_[id].pending_transfer);
  return slots_.tensor(id);
}

}  // namespace ingot
