// See parallel.h. Workers spin briefly for the next job (a training step starts thousands), then sleep.
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
#include "base/piece_shares.h"
#include "base/prefetch_hint.h"

namespace ingot {
namespace {

thread_local int thread_limit = 0;        // 0: no limit
thread_local bool inside_region = false;  // nested calls run inline

/// Memory to fetch while waiting.
struct Ahead {
  const char* at = nullptr;
  int64_t bytes = 0;

  bool fetch() {
    constexpr int64_t kStep = 256;
    if (bytes <= 0) return false;
    for (int64_t i = 0; i < kStep; i += 64) __builtin_prefetch(at + i, 0, 2);
    at += kStep, bytes -= kStep;
    return true;
  }
};
thread_local Ahead expected;  // after the caller's next jobs

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int available_cores() {
  if (const char* text = std::getenv("INGOT_THREADS")) {
    const int n = std::atoi(text);
    if (n >= 1) return n;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// One parallel_for in flight. Lives on the caller's stack; workers touch it only while they are inside.
struct Job {
  detail::RangeFn fn;
  void* context;
  int64_t count;
  int64_t grain;
  Ahead expected;  ///< where it is empty, what was expected before still is
  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run_piece(int64_t piece) {
    try {
      fn(context, piece * grain, std::min((piece + 1) * grain, count));
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }
  bool goes_on() const { return !failed.load(std::memory_order_relaxed); }

  void work(PieceShares& shares, int thread) {
    inside_region = true;
    while (goes_on()) {
      const int64_t piece = shares.take(thread).piece;
      if (piece == PieceShares::kNone) break;
      run_piece(piece);
    }
    inside_region = false;
  }
  void work_alone() {
    inside_region = true;
    for (int64_t piece = 0; goes_on() && piece * grain < count; ++piece) run_piece(piece);
    inside_region = false;
  }
};

/// The caller publishes a job in one word: its number, how many workers may still join, how many are inside. A worker joins by
/// changing that word: on the way to work it waits for no lock, and cannot come too late to a job that is over.
///
/// Each thread has a run of the job's pieces, the caller the first; where all workers may join, each has the same one every time.
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

  /// Runs the job on the caller and up to helpers workers. Callers from several threads take turns.
  void run(Job& job, int helpers) {
    if (workers_.empty() || helpers <= 0 ||
        !turn_.try_lock()) {  // busy pool (another rank's kernel): do it alone
      job.work_alone();
      return;
    }
    const std::lock_guard turn(turn_, std::adopt_lock);
    job_ = &job;
    const auto places = std::min<uint64_t>(static_cast<uint64_t>(helpers), workers_.size());
    shares_.deal(0, (job.count + job.grain - 1) / job.grain, static_cast<int64_t>(places) + 1);
    places_ = static_cast<int>(places);
    state_.store((number_of(state_.load(std::memory_order_relaxed)) + 1) << 32 | places * kPlace);
    if (sleepers_.load() > 0) wake_sleepers();
    job.work(shares_, 0);
    state_.fetch_and(~(kPlace * kInside), std::memory_order_relaxed);  // nobody joins any more
    for (int spin = 0; (state_.load(std::memory_order_acquire) & kInside) != 0; ++spin) {
      if (spin < 20000)
        cpu_relax();
      else
        std::this_thread::yield();
    }
  }

 private:
  static constexpr uint64_t kPlace = uint64_t{1} << 16, kInside = kPlace - 1;
  static uint64_t number_of(uint64_t state) { return state >> 32; }
  static int free_places(uint64_t state) { return static_cast<int>(state / kPlace % kPlace); }

  /// Which thread of the job a worker is that has joined it in this state.
  int thread_of(int worker, uint64_t state) const {
    return places_ + 1 == size() ? worker : places_ - free_places(state) + 1;
  }

  void wake_sleepers() {
    {
      const std::lock_guard lock(mutex_);
    }  // whoever is about to sleep has looked before, and is notified, or looks after
    wake_.notify_all();
  }

  void loop(const std::stop_token& stop, int worker) {
    uint64_t seen = 0, state = 0;
    Ahead ahead;
    const auto news = [&] { return number_of(state = state_.load()) != seen || stop.stop_requested(); };
    while (!stop.stop_requested()) {
      for (int spin = 0; !news() && spin < 4000; ++spin)
        if (!ahead.fetch()) cpu_relax();
      if (number_of(state) == seen) {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, news);
        sleepers_.fetch_sub(1);
      }
      seen = number_of(state);
      while (number_of(state) == seen && free_places(state) > 0)
        if (state_.compare_exchange_weak(state, state - kPlace + 1, std::memory_order_acquire)) {
          job_->work(shares_, thread_of(worker, state));
          if (worker == 1 && job_->expected.bytes > 0) ahead = job_->expected;
          state_.fetch_sub(1, std::memory_order_release);
          break;
        }
    }
  }

  std::mutex turn_;
  std::mutex mutex_;  ///< for falling asleep only
  std::condition_variable wake_;
  std::atomic<int> sleepers_{0};
  std::atomic<uint64_t> state_{0};  ///< number of the job << 32 | free places << 16 | workers inside
  Job* job_ = nullptr;              ///< this and what follows: read by who has joined
  PieceShares shares_;
  int places_ = 0;
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
  expected = {static_cast<const char*>(begin), bytes};
}
ScopedPrefetchHint::~ScopedPrefetchHint() {
  expected = {};
}

namespace detail {

void parallel_ranges(int64_t count, int64_t grain, RangeFn fn, void* context) {
  if (count <= 0) return;
  INGOT_CHECK(grain >= 1, "grain = {}", grain);
  const int64_t pieces = (count + grain - 1) / grain;
  INGOT_CHECK(pieces < PieceShares::kMost, "{} pieces", pieces);
  if (pieces == 1 || num_threads() == 1) {
    for (int64_t begin = 0; begin < count; begin += grain) fn(context, begin, std::min(begin + grain, count));
    return;
  }
  Job job{fn, context, count, grain, expected, {}, {}, {}};
  pool()->run(job, static_cast<int>(std::min<int64_t>(pieces, num_threads()) - 1));
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace detail
}  // namespace ingot
