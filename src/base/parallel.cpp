// See parallel.h. Workers spin briefly for the next loop (a training step starts thousands), then sleep.
#include "base/parallel.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/prefetch_hint.h"
#include "base/range.h"
#include "base/round.h"
#include "base/work_ranges.h"

namespace ingot {
namespace {

thread_local int thread_limit = 0;        // 0: no limit
thread_local bool inside_region = false;  // nested calls run inline

/// Memory to prefetch while waiting.
struct Prefetch {
  const char* at = nullptr;
  int64_t bytes = 0;

  /// Prefetches a little of it; false: all is done.
  bool advance() {
    constexpr int64_t kStep = 256;
    if (bytes <= 0) return false;
    for (int64_t i = 0; i < kStep; i += 64) __builtin_prefetch(at + i, 0, 2);
    at += kStep, bytes -= kStep;
    return true;
  }
};
thread_local Prefetch hint;  // of the ScopedPrefetchHint in scope

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int available_cores() {
  if (const char* text = std::getenv("INGOT_THREADS"); text != nullptr && *text != '\0')
    return static_cast<int>(parse_integer(text, between(1, 1024, "threads"), "INGOT_THREADS"));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// One parallel_for, on the caller's stack. Workers touch it only while they are inside.
struct Job {
  detail::RangeFn fn;
  void* context;
  int64_t count;
  int64_t grain;
  Prefetch hint;  ///< empty: the hint before stays
  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run_part(int64_t part) {
    try {
      fn(context, part * grain, std::min((part + 1) * grain, count));
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }
  bool continues() const { return !failed.load(std::memory_order_relaxed); }

  void work(WorkRanges& parts, int thread) {
    inside_region = true;
    while (continues()) {
      const int64_t part = parts.take(thread).item;
      if (part == WorkRanges::kNone) break;
      run_part(part);
    }
    inside_region = false;
  }
  void work_alone() {
    inside_region = true;
    for (int64_t part = 0; continues() && part * grain < count; ++part) run_part(part);
    inside_region = false;
  }
};

/// The caller publishes a job in one 64-bit state: its number, how many workers may still join, how many are
/// inside. A worker joins by changing that state: on the way to work it waits for no lock, and cannot come
/// too late to a job that is over.
///
/// Each thread has a range of the job's parts, the caller the first; where all workers may join, each has the
/// same one every time.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i)
      workers_.emplace_back([this, i](std::stop_token stop) { loop(stop, i); });
  }
  ~Pool() {
    for (auto& w : workers_) w.request_stop();
    wake_sleepers();
  }
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs the job on the caller and up to helpers workers. If another caller has the pool, the job runs on
  /// its caller alone.
  void run(Job& job, int helpers) {
    if (workers_.empty() || helpers <= 0 || !caller_.try_lock()) {  // busy pool (another rank's kernel)
      job.work_alone();
      return;
    }
    const std::lock_guard turn(caller_, std::adopt_lock);
    job_ = &job;
    const auto slots = std::min<uint64_t>(static_cast<uint64_t>(helpers), workers_.size());
    parts_.deal(0, ceil_div(job.count, job.grain), static_cast<int64_t>(slots) + 1);
    slots_ = static_cast<int>(slots);
    state_.store((number_of(state_.load(std::memory_order_relaxed)) + 1) << 32 | slots * kSlot);
    if (sleepers_.load() > 0) wake_sleepers();
    job.work(parts_, 0);
    state_.fetch_and(~(kSlot * kInside), std::memory_order_relaxed);  // nobody joins any more
    for (int spin = 0; (state_.load(std::memory_order_acquire) & kInside) != 0; ++spin) {
      if (spin < 20000)
        cpu_relax();
      else
        std::this_thread::yield();
    }
  }

 private:
  static constexpr uint64_t kSlot = uint64_t{1} << 16, kInside = kSlot - 1;
  static uint64_t number_of(uint64_t state) { return state >> 32; }
  static int free_slots(uint64_t state) { return static_cast<int>(state / kSlot % kSlot); }

  /// Which thread of the job a worker is that has joined it in this state.
  int thread_of(int worker, uint64_t state) const {
    return slots_ + 1 == size() ? worker : slots_ - free_slots(state) + 1;
  }

  void wake_sleepers() {
    {
      const std::lock_guard lock(mutex_);
    }  // whoever is about to sleep has looked before, and is notified, or looks after
    wake_.notify_all();
  }

  void loop(const std::stop_token& stop, int worker) {
    uint64_t seen = 0, state = 0;
    Prefetch prefetch;
    const auto news = [&] { return number_of(state = state_.load()) != seen || stop.stop_requested(); };
    while (!stop.stop_requested()) {
      for (int spin = 0; !news() && spin < 4000; ++spin)
        if (!prefetch.advance()) cpu_relax();
      if (number_of(state) == seen) {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, news);
        sleepers_.fetch_sub(1);
      }
      seen = number_of(state);
      while (number_of(state) == seen && free_slots(state) > 0)
        if (state_.compare_exchange_weak(state, state - kSlot + 1, std::memory_order_acquire)) {
          job_->work(parts_, thread_of(worker, state));
          if (worker == 1 && job_->hint.bytes > 0) prefetch = job_->hint;
          state_.fetch_sub(1, std::memory_order_release);
          break;
        }
    }
  }

  std::mutex caller_;
  std::mutex mutex_;  ///< for falling asleep only
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
  std::atomic<uint64_t> state_{0};  ///< number of the job << 32 | free slots << 16 | workers inside
  Job* job_ = nullptr;              ///< this and what follows: read by who has joined
  WorkRanges parts_;
  int slots_ = 0;
  std::vector<std::jthread> workers_;
};

std::unique_ptr<Pool>& pool() {
  static std::unique_ptr<Pool> instance = std::make_unique<Pool>(available_cores());
  return instance;
}

}  // namespace

int num_threads() {
  if (inside_region) return 1;
  return thread_limit > 0 ? std::min(thread_limit, pool()->size()) : pool()->size();
}

void set_num_threads(int threads) {
  INGOT_CHECK(threads >= 1, "threads = {}", threads);
  INGOT_CHECK(!inside_region);
  if (threads != pool()->size()) pool() = std::make_unique<Pool>(threads);
}

ScopedThreads::ScopedThreads(int threads) : before_(thread_limit) {
  thread_limit = threads;
}
ScopedThreads::~ScopedThreads() {
  thread_limit = before_;
}

ScopedPrefetchHint::ScopedPrefetchHint(const void* begin, int64_t bytes) {
  hint = {static_cast<const char*>(begin), bytes};
}
ScopedPrefetchHint::~ScopedPrefetchHint() {
  hint = {};
}

namespace detail {

void parallel_ranges(int64_t count, int64_t grain, RangeFn fn, void* context) {
  if (count <= 0) return;
  INGOT_CHECK(grain >= 1, "grain = {}", grain);
  const int64_t parts = ceil_div(count, grain);
  INGOT_CHECK(parts < WorkRanges::kMaxItems, "{} parts", parts);
  if (parts == 1 || num_threads() == 1) {
    for (int64_t begin = 0; begin < count; begin += grain) fn(context, begin, std::min(begin + grain, count));
    return;
  }
  Job job{fn, context, count, grain, hint, {}, {}, {}};
  pool()->run(job, static_cast<int>(std::min<int64_t>(parts, num_threads()) - 1));
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace detail
}  // namespace ingot
