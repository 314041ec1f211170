// See fiber.h.
#include "base/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ingot {
namespace {

constexpr size_t kGuardBytes = 4096;  // below the stack, which nothing may touch

}  // namespace

void Fiber::map_stack() {
  void* const memory = mmap(nullptr, kGuardBytes + stack_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(fmt::format("no memory for a stack of {} bytes", stack_bytes_),
                "raise the limit of `ulimit -v`");
  memory_ = static_cast<char*>(memory);
  mprotect(memory_, kGuardBytes, PROT_NONE);
#if defined(__SANITIZE_THREAD__)
  sanitizer_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (memory_ == nullptr) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(sanitizer_);
#endif
  munmap(memory_, kGuardBytes + stack_bytes_);
}

void Fiber::start(std::function<void()> work) {
  INGOT_CHECK(has_ended(), "a fiber has work");
  if (memory_ == nullptr) map_stack();
  work_ = std::move(work);
  getcontext(&own_);
  own_.uc_stack.ss_sp = memory_ + kGuardBytes;
  own_.uc_stack.ss_size = stack_bytes_;
  own_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);  // makecontext() passes ints
  makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::begin), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::begin(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_bytes_);
#endif
  self->work_();
  self->work_ = nullptr;
  self->switch_stack(self->own_, self->outside_, false, true);
}

void Fiber::enter() {
  INGOT_CHECK(!has_ended(), "a fiber has no work");
  switch_stack(outside_, own_, true, false);
}

void Fiber::leave() {
  switch_stack(own_, outside_, false, false);
}

void Fiber::switch_stack(ucontext_t& from, const ucontext_t& to, bool into, [[maybe_unused]] bool ends) {
  auto* const thread = reinterpret_cast<ThrownExceptions*>(abi::__cxa_get_globals());
  std::swap(*thread, exceptions_);
#if defined(__SANITIZE_ADDRESS__)
  void** const own = into ? &sanitizer_outside_ : &sanitizer_;
  __sanitizer_start_switch_fiber(ends ? nullptr : own, into ? own_.uc_stack.ss_sp : outside_stack_,
                                 into ? own_.uc_stack.ss_size : outside_bytes_);
#elif defined(__SANITIZE_THREAD__)
  if (into) sanitizer_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(into ? sanitizer_ : sanitizer_outside_, 0);
#endif
  swapcontext(&from, &to);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(*own, into ? nullptr : &outside_stack_, into ? nullptr : &outside_bytes_);
#endif
}

}  // namespace ingot
