// See block_pass.h.
#include "ops/context/block_pass.h"

#include <cstring>

#include "ops/collective/transfer.h"

namespace ingot {

void BlockPass::run(const Visit& visit) const {
  ring ? pass_around(visit) : gather(visit);
}

void BlockPass::gather(const Visit& visit) const {
  const int64_t rows = own.dim(0);
  const auto part = [&](const Tensor& all, int rank) {
    return all.defined() ? all.slice(rank * rows, (rank + 1) * rows) : Tensor();
  };
  comm.all_gather(own, room).wait();
  for (int r = 0; r < comm.size(); ++r) visit(r, part(room, r), part(d_room, r));
  if (d_own.defined()) comm.reduce_scatter(d_room, d_own).wait();
}

/// Every rank starts the same messages in the same order: step by step the block, then its cotangents.
void BlockPass::pass_around(const Visit& visit) const {
  const int n = comm.size(), next = (comm.rank() + 1) % n, previous = (comm.rank() + n - 1) % n;
  const int64_t rows = own.dim(0);
  const bool back = d_own.defined();
  const auto part = [&](const Tensor& all, int i) { return all.slice(i * rows, (i + 1) * rows); };
  Tensor block = own;
  Pending sent, coming, d_sent, d_coming;
  for (int step = 0; step < n; ++step) {
    const Tensor arriving = part(room, step % 2);
    if (step + 1 < n) {
      sent = comm.send(block, next);
      coming = comm.recv(arriving, previous);
    }
    const Tensor mine = back ? part(d_room, 0) : Tensor(), sum = back ? part(d_room, 1 + step % 2) : Tensor();
    visit((comm.rank() + n - step) % n, block, mine);
    if (back) {
      d_coming.wait();
      d_sent.wait();
      if (step == 0)
        std::memcpy(sum.data, mine.data, static_cast<size_t>(mine.bytes()));
      else
        add_tensor(sum, mine);
      d_sent = comm.send(sum, next);
      d_coming = comm.recv(step + 1 < n ? part(d_room, 1 + (step + 1) % 2) : d_own, previous);
    }
    coming.wait();
    sent.wait();
    block = arriving;
  }
  d_coming.wait();
  d_sent.wait();
}

void BlockPass::dry_run(Communicator& comm, bool ring, bool back) {
  if (!ring) {
    comm.dry_run().wait();
    if (back) comm.dry_run().wait();
    return;
  }
  Pending coming, d_coming;
  for (int step = 0; step < comm.size(); ++step) {
    if (step + 1 < comm.size()) coming = comm.dry_run();
    if (back) {
      d_coming.wait();
      d_coming = comm.dry_run();
    }
    coming.wait();
  }
  d_coming.wait();
}

}  // namespace ingot
