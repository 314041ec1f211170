// The values of a tape: what each is, who still needs it, and where its buffer is. Internal to the tape.
//
// Where a buffer is (Residency), and what moves it:
//
//              allocate                   write to the store
//     absent <-----------> resident <--------------------------> offloading
//                free         ^       backward begins: it stays      |
//                             |                                      | written: free the buffer
//                        read |                                      |
//                        back |               prefetch               v
//                         prefetching <------------------------- offloaded
//
//                     rounded: free the buffer
//     resident <----------------------------------> packed
//                rounded value: free the codes
//
// A value that nobody needs any more becomes absent from every state. Slots::move() checks each transition.
#pragma once
#include <cstdint>
#include <deque>
#include <memory_resource>

#include "tape/node.h"
#include "tape/parameter_access.h"
#include "tensor/arena.h"
#include "tensor/offload.h"

namespace ingot {

enum class Residency : uint8_t {
  absent,       ///< no buffer: freed, or to be recomputed
  resident,     ///< in memory
  offloading,   ///< in memory, and being written to the store
  offloaded,    ///< only in the store
  prefetching,  ///< has a buffer, into which it is being read from the store
  packed        ///< has no buffer but one of its packed form (PackedForm)
};
constexpr auto enum_names(Residency) {
  return names_in_order<Residency>("absent", "resident", "offloading", "offloaded", "prefetching", "packed");
}
bool is_legal_move(Residency from, Residency to);

/// The gradient of a value. Gradients of parameters are not here but in the GradientSink.
struct Gradient {
  Tensor tensor;  ///< defined once written
  Block block;    ///< its buffer; none for a cotangent of the caller
  bool written = false;
  bool release_when_sent = false;  ///< nobody reads it any more, but it is pinned by a send
  int32_t pending_transfer = -1;   ///< the transfer that it arrives with
  int32_t pinned_by_send = 0;      ///< pending transfers that send it
};

struct Slot {
  TensorMeta meta;
  void* data = nullptr;                 ///< while in memory
  Block block;                          ///< the buffer; none for a leaf
  Block packed_block;                   ///< of its packed form; none where it has none
  DeviceKind device = DeviceKind::cpu;  ///< where the data is: the tape's, or the host for a leaf
  bool is_leaf = false;  ///< memory of the caller: never freed, recomputed, offloaded or packed
  bool requires_grad = false;
  Residency residency = Residency::absent;
  SlotFate fate = SlotFate::keep;
  int32_t producer = -1;   ///< the node that computes it; -1: a leaf, or not recorded
  int32_t parameter = -1;  ///< the parameter that it is
  ParameterGatherer* gatherer = nullptr;

  int32_t refs = 0;                    ///< Values that name it
  int32_t saved_refs = 0;              ///< reads by backward and by recomputations still to come
  int32_t pinned_by_send = 0;          ///< pending transfers that send it
  int32_t pending_contributions = 0;   ///< contributions to its gradient still to come
  int32_t deferred_contributions = 0;  ///< of these, weight gradients in the deferred queue

  int32_t pending_transfer = -1;           ///< the transfer that it arrives with
  OffloadStore::Handle store_handle = -1;  ///< its copy in the store; -1 on the null device
  int32_t prefetch_round = -1;             ///< the last SavedValues::prefetch_segment() that saw it
  Gradient gradient;

  bool in_memory() const { return residency == Residency::resident || residency == Residency::offloading; }
  bool has_buffer() const { return in_memory() || residency == Residency::prefetching; }
  bool holds_memory() const { return has_buffer() || residency == Residency::packed; }
  bool is_needed() const { return refs > 0 || saved_refs > 0; }
};

class Slots {
 public:
  Slots(Arena& arena, DeviceKind device) : arena_(arena), device_(device) {}
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  /// Adds an absent value.
  int32_t add(const TensorMeta& meta);
  /// References stay valid while the tape lives.
  Slot& operator[](int32_t id) { return slots_[static_cast<size_t>(id)]; }
  const Slot& operator[](int32_t id) const { return slots_[static_cast<size_t>(id)]; }
  std::pmr::deque<Slot>& all() { return slots_; }
  /// Memory that is given back with the tape: a token of decoding costs few allocations.
  std::pmr::memory_resource* memory() { return &memory_; }

  /// The value's tensor; it must be in memory.
  Tensor tensor(int32_t id) const;
  /// Moves a slot to another state. InternalError if the transition is illegal.
  void move(Slot& slot, Residency to);
  /// Gives the slot a buffer; `to`: resident or prefetching. `category`: see Arena.
  void allocate(Slot& slot, const char* category, Residency to = Residency::resident);
  /// Frees the slot's buffer and its packed form, if it has them; `to`: absent or offloaded.
  void free(Slot& slot, Residency to = Residency::absent);
  /// Gives a resident slot a buffer for its packed form too, which is returned.
  Tensor allocate_packed(Slot& slot, const TensorMeta& meta);
  /// Where that is.
  Tensor packed(const Slot& slot, const TensorMeta& meta) const;
  /// From both to one of them.
  void keep_packed(Slot& slot);
  void free_packed(Slot& slot);
  int64_t offloaded() const { return offloaded_; }

  void allocate_gradient(Slot& slot);
  void free_gradient(Slot& slot);

 private:
  void* address_of(const Block& block) const;

  Arena& arena_;
  const DeviceKind device_;
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::deque<Slot> slots_{&memory_};
  int64_t offloaded_ = 0;
};

}  // namespace ingot
