// See emulator.h.
#include "device/gpu/emulator.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INGOT_SWAPS_CONTEXTS
#endif

namespace ingot {
namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = size_t{256} << 10, kGuardBytes = 4096;
constexpr unsigned kEvent = ~0U;    ///< a meeting's group: no threads, but something that happens
constexpr uint64_t kLateness = 64;  ///< how many fibres run, on average, before what is done later

std::mutex settings_mutex;
std::map<std::string, int64_t> launch_counts;

Emulation& chosen_emulation() {
  static Emulation emulation = [] {
    const char* const text = std::getenv("INGOT_EMULATE");
    return text == nullptr ? Emulation{} : emulation_of(text);
  }();
  return emulation;
}

/// What a thread waits for.
struct Meeting {
  unsigned group = 0;  ///< threads that meet, from the multiple of it below the thread; 0: none
  std::source_location where;
};

/// A thread of the block.
struct Fibre {
  Meeting meeting;
  bool has_ended = false;
  void* brought = nullptr;  ///< to the meeting
};

/// Where a fibre continues. It begins by setcontext(), is left and entered again by _setjmp() and _longjmp(),
/// which make no system call; one that has ended its work for a block waits for that of another. Under a
/// sanitizer, which wants to know where stacks are, each begins anew, by swapcontext().
struct FibrePlace {
  ucontext_t context;
#if !defined(INGOT_SWAPS_CONTEXTS)
  jmp_buf at;
#endif
  bool waits = false;      ///< for the work of a block
  bool continues = false;  ///< else it begins
};

/// Stacks and places of all fibres of a host's thread, with a page between two that nothing may touch.
class Stacks {
 public:
  Stacks() : places_(kMaxThreads) {
    memory_ = static_cast<char*>(mmap(nullptr, kMaxThreads * kEach, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    INGOT_CHECK(memory_ != MAP_FAILED, "no addresses for the stacks of the emulator");
    for (size_t i = 0; i < kMaxThreads; ++i) mprotect(memory_ + i * kEach, kGuardBytes, PROT_NONE);
  }
  ~Stacks() { munmap(memory_, kMaxThreads * kEach); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  FibrePlace& place(size_t fibre) { return places_[fibre]; }
  /// The fibre's context, as it begins.
  ucontext_t& begin(size_t fibre, void (*work)()) {
    ucontext_t& context = places_[fibre].context;
    getcontext(&context);
    context.uc_stack.ss_sp = memory_ + fibre * kEach + kGuardBytes;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, work, 0);
    return context;
  }

 private:
  static constexpr size_t kEach = kStackBytes + kGuardBytes;
  char* memory_;
  std::vector<FibrePlace> places_;
};

Stacks& stacks_of_thread() {
  static thread_local Stacks stacks;
  return stacks;
}

/// One launch.
class Launch {
 public:
  Launch(const char* kernel, int threads, void (*body)(const void*), const void* arguments, uint64_t seed)
      : kernel_(kernel), body_(body), arguments_(arguments), random_(seed) {
    fibres_.resize(static_cast<size_t>(threads));
    position_.block_size = static_cast<unsigned>(threads);
  }

  void run(unsigned blocks) {
    position_.grid_size = blocks;
    std::vector<unsigned> order(blocks);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random_);
    for (const unsigned block : order) run_block(block);
  }

  const emulator::Position& position() const { return position_; }

  /// Without work it is a barrier of the block.
  void meet(unsigned group, const std::source_location& where, void* own = nullptr,
            emulator::TogetherWork work = nullptr) {
    Fibre& self = fibres_[current_];
    const unsigned first = current_ / group * group,
                   end = std::min(first + group, static_cast<unsigned>(fibres_.size()));
    Gathering& gathering = gathering_of(group, first);
    if (gathering.here > 0 && gathering.where.line() != where.line())
      fail_at(fmt::format("waits, and thread {} of its group at {}", gathering.began_with,
                          text_of(gathering.where)),
              where);
    if (work != nullptr && end - first < group)
      fail_at(fmt::format("has a group of {}, not {}", end - first, group), where);
    self.meeting = {group, where};
    self.brought = own;
    if (gathering.here == 0) gathering.where = where, gathering.began_with = current_;
    if (++gathering.here < group) return leave_fibre();
    gathering.here = 0;
    if (work != nullptr) do_together(first, end, work);
    for (unsigned i = first; i < end; ++i) {
      fibres_[i].meeting = {};
      if (i != current_) runnable_.push_back(i);
    }
    runnable_.push_back(current_);
    leave_fibre();
  }

  /// Until is_over(), which is asked again after each happened().
  void wait_until(const std::function<bool()>& is_over, const std::source_location& where) {
    while (!is_over()) {
      fibres_[current_].meeting = {kEvent, where};
      await_event_.push_back(current_);
      leave_fibre();
      fibres_[current_].meeting = {};
    }
  }
  void happened() {
    runnable_.insert(runnable_.end(), await_event_.begin(), await_event_.end());
    await_event_.clear();
  }
  void later(std::function<void()> work) { late_.push_back(std::move(work)); }
  uint64_t random() { return random_(); }
  std::shared_ptr<void>& of_block() { return of_block_; }

  void* shared_memory(const void* key, size_t bytes) {
    for (const Shared& s : shared_)
      if (s.key == key) return s.memory.get();
    shared_.push_back({key, std::make_unique<std::byte[]>(bytes)});
    std::memset(shared_.back().memory.get(), 0xff, bytes);
    return shared_.back().memory.get();
  }

  [[noreturn]] void fail_at(std::string what, const std::source_location& where) {
    what = fmt::format("thread {} at {}: {}", current_, text_of(where), std::string(std::move(what)));
    fail(std::move(what));
  }

  /// Ends the launch with an error. The fibres are left as they are, this one too: they hold nothing.
  [[noreturn]] void fail(std::string what) {
    failure_ = fmt::format("emulated kernel {}, block {}: {}", kernel_, position_.block,
                           std::string(std::move(what)));
    leave_fibre();
    std::abort();  // nobody comes back here
  }

 private:
  /// The threads of a group that are at its meeting.
  struct Gathering {
    unsigned here = 0, began_with = 0;
    std::source_location where;
  };
  struct Groups {
    unsigned size;
    std::vector<Gathering> gatherings;
  };
  struct Shared {
    const void* key;
    std::unique_ptr<std::byte[]> memory;
  };

  static std::string text_of(const std::source_location& where) {
    const std::string_view file = where.file_name();
    const size_t source = file.rfind("src/");
    return fmt::format("{}:{}", source == std::string_view::npos ? file : file.substr(source + 4),
                       where.line());
  }

  Gathering& gathering_of(unsigned group, unsigned first) {
    auto found =
        std::find_if(groups_.begin(), groups_.end(), [&](const Groups& g) { return g.size == group; });
    if (found == groups_.end()) {
      groups_.push_back({group, std::vector<Gathering>(fibres_.size() / group + 1)});
      found = groups_.end() - 1;
    }
    return found->gatherings[first / group];
  }

  void do_together(unsigned first, unsigned end, emulator::TogetherWork work) {
    void* brought[kMaxThreads];
    for (unsigned i = first; i < end; ++i) brought[i - first] = fibres_[i].brought;
    work(brought, end - first);
  }

  void run_block(unsigned block) {
    position_.block = block;
    shared_.clear();
    of_block_.reset();
    late_.clear();
    await_event_.clear();
    groups_.clear();
    runnable_.resize(fibres_.size());
    std::iota(runnable_.begin(), runnable_.end(), 0U);
    for (size_t i = 0; i < fibres_.size(); ++i) {
      fibres_[i].meeting = {}, fibres_[i].has_ended = false;
      FibrePlace& place = stacks_.place(i);
      place.continues = std::exchange(place.waits, false);
    }
    size_t ended = 0;
    while (!runnable_.empty() || !late_.empty()) {
      INGOT_CHECK(ended < fibres_.size(), "emulated kernel {}, block {}: ends before a copy is there",
                  kernel_, block);
      if (!late_.empty() && (runnable_.empty() || random_() % kLateness == 0)) {
        take(late_)();
        continue;
      }
      current_ = take(runnable_);
      enter_fibre();
      if (!failure_.empty()) INGOT_CHECK(false, "{}", failure_);
      ended += fibres_[current_].has_ended ? 1 : 0;
    }
    INGOT_CHECK(ended == fibres_.size(), "emulated kernel {}, block {}: deadlock: {}", kernel_, block,
                waiting());
  }

  /// One of them, which the seed decides.
  template <class T>
  T take(std::vector<T>& from) {
    const size_t k = random_() % from.size();
    std::swap(from[k], from.back());
    T taken = std::move(from.back());
    from.pop_back();
    return taken;
  }

  /// Who waits where.
  std::string waiting() const {
    std::map<std::string, std::vector<size_t>> threads;
    for (size_t i = 0; i < fibres_.size(); ++i)
      threads[fibres_[i].has_ended ? "have ended"
                                   : fmt::format("wait for {} at {}", name_of(fibres_[i].meeting.group),
                                                 text_of(fibres_[i].meeting.where))]
          .push_back(i);
    std::string text;
    for (const auto& [what, which] : threads)
      text += fmt::format("{}{} threads {}, the first is {}", text.empty() ? "" : "; ", which.size(), what,
                          which.front());
    return text;
  }

  static std::string name_of(unsigned group) {
    return group == kEvent ? "an event" : fmt::format("{}", group);
  }

  static void begin();

  void enter_fibre() {
    position_.thread = current_;
    FibrePlace& place = stacks_.place(current_);
    const bool begins = !std::exchange(place.continues, true);
    if (begins) stacks_.begin(current_, &Launch::begin);
#if defined(__SANITIZE_ADDRESS__)
    const stack_t& stack = place.context.uc_stack;
    __sanitizer_start_switch_fiber(&own_fake_stack_, stack.ss_sp, stack.ss_size);
#endif
#if defined(INGOT_SWAPS_CONTEXTS)
    swapcontext(&own_, &place.context);
#else
    if (_setjmp(own_) == 0) {
      if (begins) setcontext(&place.context);
      _longjmp(place.at, 1);
    }
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(own_fake_stack_, nullptr, nullptr);
#endif
  }
  void leave_fibre() {
    const unsigned left = current_;
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(fibres_[left].has_ended ? nullptr : &fake_stack, own_stack_,
                                   own_stack_bytes_);
#endif
#if defined(INGOT_SWAPS_CONTEXTS)
    swapcontext(&stacks_.place(left).context, &own_);
#else
    if (_setjmp(stacks_.place(left).at) == 0) _longjmp(own_, 1);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  const char* kernel_;
  void (*body_)(const void*);
  const void* arguments_;
  std::mt19937_64 random_;
  emulator::Position position_{};
  std::vector<Fibre> fibres_;
  std::vector<unsigned> runnable_;
  std::vector<Shared> shared_;
  std::shared_ptr<void> of_block_;
  std::vector<std::function<void()>> late_;
  std::vector<unsigned> await_event_;
#if defined(INGOT_SWAPS_CONTEXTS)
  ucontext_t own_;
#else
  jmp_buf own_;
#endif
  Stacks& stacks_ = stacks_of_thread();
  std::vector<Groups> groups_;
  unsigned current_ = 0;
  std::string failure_;
#if defined(__SANITIZE_ADDRESS__)
  void* own_fake_stack_ = nullptr;
  const void* own_stack_ = nullptr;
  size_t own_stack_bytes_ = 0;
#endif
};

thread_local Launch* running = nullptr;

void Launch::begin() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &running->own_stack_, &running->own_stack_bytes_);
#endif
  for (;;) {  // of one launch after another
    Launch& launch = *running;
    launch.body_(launch.arguments_);
    launch.fibres_[launch.current_].has_ended = true;
#if !defined(INGOT_SWAPS_CONTEXTS)
    launch.stacks_.place(launch.current_).waits = true;
#endif
    launch.leave_fibre();
  }
}

}  // namespace

