// Messages through memory that the ranks of a node share (MPI windows, comm/mpi_world.cpp). They are faster
// than those of the MPI libraries, which copy through internal queues (docs/parallel.md has figures).
//
// Every ordered pair of ranks has a ring buffer for each stream (tag modulo 8; Exchange has separate streams
// for pieces, sums, and pieces of single messages). The sender copies into it what fits, the receiver copies
// out what has arrived; both only in done(), so a rank that computes moves data between its ops
// (Communicator::progress()). A message is a frame (tag, bytes, data); only a request with the tag of the
// frame at the head takes it. So a receiver must not wait for a message before it has polled all earlier ones
// of the stream: Exchange guarantees it, since the ranks of a group start their operations in one order.
// Short messages and those to other nodes use another transport.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "comm/messages.h"

namespace ingot {

class SharedTransport final : public Transport {
 public:
  /// Bytes of the longest message that the other transport carries between ranks of a node.
  static constexpr int64_t kShort = 4000;

  /// Bytes of shared memory per rank, in a group of `ranks`. Pages of unused rings are never touched.
  static int64_t region_bytes(int ranks);
  /// Initialises a region; call before any rank of the group uses it.
  static void prepare(std::byte* region, int ranks);

  /// `regions[r]`: the region of rank r, aligned to 64 bytes; nullptr: on another node. They must outlive
  /// this.
  SharedTransport(int rank, std::vector<std::byte*> regions, std::unique_ptr<Transport> others);

  Request send(int to, int tag, const void* data, int64_t bytes) override;
  Request recv(int from, int tag, void* data, int64_t bytes) override;
  /// Requests of one stream and tag must be polled in the order in which they were posted.
  bool done(Request request) override;

 private:
  struct Counters;
  /// One end of a ring.
  struct End {
    Counters* counters = nullptr;
    std::byte* data = nullptr;
    std::deque<size_t> queue;  ///< sends, oldest first
    int32_t tag = -1;          ///< of the frame that is being received; -1: none
    int64_t bytes = 0;         ///< of that frame
  };
  struct Message {
    End* end = nullptr;
    bool sends = false, finished = false;
    int32_t tag = 0;
    std::byte* data = nullptr;
    int64_t bytes = 0, moved = 0;
    bool announced = false;  ///< the head of its frame is in the ring
  };

  static int64_t ring_bytes(int ranks);
  bool shares_memory(int rank, int64_t bytes) const;
  Request post(Message message);
  void push(End& end);
  bool push(Message& message);
  void take(Message& message);
  void write(End& end, uint64_t at, const void* from, int64_t bytes) const;
  void read(const End& end, uint64_t at, void* to, int64_t bytes) const;

  int rank_;
  std::vector<std::byte*> regions_;
  std::unique_ptr<Transport> others_;
  uint64_t ring_;              ///< bytes of one ring
  std::vector<End> out_, in_;  ///< by peer and stream
  std::vector<Message> slots_;
  std::vector<size_t> free_;
};

}  // namespace ingot
