// See sim_device.h.
#include "device/sim/sim_device.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/round.h"
#include "device/gpu/emulator.h"
#include "device/host_kernel.h"
#include "device/memory/pages.h"
#include "device/sim/sim_names.h"
#include "device/sim/sim_streams.h"

namespace ingot {
namespace {

/// All addresses of the device lie in one range.
constexpr int64_t kAddresses = int64_t{1} << 40;
constexpr int kNothing = 0xff;  ///< the bytes of memory that nobody wrote

/// What a DeviceEvent of this device holds.
struct Moment {
  SimStreams* of;
  SimClock clock;
};

/// A part of a graph: a kernel, and which use each of its ranges had when it was captured; or what an arena
/// does with some of its memory meanwhile.
struct CapturedWork {
  enum class What { kernel, begin_use, end_use, name };
  What what;
  HostKernel kernel = {};
  std::vector<int64_t> uses = {};
  char* memory = nullptr;
  int64_t bytes = 0;
  int64_t use = 0;  ///< its number
  const char *owner = nullptr, *name = nullptr;
};
struct Capture {
  std::vector<CapturedWork> work;
  std::set<int64_t> in_use;  ///< uses that began in it
};

class SimDevice final : public Device {
 public:
  SimDevice() {
    first_ = static_cast<char*>(reserve_addresses(kAddresses, false));
    next_ = first_;
    watch_sim_addresses(first_, kAddresses);
    if (const char* const order = std::getenv("INGOT_SIM"); order != nullptr) order_ = sim_order_of(order);
  }
  DeviceKind kind() const override { return DeviceKind::sim; }

  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    refuse_in_capture("allocates memory");
    void* const memory = system_allocate(bytes);
    std::memset(memory, kNothing, static_cast<size_t>(bytes));
    // A page between blocks belongs to none of them. Addresses are not used twice: what reads a block that
    // was released is found, too.
    const int64_t size = round_up(bytes, kPage) + kPage;
    INGOT_CHECK(next_ + size <= first_ + kAddresses, "the simulated device has no addresses left");
    char* const address = next_;
    next_ += size;
    blocks_.emplace(address, Memory{static_cast<char*>(memory), bytes});
    ++counters_.allocations;
    return address;
  }

  void release(void* address, int64_t bytes) override {
    if (address == nullptr) return;
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(static_cast<char*>(address));
    INGOT_CHECK(at != blocks_.end() && at->second.bytes == bytes, "no block of {} bytes", bytes);
    refuse_in_capture("releases memory", address);
    require_over(at->first, bytes);
    SimStreams& mine = streams();
    mine.synchronize(mine.now(StreamRole::compute));
    forget_given_back(at->first, bytes);
    system_release(at->second.data, bytes);
    blocks_.erase(at);
  }

  void upload(void* to, const void* from, int64_t bytes, StreamRole stream) override {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    refuse_in_capture("bakes bytes of the host into the graph", to);
    char* const memory = memory_at(to, bytes);
    const auto* const first = static_cast<const char*>(from);
    std::vector<char> copy(first, first + bytes);
    add(stream, one(to, bytes, true),
        [memory, copy = std::move(copy)] { std::memcpy(memory, copy.data(), copy.size()); });
    ++counters_.uploads;
    counters_.uploaded_bytes += bytes;
  }

  void begin_download(void* to, const void* from, int64_t bytes, StreamRole stream) override {
    if (bytes == 0) return;
    const std::lock_guard lock(mutex_);
    refuse_in_capture("copies to the host", from);
    const char* const memory = memory_at(from, bytes);
    const auto size = static_cast<size_t>(bytes);
    std::memset(to, kNothing, size);  // for those that do not wait
    add(stream, one(from, bytes, false), [=] { std::memcpy(to, memory, size); });
    ++counters_.downloads;
    counters_.downloaded_bytes += bytes;
  }

