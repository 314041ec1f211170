// Work on a stack of its own that takes turns with the thread that enters it: it runs until it leaves, and
// continues there when it is entered again. A turn costs a microsecond, less than waking a thread.
#pragma once
#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace ingot {

/// Used by one thread at a time, the same from start() until the work has ended. Exceptions that are being
/// thrown or handled belong to their own stack.
class Fiber {
 public:
  explicit Fiber(size_t stack_bytes = size_t{8} << 20) : stack_bytes_(stack_bytes) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next enter() begins `work`, which must not throw. Earlier work has ended. The first start() takes
  /// addresses for the stack, whose memory is taken as it is used. Error: no addresses are left.
  void start(std::function<void()> work);
  /// Runs the work until it leaves or ends.
  void enter();
  /// Called by the work: enter() returns; the work continues at the next one.
  void leave();
  bool has_ended() const { return !work_; }

 private:
  void map_stack();
  static void begin(unsigned high, unsigned low);
  /// What the runtime of exceptions keeps for each thread.
  struct ThrownExceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  void switch_stack(ucontext_t& from, const ucontext_t& to, bool into, bool ends);

  const size_t stack_bytes_;
  char* memory_ = nullptr;  ///< of the stack, from the first start() on
  std::function<void()> work_;
  ucontext_t own_{}, outside_{};
  ThrownExceptions exceptions_;  ///< of the stack that does not run
  void* sanitizer_ = nullptr;    ///< what it knows of this stack
  void* sanitizer_outside_ = nullptr;
  const void* outside_stack_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace ingot