Emulation emulation() {
  const std::lock_guard lock(settings_mutex);
  return chosen_emulation();
}

Emulation emulation_of(const std::string& text) {
  Emulation emulation{.on = true};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, emulation.seed);
  std::string_view rest(at, end);
  const auto take = [&](std::string_view word) {
    const bool is_next = rest.starts_with(word);
    if (is_next) rest.remove_prefix(word.size());
    return is_next;
  };
  emulation.alone = take(",alone");
  emulation.mma = take(",mma");
  emulation.wgmma = !emulation.mma && take(",wgmma");
  emulation.mma |= emulation.wgmma;
  if (error == std::errc() && rest.empty()) return emulation;
  throw Error(fmt::format("INGOT_EMULATE is '{}', expected SEED, then ',alone' or not, then ',mma', ',wgmma' "
                          "or neither",
                          text),
              "for example INGOT_EMULATE=1");
}

void set_emulation(const Emulation& emulation) {
  const std::lock_guard lock(settings_mutex);
  chosen_emulation() = emulation;
}

std::map<std::string, int64_t> emulated_launches() {
  const std::lock_guard lock(settings_mutex);
  return launch_counts;
}

namespace emulator {

const Position& here() {
  return running->position();
}

void run(const char* kernel, int64_t blocks, int threads, void (*body)(const void*), const void* arguments) {
  INGOT_CHECK(running == nullptr, "kernel {} is launched by a kernel", kernel);
  INGOT_CHECK(blocks > 0 && blocks < int64_t{1} << 31 && threads > 0 && threads <= kMaxThreads,
              "kernel {} is launched with {} blocks of {} threads", kernel, blocks, threads);
  uint64_t seed = 0;
  {
    const std::lock_guard lock(settings_mutex);
    const int64_t number = ++launch_counts[kernel];
    seed = hash64(fmt::format("{} {} {}", chosen_emulation().seed, kernel, number));
  }
  Launch launch(kernel, threads, body, arguments, seed);
  running = &launch;
  struct End {
    ~End() { running = nullptr; }
  } const end;
  launch.run(static_cast<unsigned>(blocks));
}

void meet_block(const std::source_location& where) {
  running->meet(running->position().block_size, where);
}

void together(void* own, unsigned group, TogetherWork work, const std::source_location& where) {
  running->meet(group, where, own, work);
}

uint32_t exchange(uint32_t value, unsigned mask, unsigned group, const std::source_location& where) {
  struct Exchange {
    uint32_t value;
    unsigned mask;
  } own{value, mask};
  together(
      &own, group,
      [](void* const* brought, unsigned threads) {
        uint32_t values[32];
        for (unsigned i = 0; i < threads; ++i) values[i] = static_cast<Exchange*>(brought[i])->value;
        for (unsigned i = 0; i < threads; ++i) {
          auto* const to = static_cast<Exchange*>(brought[i]);
          to->value = values[i ^ to->mask % threads];
        }
      },
      where);
  return own.value;
}

void* shared_memory(const void* key, size_t bytes) {
  return running->shared_memory(key, bytes);
}

void wait_until(const std::function<bool()>& is_over, const std::source_location& where) {
  running->wait_until(is_over, where);
}
void happened() {
  running->happened();
}
void later(std::function<void()> work) {
  running->later(std::move(work));
}
uint64_t random() {
  return running->random();
}
std::shared_ptr<void>& of_block() {
  return running->of_block();
}
void fail(std::string what, const std::source_location& where) {
  running->fail_at(std::move(what), where);
}

void require_aligned(const void* address, size_t bytes, const std::source_location& where) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0)
    running->fail(fmt::format("thread {} accesses {} bytes at {} that are not aligned",
                              running->position().thread, bytes, where.line()));
}

}  // namespace emulator
}  // namespace ingot