  bool runs_host_kernels() const override { return true; }
  bool owns_host_kernels() const override { return !emulation().alone; }
  void launch(HostKernel&& kernel) override {
    const std::lock_guard lock(mutex_);
    if (Capture* const capture = own_capture()) {
      if (kernel.carries != nullptr)
        refuse("bakes values of the host into a kernel", fmt::format(": of '{}'", kernel.carries));
      std::vector<int64_t> uses;
      for (const KernelRange& r : kernel.ranges) uses.push_back(use_of(r.memory));
      return capture->work.push_back({CapturedWork::What::kernel, std::move(kernel), std::move(uses)});
    }
    streams().rethrow_failure();
    run(kernel);
    streams().rethrow_failure();
  }

  bool captures_graphs() const override { return true; }
  void begin_capture() override {
    const std::lock_guard lock(mutex_);
    const bool begins = captures_.emplace(std::this_thread::get_id(), std::make_shared<Capture>()).second;
    INGOT_CHECK(begins, "a capture inside of another");
  }
  DeviceGraph end_capture() override {
    const std::lock_guard lock(mutex_);
    auto capture = captures_.extract(std::this_thread::get_id());
    INGOT_CHECK(!capture.empty(), "no capture to end");
    INGOT_CHECK(capture.mapped()->in_use.empty(), "a capture that keeps a buffer of an arena");
    return {std::move(capture.mapped())};
  }
  void replay(const DeviceGraph& graph) override {
    const std::lock_guard lock(mutex_);
    INGOT_CHECK(graph.work != nullptr, "a graph that was not captured");
    refuse_in_capture("replays a graph");
    streams().rethrow_failure();
    for (const CapturedWork& w : static_cast<const Capture*>(graph.work.get())->work) replay(w);
    ++counters_.graph_launches;
    streams().rethrow_failure();
  }

  DeviceEvent record(StreamRole stream) override {
    const std::lock_guard lock(mutex_);
    refuse_in_capture("records an event");
    return {std::make_shared<Moment>(Moment{&streams(), streams().now(stream)})};
  }
  void wait(StreamRole stream, const DeviceEvent& event) override {
    const std::lock_guard lock(mutex_);
    const Moment& moment = moment_of(event);
    INGOT_CHECK(moment.of == &streams(), "an event of another thread's streams");
    streams().wait(stream, moment.clock);
  }
  void synchronize(const DeviceEvent& event) override {
    const std::lock_guard lock(mutex_);
    const Moment& moment = moment_of(event);
    INGOT_CHECK(moment.of == &streams(), "an event of another thread's streams");
    streams().synchronize(moment.clock);
    ++counters_.synchronizations;
    if (std::uncaught_exceptions() == 0) streams().rethrow_failure();
  }

  void begin_use(void* memory, int64_t bytes, const char* category) override {
    const std::lock_guard lock(mutex_);
    auto* const address = static_cast<char*>(memory);
    begin_use_of(address, bytes, ++newest_use_, category);
    Capture* const capture = own_capture();
    if (capture == nullptr) return;
    capture->in_use.insert(newest_use_);
    capture->work.push_back({.what = CapturedWork::What::begin_use,
                             .memory = address,
                             .bytes = bytes,
                             .use = newest_use_,
                             .name = category});
  }
  void end_use(void* memory, int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    char* const address = static_cast<char*>(memory);
    Capture* const capture = own_capture();
    if (capture == nullptr) return end_use_of(address, bytes);
    if (capture->in_use.erase(use_of(address)) == 0)
      refuse_in_capture("gives a buffer back to an arena that it did not take", memory);
    capture->work.push_back({.what = CapturedWork::What::end_use, .memory = address, .bytes = bytes});
    given_back_[address] = address + bytes;
  }

  void name_memory(const void* memory, int64_t bytes, const char* owner, const char* slot) override {
    const std::lock_guard lock(mutex_);
    name_sim_memory(memory, bytes, owner, slot);
    if (Capture* const capture = own_capture())
      capture->work.push_back({.what = CapturedWork::What::name,
                               .memory = static_cast<char*>(const_cast<void*>(memory)),
                               .bytes = bytes,
                               .owner = owner,
                               .name = slot});
  }

  void name_moved(const void* host, int64_t bytes, const char* what, bool away) override {
    const std::lock_guard lock(mutex_);
    name_moved_memory(host, bytes, away ? what : nullptr);
  }

  void set_order(const SimOrder& order) {
    const std::lock_guard lock(mutex_);
    order_ = order;
    for (auto& [thread, streams] : streams_) streams.set_order(order.late, order.seed);
  }

