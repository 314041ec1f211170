// See block_pass.h.
#include "ops/context/block_pass.h"

#include <cstring>

#include "ops/collective/transfer.h"
#include "ops/common.h"
#include "tensor/arena.h"

namespace ingot {

void BlockPass::run(const Visit& visit) const {
  ring ? pass_around(visit) : gather(visit);
}

void BlockPass::gather(const Visit& visit) const {
  const int64_t rows = own.dim(0);
  const auto part = [&](const Tensor& all, int rank) {
    return all.defined() ? all.slice(rank * rows, (rank + 1) * rows) : Tensor();
  };
  comm.all_gather(own, blocks).wait();
  for (int r = 0; r < comm.size(); ++r) visit(r, part(blocks, r), part(d_blocks, r));
  if (d_own.defined()) comm.reduce_scatter(d_blocks, d_own).wait();
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
    const Tensor arriving = part(blocks, step % 2);
    if (step + 1 < n) {
      sent = comm.send(block, next);
      coming = comm.recv(arriving, previous);
    }
    const Tensor mine = back ? part(d_blocks, 0) : Tensor(),
                 sum = back ? part(d_blocks, 1 + step % 2) : Tensor();
    visit((comm.rank() + n - step) % n, block, mine);
    if (back) {
      d_coming.wait();
      d_sent.wait();
      if (step == 0)
        std::memcpy(sum.data, mine.data, static_cast<size_t>(mine.bytes()));
      else
        add_tensor(sum, mine);
      d_sent = comm.send(sum, next);
      d_coming = comm.recv(step + 1 < n ? part(d_blocks, 1 + (step + 1) % 2) : d_own, previous);
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

BlockPass ContextMemory::pass(const ContextAttentionAttr& attr, DType type, bool back) {
  const int64_t rows = attr.context.rows->count(), width = kv_width(attr.attention);
  const int ranks = attr.context.rows->ranks();
  BlockPass p{group_of(attr.context.comm), attr.ring};
  p.own = take(rows, width, type);
  p.blocks = take(BlockPass::block_rows(attr.ring, ranks, rows), width, type);
  if (!back) return p;
  const DType sum = statistic_of(type);
  p.d_own = take(rows, width, sum);
  p.d_blocks = take(BlockPass::d_block_rows(attr.ring, ranks, rows), width, sum);
  return p;
}

ContextScratch ContextMemory::kernel(const ContextAttentionAttr& attr, bool back) {
  const AttentionAttr& a = attr.attention;
  const int64_t rows = attr.context.rows->count();
  ContextScratch p;
  if (back) {
    p.d_q = take(rows, a.heads * a.head_width, DType::f32),
    p.partial_d_q = take(rows, a.heads * a.head_width, DType::f32);
    p.partial_d_kv = take(rows, kv_width(a), DType::f32);
  } else {
    p.o = take(rows, a.heads * a.values(), DType::f32),
    p.partial_o = take(rows, a.heads * a.values(), DType::f32);
    p.partial_lse = take(rows, a.heads, DType::f32);
  }
  return p;
}

Tensor ContextMemory::take(int64_t rows, int64_t width, DType type) {
  const int64_t at = bytes_;
  bytes_ += round_up_block(rows * width * size_of(type));
  return {memory_ != nullptr ? memory_ + at : nullptr, {rows, width}, type};
}

void pack_keys(const AttentionAttr& a, const Tensor& qkv, const Tensor& own) {
  const int64_t size = size_of(qkv.dtype()), row = a.packed_width() * size, block = kv_width(a) * size;
  const auto* from = static_cast<const std::byte*>(qkv.data) + a.heads * a.head_width * size;
  for (int64_t r = 0; r < qkv.dim(0); ++r)
    std::memcpy(static_cast<std::byte*>(own.data) + r * block, from + r * row, static_cast<size_t>(block));
}

}  // namespace ingot
