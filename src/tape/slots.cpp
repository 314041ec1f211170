// See slots.h.
#include "tape/slots.h"

#include <array>

namespace ingot {
namespace {

constexpr unsigned bit(Residency r) {
  return 1u << static_cast<unsigned>(r);
}

/// The states that may follow each state.
constexpr std::array<unsigned, 6> kNext = {
    /* absent      */ bit(Residency::resident),
    /* resident    */ bit(Residency::absent) | bit(Residency::offloading) | bit(Residency::packed),
    /* offloading  */ bit(Residency::resident) | bit(Residency::offloaded) | bit(Residency::absent),
    /* offloaded   */ bit(Residency::prefetching) | bit(Residency::absent),
    /* prefetching */ bit(Residency::resident) | bit(Residency::absent),
    /* packed      */ bit(Residency::resident) | bit(Residency::absent)};

}  // namespace

bool is_legal_move(Residency from, Residency to) {
  return (kNext[static_cast<size_t>(from)] & bit(to)) != 0;
}

Slots::~Slots() {
  for (Slot& v : slots_) {
    if (!v.is_leaf) free(v);
    free_gradient(v);
  }
}

int32_t Slots::add(const TensorMeta& meta) {
  slots_.emplace_back();
  slots_.back().meta = meta;
  slots_.back().device = device_;
  return static_cast<int32_t>(slots_.size()) - 1;
}

Tensor Slots::tensor(int32_t id) const {
  const Slot& v = (*this)[id];
  INGOT_CHECK(v.in_memory(), "value {} is not in memory", id);
  return Tensor(v.data, v.meta, v.device);
}

void Slots::move(Slot& slot, Residency to) {
  INGOT_CHECK(is_legal_move(slot.residency, to), "a buffer that is {} cannot become {}",
              name_of(slot.residency), name_of(to));
  offloaded_ += (to == Residency::offloaded) - (slot.residency == Residency::offloaded);
  slot.residency = to;
}

/// An empty tensor has no bytes but is defined: its address is one that is never read.
void* Slots::address_of(const Block& block) const {
  static char nothing;
  return block.data == nullptr && device_ != DeviceKind::null ? &nothing : block.data;
}

void Slots::allocate(Slot& slot, const char* category, Residency to) {
  const Block block = arena_.allocate(slot.meta.bytes(), category);
  move(slot, to);
  slot.block = block;
  slot.data = address_of(block);
}

void Slots::free(Slot& slot, Residency to) {
  if (slot.residency == to) return;
  const bool had_buffer = slot.has_buffer();
  move(slot, to);
  if (had_buffer) arena_.release(slot.block);
  slot.data = nullptr;
  free_packed(slot);
}

Tensor Slots::allocate_packed(Slot& slot, const TensorMeta& meta) {
  INGOT_CHECK(slot.residency == Residency::resident, "a value that is {}", name_of(slot.residency));
  slot.packed_block = arena_.allocate(meta.bytes(), "in fp8");
  return packed(slot, meta);
}

Tensor Slots::packed(const Slot& slot, const TensorMeta& meta) const {
  return Tensor(slot.packed_block.data, meta, device_);
}

void Slots::keep_packed(Slot& slot) {
  move(slot, Residency::packed);
  arena_.release(slot.block);
  slot.data = nullptr;
}

void Slots::free_packed(Slot& slot) {
  if (slot.packed_block.id != -1) arena_.release(slot.packed_block);
  slot.packed_block = {};
}

void Slots::allocate_gradient(Slot& slot) {
  Gradient& g = slot.gradient;
  g.block = arena_.allocate(slot.meta.bytes(), "gradient");
  g.tensor = Tensor(address_of(g.block), slot.meta.shape, slot.meta.dtype, device_);
  g.written = true;
}

void Slots::free_gradient(Slot& slot) {
  if (slot.gradient.block.id != -1) arena_.release(slot.gradient.block);
  slot.gradient = {};
}

}  // namespace ingot