 private:
  static constexpr int64_t kPage = 4096;
  struct Memory {
    char* data;
    int64_t bytes;
  };

  static std::array<SimStreams::Range, 1> one(const void* begin, int64_t bytes, bool is_written) {
    return {{{static_cast<const char*>(begin), bytes, is_written}}};
  }

  void run(const HostKernel& kernel) {
    std::vector<SimStreams::Range> ranges;
    std::vector<void*> at;
    for (const KernelRange& r : kernel.ranges) {
      at.push_back(r.bytes > 0 ? memory_at(r.memory, r.bytes) : r.memory);
      if (r.bytes > 0) ranges.push_back({static_cast<const char*>(r.memory), r.bytes, r.is_written});
    }
    add(StreamRole::compute, ranges, [body = kernel.body, at = std::move(at)] { body(at); });
    ++counters_.launches;
  }

  /// That of the calling thread; nullptr: it captures nothing.
  Capture* own_capture() {
    const auto capture = captures_.find(std::this_thread::get_id());
    return capture != captures_.end() ? capture->second.get() : nullptr;
  }
  void refuse_in_capture(const char* what, const void* memory = nullptr) {
    if (own_capture() != nullptr) refuse(what, memory == nullptr ? "" : ": " + describe_sim_memory(memory));
  }
  /// Ends the capture.
  void refuse(const char* what, const std::string& of) {
    captures_.erase(std::this_thread::get_id());
    INGOT_CHECK(false, "a capture that {}{}", what, of);
  }

  void replay(const CapturedWork& w) {
    const auto require = [&](bool holds, const void* memory) {
      INGOT_CHECK(holds,
                  "a graph would use memory of device 'sim' that has been given to something else since it "
                  "was captured: {}. Capture it again",
                  describe_sim_memory(memory));
    };
    switch (w.what) {
      case CapturedWork::What::kernel:
        for (size_t i = 0; i < w.uses.size(); ++i)
          require(w.uses[i] == use_of(w.kernel.ranges[i].memory), w.kernel.ranges[i].memory);
        return run(w.kernel);
      case CapturedWork::What::begin_use:
        require(is_given_back(w.memory, w.bytes), w.memory);
        return begin_use_of(w.memory, w.bytes, w.use, w.name);
      case CapturedWork::What::end_use:
        return end_use_of(w.memory, w.bytes);
      case CapturedWork::What::name:
        return name_sim_memory(w.memory, w.bytes, w.owner, w.name);
    }
  }

  /// An arena gives these bytes to something of this category: use `number`.
  void begin_use_of(char* begin, int64_t bytes, int64_t number, const char* category) {
    forget_given_back(begin, bytes);
    name_sim_memory(begin, bytes, nullptr, category);
    auto at = uses_.lower_bound(begin);
    if (at != uses_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != uses_.end() && at->first < begin + bytes) at = uses_.erase(at);
    uses_[begin] = {begin + bytes, number};
  }
  void end_use_of(char* begin, int64_t bytes) {
    require_over(begin, bytes);
    char* const data = memory_at(begin, bytes);
    add(StreamRole::compute, one(begin, bytes, true),
        [=] { std::memset(data, kNothing, static_cast<size_t>(bytes)); });
    given_back_[begin] = begin + bytes;
  }
  /// Whether nobody uses any of these bytes.
  bool is_given_back(const char* begin, int64_t bytes) const {
    for (const char* at = begin; at < begin + bytes;) {
      const auto after = given_back_.upper_bound(const_cast<char*>(at));
      if (after == given_back_.begin() || std::prev(after)->second <= at) return false;
      at = std::prev(after)->second;
    }
    return true;
  }
  /// The number of the use that an arena gave the byte to; 0: none, it stays what it is until it is released.
  int64_t use_of(const void* memory) const {
    auto* const at = static_cast<char*>(const_cast<void*>(memory));
    const auto after = uses_.upper_bound(at);
    if (after == uses_.begin()) return 0;
    const Use& use = std::prev(after)->second;
    return at < use.end ? use.number : 0;
  }

