// See mpi_world.h.
#include "comm/mpi_world.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "comm/messages.h"
#include "comm/shared_transport.h"
#include "comm/watchdog.h"

namespace ingot {
namespace {

constexpr int kLeaving = 1;  // tag of the message that a rank will start no more operations, and why
constexpr char kReturns = 0, kFails = 1;
constexpr double kTimeForOthers = 0.3;  // seconds between a rank's failure and the end of all

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("{}: {}", call, std::string(text, static_cast<size_t>(length)));
}

/// "off": messages as between nodes, for comparisons or where windows do not work.
bool switched_off(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || std::strcmp(text, "on") == 0) return false;
  if (std::strcmp(text, "off") == 0) return true;
  throw Error(fmt::format("${} is '{}'", variable, text), "set it to on or off, or unset it");
}

/// Requests are kept here by index: MPI_Request is a pointer in one library and a number in the other.
class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}
  ~MpiTransport() override {
    if (std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
  }
  Request send(int to, int tag, const void* data, int64_t bytes) override {
    const Request r = free_slot();
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &slots_[r]), "MPI_Isend");
    return r;
  }
  Request recv(int from, int tag, void* data, int64_t bytes) override {
    const Request r = free_slot();
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_, &slots_[r]), "MPI_Irecv");
    return r;
  }
  bool done(Request r) override {
    int flag = 0;
    check(MPI_Test(&slots_[r], &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (flag) free_.push_back(r);
    return flag != 0;
  }

 private:
  Request free_slot() {
    if (free_.empty()) {
      slots_.push_back(MPI_REQUEST_NULL);
      return slots_.size() - 1;
    }
    const Request r = free_.back();
    free_.pop_back();
    return r;
  }
  MPI_Comm comm_;
  std::vector<MPI_Request> slots_;
  std::vector<Request> free_;
};

class MpiWorld final : public MessageWorld {
 public:
  MpiWorld(int rank, int ranks, bool crowded, std::unique_ptr<Watchdog> watchdog)
      : MessageWorld(rank, ranks, crowded),
        byes_(static_cast<size_t>(ranks)),
        watchdog_(std::move(watchdog)) {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_group(MPI_COMM_WORLD, &everyone_), "MPI_Comm_group");
    const int mine = !switched_off("INGOT_SHARED_MEMORY");
    check(MPI_Allreduce(&mine, &shares_memory_, 1, MPI_INT, MPI_MIN, control_), "MPI_Allreduce");
    for (int r = 0; r < ranks; ++r)
      if (r != rank)
        check(MPI_Irecv(&bye(r).why, 1, MPI_BYTE, r, kLeaving, control_, &bye(r).request), "MPI_Irecv");
    watchdog_->start([this] { terminated(); }, [this] { watch(); });
  }
  ~MpiWorld() override {
    if (std::uncaught_exceptions() > 0) {
      unwound_ = true;
      end_all(fmt::format("rank {} ends with an error", rank()));
    }
    try {
      leave();
    } catch (const std::exception& e) {
      end_all(e.what());
    }
  }

  void run(const std::function<void()>& part) override {
    const auto where = [&] {
      return step() >= 0 ? fmt::format("rank {} at step {}", rank(), step()) : fmt::format("rank {}", rank());
    };
    try {
      part();
    } catch (const Error& e) {
      unwound_ = true;
      end_all(
          fmt::format("error on {}: {}{}", where(), e.what(), e.hint().empty() ? "" : "\nhint: " + e.hint()));
    } catch (const std::exception& e) {
      unwound_ = true;
      end_all(fmt::format("internal error (a bug in ingot, please report it) on {}: {}", where(), e.what()),
              2);
    }
  }

 private:
  struct Bye {
    MPI_Request request = MPI_REQUEST_NULL;
    bool came = false;
    char why = kReturns;
  };
  Bye& bye(int rank) { return byes_[static_cast<size_t>(rank)]; }

  std::unique_ptr<Transport> connect(const std::string& name, const std::vector<int>& members) override {
    const Blocking call(*this, fmt::format("making group '{}' of {} ranks", name, members.size()));
    MPI_Group group;
    MPI_Comm comm;
    check(MPI_Group_incl(everyone_, static_cast<int>(members.size()), members.data(), &group),
          "MPI_Group_incl");
    const int tag = static_cast<int>(hash64(name) & 0x7FFF);
    check(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm), "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Group_free(&group);
    return share_memory(comm, std::make_unique<MpiTransport>(comm));
  }

  /// Ranks of the group on this node communicate through a shared window, if the library can make one.
  std::unique_ptr<Transport> share_memory(MPI_Comm comm, std::unique_ptr<Transport> messages) {
    if (!shares_memory_) return messages;
    MPI_Comm node;
    int rank = 0, ranks = 0, near = 0;
    check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
    check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    check(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_size(node, &near), "MPI_Comm_size");
    std::vector<std::byte*> regions(static_cast<size_t>(ranks), nullptr);
    if (near > 1 && make_window(node, SharedTransport::region_bytes(ranks)))
      for (int r = 0; r < ranks; ++r) regions[static_cast<size_t>(r)] = region_of(r, comm, node);
    if (std::byte* own = regions[static_cast<size_t>(rank)]) SharedTransport::prepare(own, ranks);
    check(MPI_Barrier(node), "MPI_Barrier");
    MPI_Comm_free(&node);
    return std::make_unique<SharedTransport>(rank, std::move(regions), std::move(messages));
  }

  /// Adds one to windows_; false where any rank could not.
  bool make_window(MPI_Comm node, int64_t bytes) {
    MPI_Info info;
    MPI_Win window = MPI_WIN_NULL;
    void* own = nullptr;
    check(MPI_Info_create(&info), "MPI_Info_create");
    check(MPI_Info_set(info, "alloc_shared_noncontig", "true"),
          "MPI_Info_set");  // whole pages, near their rank
    int made = MPI_Win_allocate_shared(bytes, 1, info, node, &own, &window) == MPI_SUCCESS, all = 0;
    MPI_Info_free(&info);
    check(MPI_Allreduce(&made, &all, 1, MPI_INT, MPI_MIN, node), "MPI_Allreduce");
    if (made) windows_.push_back(window);
    if (!all && !std::exchange(warned_, true))
      log::warn(
          "MPI has no shared memory for the ranks of this node: they send each other messages, which is "
          "slower");
    return all != 0;
  }

  /// The region of rank `r` of `comm` in the newest window; nullptr: it is on another node.
  std::byte* region_of(int r, MPI_Comm comm, MPI_Comm node) {
    MPI_Group all, near;
    int there = MPI_UNDEFINED, unit = 0;
    MPI_Aint bytes = 0;
    void* region = nullptr;
    check(MPI_Comm_group(comm, &all), "MPI_Comm_group");
    check(MPI_Comm_group(node, &near), "MPI_Comm_group");
    check(MPI_Group_translate_ranks(all, 1, &r, near, &there), "MPI_Group_translate_ranks");
    MPI_Group_free(&all);
    MPI_Group_free(&near);
    if (there != MPI_UNDEFINED)
      check(MPI_Win_shared_query(windows_.back(), there, &bytes, &unit, &region), "MPI_Win_shared_query");
    return static_cast<std::byte*>(region);
  }

  bool has_left(int rank) override {
    Bye& b = bye(rank);
    if (b.came || rank == this->rank()) return b.came;
    int flag = 0;
    check(MPI_Test(&b.request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return b.came = flag != 0;
  }
  bool has_failed(int rank) override { return has_left(rank) && bye(rank).why == kFails; }

  bool lower_rank_failed() {
    for (int r = 0; r < rank(); ++r)
      if (has_failed(r)) return true;
    return false;
  }

  std::vector<MPI_Request> tell_all(const char* why) {
    std::vector<MPI_Request> sends(static_cast<size_t>(ranks()), MPI_REQUEST_NULL);
    for (int r = 0; r < ranks(); ++r)
      if (r != rank())
        check(MPI_Isend(why, 1, MPI_BYTE, r, kLeaving, control_, &sends[static_cast<size_t>(r)]),
              "MPI_Isend");
    return sends;
  }

  /// Notifies all ranks that this one has returned, and waits for their notices: a rank that still waits for
  /// this one gets an Error, and no rank finalises while another needs it.
  void leave() {
    std::vector<MPI_Request> sends = tell_all(&kReturns);
    const double begin = monotonic_seconds();
    for (int r = 0; r < ranks(); ++r)
      while (r != rank() && !has_left(r)) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (monotonic_seconds() - begin > limits().abort_seconds)
          fail("rank {} has done its part and waits for rank {} since {} s", rank(), r,
               limits().abort_seconds);
      }
    const Blocking call(*this, "the end of the run");
    // Finalising while another rank ends the run can hang.
    if (const std::string failed = failed_rank(); !failed.empty())
      fail("rank {} has done its part, but {}", rank(), failed);
    check(MPI_Waitall(ranks(), sends.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    for (MPI_Win& window : windows_) MPI_Win_free(&window);
    MPI_Group_free(&everyone_);
    MPI_Comm_free(&control_);
    MPI_Finalize();
    watchdog_->stop();
  }

  [[noreturn]] void end_all(const std::string& message) override { end_all(message, 1); }
  /// Writes the flight record first, because the launcher gives little time after the abort, or none, and
  /// gives the other ranks a moment for theirs. A second thread that calls it waits for the end. An exception
  /// that unwound operations in flight has freed their memory, into which any MPI call that makes progress
  /// would write: then this rank sends its notices without polling.
  [[noreturn]] void end_all(const std::string& message, int code) {
    static std::mutex once;
    once.lock();
    failed_ = true;
    write_flight(message);
    // A message that follows from another rank's failure is printed after that rank's own.
    if (!failed_rank().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    log::announce(message);
    try {
      const bool must_not_poll = unwound_ && memory_in_use();
      std::vector<MPI_Request> sends = tell_all(&kFails);
      const double until = monotonic_seconds() + kTimeForOthers;
      for (int all = 0; monotonic_seconds() < until;
           std::this_thread::sleep_for(std::chrono::milliseconds(10)))
        if (!must_not_poll) MPI_Testall(ranks(), sends.data(), &all, MPI_STATUSES_IGNORE);
      // Launchers have hung when two ranks aborted at once: the lowest does it, the others only if it has
      // not.
      if (must_not_poll)
        std::this_thread::sleep_for(std::chrono::milliseconds(500) * std::min(rank(), 6));
      else if (lower_rank_failed())
        std::this_thread::sleep_for(std::chrono::seconds(3));
    } catch (const Error&) {  // the network has failed: the launcher will notice
    }
    MPI_Abort(MPI_COMM_WORLD, code);
    std::abort();
  }

  /// Scope of a blocking MPI call; the watchdog ends the run if it does not return.
  class Blocking {
   public:
    Blocking(MpiWorld& world, std::string what) : world_(world) {
      const std::lock_guard lock(world.blocking_mutex_);
      world.blocking_ = std::move(what);
      world.blocking_until_ = monotonic_seconds() + world.limits().abort_seconds;
    }
    ~Blocking() {
      const std::lock_guard lock(world_.blocking_mutex_);
      world_.blocking_.clear();
    }

   private:
    MpiWorld& world_;
  };

  /// The blocking call that this rank is in; empty: none, or with `too_long` one that is within its limit.
  std::string blocking(bool too_long) {
    const std::lock_guard lock(blocking_mutex_);
    return too_long && monotonic_seconds() < blocking_until_ ? "" : blocking_;
  }

  void watch() {
    if (const std::string call = blocking(true); !call.empty())
      end_all(fmt::format("rank {}: {} did not return within the abort limit: some rank did not come", rank(),
                          call));
  }

  /// On SIGTERM. A rank that has already failed keeps its record.
  void terminated() {
    if (failed_) return;
    std::string wait;  // this rank will often wait in a moment for the rank that failed
    const double until = monotonic_seconds() + kTimeForOthers;
    while ((wait = waiting()).empty() && monotonic_seconds() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string call = blocking(false);
    const std::string where =
        !wait.empty() ? wait : fmt::format("rank {}{}", rank(), call.empty() ? "" : " in " + call);
    const std::string message = fmt::format("{}: received SIGTERM", where);
    write_flight(message);
    log::announce(message);
  }

  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Group everyone_ = MPI_GROUP_NULL;
  int shares_memory_ = 0;  ///< no rank has switched it off
  bool warned_ = false;
  std::vector<MPI_Win> windows_;  ///< of groups, in the order in which they were made
  std::vector<Bye> byes_;
  std::atomic<bool> failed_ = false;
  bool unwound_ = false;  // an exception has left the function of run()
  std::mutex blocking_mutex_;
  std::string blocking_;       // guarded by blocking_mutex_
  double blocking_until_ = 0;  // guarded by blocking_mutex_
  std::unique_ptr<Watchdog> watchdog_;
};

/// Sets the threads of this rank: ranks of a node that may run on the same cores divide them. $INGOT_THREADS
/// overrides. Whether the cores are too few for the threads.
bool share_cores() {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return false;
  MPI_Comm node;
  int ranks = 0;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
        "MPI_Comm_split_type");
  check(MPI_Comm_size(node, &ranks), "MPI_Comm_size");
  std::vector<cpu_set_t> all(static_cast<size_t>(ranks));
  check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, node),
        "MPI_Allgather");
  MPI_Comm_free(&node);
  int on_my_cores = 0;
  for (const cpu_set_t& theirs : all) {
    cpu_set_t common;
    CPU_AND(&common, &mine, &theirs);
    on_my_cores += CPU_COUNT(&common) > 0;
  }
  if (!std::getenv("INGOT_THREADS")) set_num_threads(std::max(1, CPU_COUNT(&mine) / on_my_cores));
  return num_threads() * on_my_cores > CPU_COUNT(&mine);
}

}  // namespace

std::unique_ptr<World> mpi_world() {
  int provided = 0, rank = 0, ranks = 0;
  auto watchdog = std::make_unique<Watchdog>();  // first: MPI starts threads, which must not take SIGTERM
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "MPI_Comm_size");
  const bool crowded = share_cores();
  return std::make_unique<MpiWorld>(rank, ranks, crowded, std::move(watchdog));
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  check(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace ingot
