// The keys and values of all context ranks pass by this one, a rank's block at a time, and in backward the blocks' cotangents
// go home (internal to the folder). Transfers run beside the visits: in the ring the next block comes while this one is
// visited, and cotangents travel while the next visit computes its own.
#pragma once
#include <functional>

#include "comm/communicator.h"

namespace ingot {

struct BlockPass {
  Communicator& comm;
  bool ring = false;   ///< else all blocks are gathered at once
  Tensor own = {};     ///< [rows, W]: this rank's block
  Tensor room = {};    ///< room_rows() x W, of own's type
  Tensor d_own = {};   ///< backward: the sum of all ranks' cotangents of own
  Tensor d_room = {};  ///< backward: d_room_rows() x W, of d_own's type

  /// Rows of memory that a pass needs.
  static int64_t room_rows(bool ring, int ranks, int64_t rows) { return (ring ? 2 : ranks) * rows; }
  static int64_t d_room_rows(bool ring, int ranks, int64_t rows) { return (ring ? 3 : ranks) * rows; }

  /// A block's rank, the block, and in backward where its cotangents must be written.
  using Visit = std::function<void(int rank, const Tensor& block, const Tensor& d_block)>;
  void run(const Visit& visit) const;
  /// Op::rehearse of one that runs this.
  static void dry_run(Communicator& comm, bool ring, bool back);

 private:
  void gather(const Visit& visit) const;
  void pass_around(const Visit& visit) const;
};

}  // namespace ingot