  /// Those of the calling thread.
  SimStreams& streams() {
    return streams_.try_emplace(std::this_thread::get_id(), order_.late, order_.seed).first->second;
  }

  static const Moment& moment_of(const DeviceEvent& event) {
    INGOT_CHECK(event.moment != nullptr, "an event that was not recorded");
    return *static_cast<const Moment*>(event.moment.get());
  }

  void add(StreamRole stream, std::span<const SimStreams::Range> ranges, std::function<void()> run) {
    for (const auto& [begin, bytes, is_written] : ranges) {
      const auto after = given_back_.upper_bound(const_cast<char*>(begin) + bytes - 1);
      INGOT_CHECK(after == given_back_.begin() || std::prev(after)->second <= begin,
                  "stream {} would {} memory of device 'sim' that was given back: {}", name_of(stream),
                  is_written ? "write" : "read", describe_sim_memory(begin));
      require_no_other_thread(begin, bytes);
    }
    streams().add(stream, ranges, std::move(run));
  }

  /// While an exception passes, destructors give back what streams still use. Then this waits.
  void require_over(const char* begin, int64_t bytes) {
    require_no_other_thread(begin, bytes);
    if (std::uncaught_exceptions() > 0) streams().run_all();
    streams().require_over(begin, bytes);
  }
  /// Threads do not wait for each other's streams.
  void require_no_other_thread(const char* begin, int64_t bytes) {
    for (const auto& [thread, each] : streams_)
      INGOT_CHECK(thread == std::this_thread::get_id() || !each.has_work_on(begin, bytes),
                  "another thread's work on memory of device 'sim' is not over: {}",
                  describe_sim_memory(begin));
  }

  /// An arena uses these bytes again, or they are gone.
  void forget_given_back(char* begin, int64_t bytes) {
    char* const end = begin + bytes;
    for (auto at = given_back_.lower_bound(end); at != given_back_.begin();) {
      --at;
      const auto [first, last] = *at;
      if (last <= begin) break;
      at = given_back_.erase(at);
      if (end < last) at = given_back_.emplace(end, last).first;
      if (first < begin) at = given_back_.emplace(first, begin).first;
    }
  }

  /// Where the bytes behind an address of the device are.
  char* memory_at(const void* address, int64_t bytes) {
    const auto* const at = static_cast<const char*>(address);
    auto block = blocks_.upper_bound(const_cast<char*>(at));
    INGOT_CHECK(block != blocks_.begin(), "an address of another device, or one that was released");
    --block;
    const int64_t offset = at - block->first;
    INGOT_CHECK(offset + bytes <= block->second.bytes,
                "{} bytes at {} of a block of {}, or one that was released", bytes, offset,
                block->second.bytes);
    return block->second.data + offset;
  }

  std::mutex mutex_;
  SimOrder order_;
  char *first_ = nullptr, *next_ = nullptr;
  std::map<char*, Memory> blocks_;     ///< by address
  std::map<char*, char*> given_back_;  ///< first byte, end: what arenas hold and nobody uses
  struct Use {
    char* end;
    int64_t number;
  };
  std::map<char*, Use> uses_;  ///< by first byte
  int64_t newest_use_ = 0;
  std::map<std::thread::id, SimStreams> streams_;
  std::map<std::thread::id, std::shared_ptr<Capture>> captures_;
};

SimDevice& the_sim_device() {
  static SimDevice& device = *new SimDevice;  // never destroyed: others may release memory later
  return device;
}

}  // namespace

Device& sim_device() {
  return the_sim_device();
}

void set_sim_order(const SimOrder& order) {
  the_sim_device().set_order(order);
}

SimOrder sim_order_of(const std::string& text) {
  constexpr std::string_view kAsync = "async,";
  if (text == "ordered") return {};
  SimOrder order{.late = true};
  const char* const end = text.data() + text.size();
  if (text.starts_with(kAsync)) {
    const auto [at, error] = std::from_chars(text.data() + kAsync.size(), end, order.seed);
    if (error == std::errc() && at == end) return order;
  }
  throw Error(fmt::format("INGOT_SIM is '{}', expected 'ordered' or 'async,SEED'", text),
              "for example INGOT_SIM=async,1");
}

}  // namespace ingot
