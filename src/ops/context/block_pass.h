// How ops/context/context_attention visits the keys and values of all context ranks, one rank's block at a
// time, and how the cotangents of the blocks return in backward. Transfers overlap with the visits: in the
// ring the next block arrives while this one is visited, and cotangents are sent while the next visit
// computes its own.
#pragma once
#include <functional>

#include "comm/communicator.h"
#include "ops/context/context_attention.h"

namespace ingot {

struct BlockPass {
  Communicator& comm;
  bool ring = false;     ///< else all blocks are gathered at once
  Tensor own = {};       ///< [rows, W]: this rank's block
  Tensor blocks = {};    ///< scratch, block_rows() x W, of own's type
  Tensor d_own = {};     ///< backward: the sum of all ranks' cotangents of own
  Tensor d_blocks = {};  ///< backward: scratch, d_block_rows() x W, of d_own's type

  /// Rows of memory that a pass needs.
  static int64_t block_rows(bool ring, int ranks, int64_t rows) { return (ring ? 2 : ranks) * rows; }
  static int64_t d_block_rows(bool ring, int ranks, int64_t rows) { return (ring ? 3 : ranks) * rows; }

  /// A block's rank, the block, and in backward where its cotangents must be written.
  using Visit = std::function<void(int rank, const Tensor& block, const Tensor& d_block)>;
  void run(const Visit& visit) const;
  /// Op::dry_run of an op that runs this.
  static void dry_run(Communicator& comm, bool ring, bool back);

 private:
  void gather(const Visit& visit) const;
  void pass_around(const Visit& visit) const;
};

/// Of a row's keys and values: G (K + V), keys first.
inline int64_t kv_width(const AttentionAttr& a) {
  return a.kv_heads * (a.head_width + a.values());
}
/// This rank's block from its packed rows.
void pack_keys(const AttentionAttr& attr, const Tensor& qkv, const Tensor& own);

/// Memory of the fast kernel, fp32.
struct ContextScratch {
  Tensor o, partial_o, partial_lse;       ///< forward: the merged results so far, and partial ones
  Tensor d_q, partial_d_q, partial_d_kv;  ///< backward
};

/// Hands out a call's scratch: first the pass's, then the kernel's. Over nullptr it only counts.
class ContextMemory {
 public:
  explicit ContextMemory(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  BlockPass pass(const ContextAttentionAttr& attr, DType type, bool back);
  ContextScratch kernel(const ContextAttentionAttr& attr, bool back);
  int64_t bytes() const { return bytes_; }

 private:
  Tensor take(int64_t rows, int64_t width, DType type);
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace ingot
