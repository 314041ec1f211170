// A communicator that passes everything on to another and counts the bytes that its rank hands to others.
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
  /// As in ops/collective: a ring's share of a sum, gather or scatter; of an all-to-all what leaves the rank.
  double bytes = 0;

 private:
  Pending start(CommRequest r) override {
    const double n = size(), share = (n - 1) / n;
    switch (r.kind) {
      case CommKind::all_reduce:
        bytes += 2 * share * static_cast<double>(r.in.bytes());
        return inner_.all_reduce(r.in, r.out);
      case CommKind::reduce_scatter:
        bytes += share * static_cast<double>(r.in.bytes());
        return inner_.reduce_scatter(r.in, r.out);
      case CommKind::all_gather:
        bytes += share * static_cast<double>(r.out.bytes());
        return inner_.all_gather(r.in, r.out);
      case CommKind::all_to_all: {
        const int64_t rows = r.in.dim(0);
        for (int p = 0; p < size() && rows > 0; ++p)
          if (p != rank())
            bytes += static_cast<double>(r.in.bytes() / rows * r.in_rows[static_cast<size_t>(p)]);
        return inner_.all_to_all(r.in, r.in_rows, r.out, r.out_rows);
      }
      default:
        fail("{} is not counted", name_of(r.kind));
    }
  }
  Pending start_message(const Tensor& t, int peer, bool sends) override {
    if (sends) bytes += static_cast<double>(t.bytes());
    return sends ? inner_.send(t, peer) : inner_.recv(t, peer);
  }
  Communicator& inner_;
  std::unique_ptr<Communicator> owned_;
};

}  // namespace ingot::test
