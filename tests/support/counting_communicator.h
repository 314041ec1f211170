// A communicator that wraps another one and counts the bytes that its rank sends to others.
#pragma once
#include "comm/communicator.h"

namespace ingot::test {

class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& inner)
      : Communicator(inner.name(), inner.rank(), inner.size()), inner_(inner) {}
  explicit CountingCommunicator(std::unique_ptr<Communicator> inner) : CountingCommunicator(*inner) {
    owned_ = std::move(inner);
  }
  /// As in ops/collective: what a ring algorithm sends for a sum, gather or scatter; for an all-to-all what
  /// leaves the rank.
  double bytes = 0;

 private:
  Pending start(CommRequest r) override {
    const double n = size(), ring_part = (n - 1) / n;
    switch (r.kind) {
      case CommKind::all_reduce:
        bytes += 2 * ring_part * static_cast<double>(r.in.bytes());
        break;
      case CommKind::reduce_scatter:
        bytes += ring_part * static_cast<double>(r.in.bytes());
        break;
      case CommKind::all_gather:
        bytes += ring_part * static_cast<double>(r.out.bytes());
        break;
      case CommKind::all_to_all: {
        const int64_t rows = r.in.dim(0);
        for (int p = 0; p < size() && rows > 0; ++p)
          if (p != rank())
            bytes += static_cast<double>(r.in.bytes() / rows * r.in_rows[static_cast<size_t>(p)]);
        break;
      }
      default:
        fail("{} is not counted", name_of(r.kind));
    }
    return start_on(inner_, std::move(r));
  }
  Pending start_message(const Tensor& t, int peer, bool sends) override {
    if (sends) bytes += static_cast<double>(t.bytes());
    return start_message_on(inner_, t, peer, sends);
  }
  Communicator& inner_;
  std::unique_ptr<Communicator> owned_;
};

}  // namespace ingot::test
