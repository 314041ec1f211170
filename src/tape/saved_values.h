// What becomes of a value between forward and backward: its buffer is freed when nobody needs it any more,
// and by the policy before that, to be recomputed (recompute.cpp), read back from the store (offload.cpp) or
// widened from FP8 (packed.cpp). Internal to the tape.
#pragma once
#include <exception>
#include <utility>
#include <vector>

#include "tape/forward.h"

namespace ingot {

class SavedValues {
 public:
  SavedValues(TapeState& state, KernelCalls& kernels, Transfers& transfers, Forward& forward)
      : state_(state), slots_(state.slots), kernels_(kernels), transfers_(transfers), forward_(forward) {}
  ~SavedValues();
  SavedValues(const SavedValues&) = delete;
  SavedValues& operator=(const SavedValues&) = delete;

  /// Saves what the node's backward passes read, and what recomputing its outputs reads.
  void save_reads(Node& node);
  void unsave(int32_t id);
  void drop_ref(int32_t id);
  /// Frees a value that nobody needs, and one that the policy does not keep. Is called by destructors: what
  /// rounding it or handing it to the store threw, rethrow_failure() throws, and the value stays whole.
  void release_if_unused(int32_t id);
  void rethrow_failure() const;
  /// Puts a value that backward reads into memory: recomputes it, reads it back, or widens it.
  void materialise(int32_t id);

  /// Frees what segments before this one began to write to the store: the copy had a whole segment's time.
  void finish_offloads(int32_t before_segment);
  /// Backward begins with the last segments, so what is still being written stays in memory.
  void cancel_offloads();
  /// Begins to read back what the segment's backward reads.
  void prefetch_segment(const Segment& segment);

 private:
  void save(int32_t id) { ++slots_[id].saved_refs; }
  void free_buffer(Slot& slot, Residency to = Residency::absent);
  /// The node that computes the outputs that are not -1: the given one, or its op's partial recompute.
  Node recompute_plan(const Node& node) const;
  void release_recompute_inputs(Node& node);
  void recompute(Node& producer);
  /// The exception that is being handled; the first one stays.
  void keep_failure() noexcept;
  void pack(Slot& slot) noexcept;
  void unpack(Slot& slot);
  void run(const PackedForm::Step& step, const Slot& slot, const Tensor& from, const Tensor& to);
  void start_offload(int32_t id) noexcept;
  void prefetch(int32_t id);
  void finish_prefetch(Slot& slot);
  void discard_copy(Slot& slot);

  TapeState& state_;
  Slots& slots_;
  KernelCalls& kernels_;
  Transfers& transfers_;
  Forward& forward_;
  std::vector<std::pair<int32_t, int32_t>> offloading_;  ///< value, the segment in which its writing began
  int32_t prefetch_round_ = 0;
  std::exception_ptr failure_;
};

}  // namespace ingot
