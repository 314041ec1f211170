// Runs GPU kernels on the host, to find what is wrong with them without a GPU: threads of a block are fibres
// that run until they meet others, in an order that a seed decides; blocks run one after another in such an
// order; shared memory is NaN until it is written. A thread that never comes to a meeting, and an access that
// a GPU would refuse, is an InternalError that says where. What this cannot show: speed, and stores that
// another thread sees too late, which fibres see at once.
//
// Kernels use it through rt.h. One launch at a time in each thread of the host; it returns when the kernel
// has ended.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <string>

namespace ingot {

/// Whether the simulated device takes the GPU's kernels, emulated, before the CPU's (ops/gpu_registry.h), and
/// what decides the order of their threads. Of the process; what INGOT_EMULATE says, which is a seed, then
/// ",alone" or not, then ",mma", ",wgmma" or neither; off where it is not set.
struct Emulation {
  bool on = false;
  uint64_t seed = 0;
  /// The policy strict takes no other kernel there, as on a GPU, which runs no host code.
  bool alone = false;
  bool mma = false;    ///< products of bf16 on tensor cores, too, which do not have the CPU's bits
  bool wgmma = false;  ///< these by Hopper's instructions (hopper.h) where they take the operands
};
Emulation emulation();
/// What a text of INGOT_EMULATE says. Error for another.
Emulation emulation_of(const std::string& text);
void set_emulation(const Emulation& emulation);
/// How often each kernel was launched since the process began, by its name; thread-safe.
std::map<std::string, int64_t> emulated_launches();

namespace emulator {

/// Where the running thread of a kernel is.
struct Position {
  unsigned thread, block, block_size, grid_size;
};
const Position& here();

/// Blocks of threads that each call body(arguments).
void run(const char* kernel, int64_t blocks, int threads, void (*body)(const void*), const void* arguments);

/// Meets all threads of the block.
void meet_block(const std::source_location& where);
/// Meets the threads of an aligned group of so many, a power of two up to 32; returns the value of the one
/// whose number in the group differs from one's own in the bits of the mask.
uint32_t exchange(uint32_t value, unsigned mask, unsigned group, const std::source_location& where);
/// What threads that meet do together: of what each of them has brought, in the order of their numbers.
using TogetherWork = void (*)(void* const* brought, unsigned threads);
/// Meets the threads of an aligned group of so many; the last to come does the work before any continues.
void together(void* own, unsigned group, TogetherWork work, const std::source_location& where);
/// The block's shared memory of this key, which is NaN when the block first asks for it.
void* shared_memory(const void* key, size_t bytes);

/// The thread waits until is_over(), which is asked again whenever something has happened().
void wait_until(const std::function<bool()>& is_over, const std::source_location& where);
void happened();
/// Does it at a moment that the seed decides, before the block ends.
void later(std::function<void()> work);
/// A number that the seed decides.
uint64_t random();
/// What else there is to know of the running block; nothing when the block begins.
std::shared_ptr<void>& of_block();
/// Ends the launch with an InternalError that names the running thread and the line.
[[noreturn]] void fail(std::string what, const std::source_location& where);

/// An InternalError of the running thread if the address is not a multiple of `bytes`.
void require_aligned(const void* address, size_t bytes, const std::source_location& where);

}  // namespace emulator
}  // namespace ingot
