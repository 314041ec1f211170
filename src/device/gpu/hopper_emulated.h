// hopper.h for the emulator.
#pragma once
#include <cstring>

#include "device/gpu/emulated_hopper.h"

#define INGOT_GRID_CONSTANT
#define INGOT_DYNAMIC_SHARED(type, name) \
  auto& name = *static_cast<type*>(::ingot::emulator::dynamic_memory(sizeof(type)))

namespace ingot::INGOT_ISA {

constexpr bool kIsHopper = true;

inline TensorMap tensor_map(const TiledMatrices& matrices) {
  return emulator::tensor_map(matrices);
}

INGOT_INLINE void end_with_error() {}

inline uint32_t shared_address(const void* at) {
  return emulator::address_in_dynamic_memory(at);
}
INGOT_INLINE int uniform_over_warp(int x) {
  return x;
}

inline void begin_barrier(Barrier& b, unsigned arrivals,
                          const std::source_location& where = std::source_location::current()) {
  emulator::begin_barrier(&b, arrivals, where);
}
inline void publish_barriers() {
  emulator::publish_barriers();
}
inline void expect_bytes(Barrier& b, unsigned bytes,
                         const std::source_location& where = std::source_location::current()) {
  emulator::arrive(&b, bytes, where);
}
inline void arrive(Barrier& b, const std::source_location& where = std::source_location::current()) {
  emulator::arrive(&b, 0, where);
}
inline void await_phase(Barrier& b, unsigned parity,
                        const std::source_location& where = std::source_location::current()) {
  emulator::await_phase(&b, parity, where);
}
inline void load_tile(void* to, const TensorMap& map, Barrier& b, int64_t column, int64_t row, int64_t matrix,
                      const std::source_location& where = std::source_location::current()) {
  emulator::load_tile({to, map, &b, column, row, matrix}, where);
}

template <int kRegisters>
INGOT_INLINE void take_registers() {}
template <int kRegisters>
INGOT_INLINE void leave_registers() {}

template <int kCount>
inline void begin_products(float (&)[kCount]) {
  emulator::begin_products();
}
inline void commit_products(const std::source_location& where = std::source_location::current()) {
  emulator::commit_products(where);
}
template <int kGroups, int kCount>
inline void await_products(float (&)[kCount],
                           const std::source_location& where = std::source_location::current()) {
  emulator::await_products(kGroups, where);
}
template <int kAlongRowsA, int kAlongRowsB, int kCount>
inline void add_product(float (&sums)[kCount], WarpgroupOperand a, WarpgroupOperand b,
                        const std::source_location& where = std::source_location::current()) {
  constexpr int kColumns = kCount * kWarpgroupThreads / kWarpgroupRows;
  emulator::add_product({a.bits, b.bits, kColumns, kAlongRowsA == 1, kAlongRowsB == 1}, sums, where);
}

inline void clear_16_bytes(void* to, const std::source_location& where = std::source_location::current()) {
  emulator::require_aligned(to, 16, where);
  std::memset(to, 0, 16);
  emulator::note_store();
}
inline void publish_stores() {
  emulator::publish_stores();
}
template <int kThreads>
inline void meet_first(const std::source_location& where = std::source_location::current()) {
  emulator::meet_first(kThreads, where);
}

}  // namespace ingot::INGOT_ISA
