// See cuda_device.h.
#include "device/cuda/cuda_device.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "device/cuda/kernel_images.h"
#include "device/cuda/pinned_memory.h"
#include "device/cuda/upload_staging.h"
#include "device/gpu/emulator.h"
#include "device/simd/gpu_array.h"

namespace ingot {
namespace {

using namespace cuda_driver;

constexpr unsigned kBesideDefaultStream = 1,
                   kWithoutTime = 2;  // CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING
constexpr int kOfThread = 1;          // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kReleaseThreshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
constexpr int64_t kMostThreads = 1024;
constexpr unsigned kUsualSharedBytes = 48 << 10;  // more must be asked for
constexpr int kMostSharedBytes = 8;               // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kBfloat16 = 9, kSwizzle128Bytes = 3,
              kPromote256Bytes = 3;  // CU_TENSOR_MAP_DATA_TYPE_, _SWIZZLE_, _L2_PROMOTION_

Address address_of(const void* memory) {
  return reinterpret_cast<Address>(memory);
}

/// Which context the thread has bound; of the process's devices there is one but in tests.
thread_local const void* bound_context = nullptr;

class DriverDevice final : public CudaDevice {
 public:
  explicit DriverDevice(Driver driver)
      : driver_(std::move(driver)),
        call_(driver_.call),
        kernels_(call_),
        pinned_(call_, driver_.name),
        staging_(pinned_) {
    check(call_.retain_context(&context_, driver_.device), "its context");
    // What was borrowed stays with the process: else each wait of the host would give it back to the system.
    Pool pool = nullptr;
    uint64_t all = ~uint64_t{0};
    check(call_.default_pool(&pool, driver_.device), "its pool of memory");
    check(call_.set_pool(pool, kReleaseThreshold, &all), "its pool of memory");
  }
  /// No stream reads or writes pinned memory any more.
  ~DriverDevice() override {
    call_.set_context(context_);
    bound_context = context_;
    for (const auto& [thread, streams] : streams_)
      for (const Stream each : streams)
        if (each != nullptr) call_.stream_synchronize(each);
  }
  const Driver& driver() const override { return driver_; }
  Stream compute_stream() override {
    bind();
    return stream(StreamRole::compute);
  }
  Memory memory() override {
    bind();
    size_t free = 0, all = 0;
    check(call_.memory_info(&free, &all), "its memory");
    return {static_cast<int64_t>(free), static_cast<int64_t>(all)};
  }
  void pin(void* host, int64_t bytes) override {
    bind();
    check(pinned_.pin(host, bytes), "the pinning of the host's memory");
  }
  void unpin(void* host) override {
    bind();
    check(pinned_.unpin(host), "the release of pinned memory");
  }

  void* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    bind();
    refuse_in_capture("allocates memory");
    Address memory = 0;
    require_memory(call_.allocate(&memory, static_cast<size_t>(bytes)), bytes);
    ++counters_.allocations;
    return reinterpret_cast<void*>(memory);
  }

  /// Destructors call it, also after a failure that every later call of the driver repeats: it says nothing.
  void release(void* memory, int64_t) override {
    if (memory == nullptr) return;
    bind();
    const UploadStaging::Moment before = staging_.now();
    if (call_.stream_synchronize(stream(StreamRole::compute)) == kSuccess) staging_.passed(before);
    call_.release(address_of(memory));
  }

  void* borrow(int64_t bytes) override {
    bind();
    Address memory = 0;
    require_memory(call_.allocate_in_stream(&memory, static_cast<size_t>(bytes), stream(StreamRole::compute)),
                   bytes);
    return reinterpret_cast<void*>(memory);
  }
  void give_back(void* memory) override {
    bind();
    call_.release_in_stream(address_of(memory), stream(StreamRole::compute));
  }

  void put(void* to, const void* from, int64_t bytes) override {
    upload(to, from, bytes, StreamRole::compute);
    count_unplanned_copy();
  }

  void* take_host(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    bind();
    void* const block = pinned_.take(bytes);
    return block != nullptr ? block : CudaDevice::take_host(bytes);
  }
  void give_host(void* memory, int64_t bytes) override {
    if (memory != nullptr && !pinned_.give_back(memory, bytes)) CudaDevice::give_host(memory, bytes);
  }

  /// The driver has taken the bytes of memory that is not pinned when it returns.
  void upload(void* to, const void* from, int64_t bytes, StreamRole role) override {
    if (bytes == 0) return;
    bind();
    refuse_in_capture("bakes bytes of the host into the graph");
    const bool is_compute = role == StreamRole::compute;
    const void* const staged = is_compute ? staging_.stage(from, bytes) : nullptr;
    check(call_.upload(address_of(to), staged != nullptr ? staged : from, static_cast<size_t>(bytes),
                       stream(role)),
          "a copy to it");
    if (is_compute && staged == nullptr && !pinned_.holds(from, bytes)) ++counters_.pageable_copies;
    ++counters_.uploads;
    counters_.uploaded_bytes += bytes;
  }

  void begin_download(void* to, const void* from, int64_t bytes, StreamRole role) override {
    if (bytes == 0) return;
    bind();
    refuse_in_capture("copies to the host");
    check(call_.download(to, address_of(from), static_cast<size_t>(bytes), stream(role)), "a copy from it");
    if (role == StreamRole::compute && !pinned_.holds(to, bytes)) ++counters_.pageable_copies;
    ++counters_.downloads;
    counters_.downloaded_bytes += bytes;
  }

  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    bind();
    check(
        call_.copy(address_of(to), address_of(from), static_cast<size_t>(bytes), stream(StreamRole::compute)),
        "a copy within it");
  }
  void set_zero(void* memory, int64_t bytes) override {
    if (bytes == 0) return;
    bind();
    check(call_.set_bytes(address_of(memory), 0, static_cast<size_t>(bytes), stream(StreamRole::compute)),
          "the filling of memory");
  }
  void add(void* to, const void* from, int64_t count) override {
    const LaunchOn on(this);
    INGOT_GPU_CALL(launch_array_copy)({}, {to, DType::f32, from, DType::f32, count, true});
  }

  bool takes_compiled() const override { return !driver_.is_faked(); }
  int compute_capability() const override { return driver_.compute; }
  int multiprocessors() const override { return driver_.multiprocessors; }
  TensorMap tensor_map(const TiledMatrices& m) override {
    TensorMap map{};
    const auto extent = [](int64_t x) { return static_cast<uint64_t>(x); };
    const std::array<uint64_t, 3> extents = {extent(m.columns), extent(m.rows), extent(m.count)};
    const std::array<uint64_t, 2> strides = {2 * extent(m.row_stride), 2 * extent(m.matrix_stride)};
    const std::array<unsigned, 3> tile = {kTileColumns, static_cast<unsigned>(m.tile_rows), 1},
                                  steps = {1, 1, 1};
    check(call_.encode_tiles(&map, kBfloat16, 3, const_cast<void*>(m.first), extents.data(), strides.data(),
                             tile.data(), steps.data(), 0, kSwizzle128Bytes, kPromote256Bytes, 0),
          "the map of a tensor");
    return map;
  }
  void launch_kernel(const GpuLaunch& k) override {
    INGOT_CHECK(k.grid.blocks > 0 && k.grid.blocks < int64_t{1} << 31 && k.grid.threads > 0 &&
                    k.grid.threads <= kMostThreads,
                "kernel {} is launched with {} blocks of {} threads", k.name, k.grid.blocks, k.grid.threads);
    bind();
    newest_kernel_ = k.name;
    const Stream compute = stream(StreamRole::compute);
    if (k.compiled == nullptr) {
      INGOT_CHECK(driver_.is_faked(), "kernel {} is host code", k.name);
      check(call_.launch_host_code(compute, k, emulator::run), "a launch");
    } else {
      const Function function = function_of(k);
      const auto shared = static_cast<unsigned>(k.grid.shared_bytes);
      if (shared > kUsualSharedBytes)
        check(call_.set_function(function, kMostSharedBytes, static_cast<int>(shared)), "a launch");
      check(call_.launch(function, static_cast<unsigned>(k.grid.blocks), 1, 1,
                         static_cast<unsigned>(k.grid.threads), 1, 1, shared, compute, k.parameters, nullptr),
            "a launch");
    }
    Capture* const capture = own_capture();
    if (capture != nullptr)
      ++capture->kernels;
    else
      ++counters_.launches;
  }

  const void* constant(const void* host, int64_t bytes) override {
    const std::lock_guard lock(constants_mutex_);
    void*& there = constants_[host];
    if (there == nullptr) {
      there = allocate(bytes);
      upload(there, host, bytes, StreamRole::compute);
      check(call_.stream_synchronize(stream(StreamRole::compute)), "a copy to it");  // for other threads
    }
    return there;
  }

  bool captures_graphs() const override { return true; }
  void begin_capture() override {
    bind();
    INGOT_CHECK(own_capture() == nullptr, "a capture inside of another");
    check(call_.capture_begin(stream(StreamRole::compute), kOfThread), "a capture");
    const std::lock_guard lock(mutex_);
    captures_[std::this_thread::get_id()] = {};
  }
  DeviceGraph end_capture() override {
    bind();
    const Capture* const capture = own_capture();
    INGOT_CHECK(capture != nullptr, "no capture to end");
    const auto made = std::make_shared<MadeGraph>(call_);
    made->kernels = capture->kernels;
    forget_capture();
    check(call_.capture_end(stream(StreamRole::compute), &made->graph), "the end of a capture");
    check(call_.graph_instantiate(&made->run, made->graph, 0), "the making of a graph");
    return {made};
  }
  void replay(const DeviceGraph& graph) override {
    bind();
    INGOT_CHECK(graph.work != nullptr, "a graph that was not captured");
    refuse_in_capture("replays a graph");
    const auto& made = *static_cast<const MadeGraph*>(graph.work.get());
    check(call_.graph_launch(made.run, stream(StreamRole::compute)), "the launch of a graph");
    ++counters_.graph_launches;
    counters_.launches += made.kernels;
  }

  DeviceEvent record(StreamRole role) override {
    bind();
    refuse_in_capture("records an event");
    const auto moment = std::make_shared<MadeEvent>(call_);
    check(call_.event_create(&moment->event, kWithoutTime), "an event");
    check(call_.event_record(moment->event, stream(role)), "an event");
    if (role == StreamRole::compute) moment->staged = staging_.now();
    return {moment};
  }
  void wait(StreamRole role, const DeviceEvent& event) override {
    bind();
    refuse_in_capture("waits for an event");
    check(call_.stream_wait(stream(role), event_of(event), 0), "a stream that waits");
  }
  void synchronize(const DeviceEvent& event) override {
    bind();
    refuse_in_capture("waits for the device");
    ++counters_.synchronizations;
    check(call_.event_synchronize(event_of(event)), "its work");
    staging_.passed(static_cast<const MadeEvent*>(event.moment.get())->staged);
  }

 private:
  struct Capture {
    int64_t kernels = 0;
  };
  struct MadeEvent {
    explicit MadeEvent(const Functions& c) : call(c) {}
    MadeEvent(const MadeEvent&) = delete;
    MadeEvent& operator=(const MadeEvent&) = delete;
    ~MadeEvent() {
      if (event != nullptr) call.event_destroy(event);
    }
    const Functions& call;
    Event event = nullptr;
    UploadStaging::Moment staged;  ///< which uploads are over after it
  };
  struct MadeGraph {
    explicit MadeGraph(const Functions& c) : call(c) {}
    MadeGraph(const MadeGraph&) = delete;
    MadeGraph& operator=(const MadeGraph&) = delete;
    ~MadeGraph() {
      if (run != nullptr) call.graph_run_destroy(run);
      if (graph != nullptr) call.graph_destroy(graph);
    }
    const Functions& call;
    Graph graph = nullptr;
    GraphRun run = nullptr;
    int64_t kernels = 0;
  };

  void bind() {
    if (bound_context == context_) return;
    check(call_.set_context(context_), "its context");
    bound_context = context_;
  }

  /// Of the calling thread; a later thread of the same number takes them.
  Stream stream(StreamRole role) {
    const std::lock_guard lock(mutex_);
    Stream& s = streams_[std::this_thread::get_id()][static_cast<size_t>(role)];
    if (s == nullptr) check(call_.stream_create(&s, kBesideDefaultStream), "a stream");
    return s;
  }

  static Event event_of(const DeviceEvent& event) {
    INGOT_CHECK(event.moment != nullptr, "an event that was not recorded");
    return static_cast<const MadeEvent*>(event.moment.get())->event;
  }

  Function function_of(const GpuLaunch& k) {
    Result error = kSuccess;
    const Function function = kernels_.find(k.compiled, error);
    if (function != nullptr) return function;
    check(error, "the loading of a kernel");
    INGOT_CHECK(false, "kernel {} was not registered", k.name);
  }

  Capture* own_capture() {
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(std::this_thread::get_id());
    return found != captures_.end() ? &found->second : nullptr;
  }
  void forget_capture() {
    const std::lock_guard lock(mutex_);
    captures_.erase(std::this_thread::get_id());
  }
  void refuse_in_capture(const char* what) {
    if (own_capture() == nullptr) return;
    forget_capture();
    Graph half = nullptr;
    call_.capture_end(stream(StreamRole::compute), &half);
    if (half != nullptr) call_.graph_destroy(half);
    INGOT_CHECK(false, "a capture that {}", what);
  }

  /// Errors of work that was asked for earlier come with any call: the newest kernel is where to look first.
  void check(Result result, const char* what) const {
    if (result == kSuccess) return;
    const char* const kernel = newest_kernel_;
    throw Error(
        fmt::format(
            "device 'cuda' ({}): {} failed: {}{}", driver_.name, what, text_of(call_, result),
            kernel != nullptr ? fmt::format("; the newest kernel that was asked for is '{}'", kernel) : ""),
        "checkpoints that were written stay as they are, and the run resumes from the last one; "
        "`nvidia-smi` and `dmesg` say how the GPU is");
  }
  void require_memory(Result result, int64_t bytes) const {
    if (result != kOutOfMemory) return check(result, "an allocation");
    size_t free = 0, total = 0;
    call_.memory_info(&free, &total);
    constexpr double kMiB = 1 << 20;
    throw Error(
        fmt::format("device 'cuda' ({}): out of memory: {:.1f} MiB were asked for, {:.1f} of {:.1f} MiB "
                    "are free",
                    driver_.name, static_cast<double>(bytes) / kMiB, static_cast<double>(free) / kMiB,
                    static_cast<double>(total) / kMiB),
        "a smaller micro-batch or memory.recompute needs less; `nvidia-smi` lists other programs that "
        "hold memory of the GPU");
  }

  const Driver driver_;
  const Functions& call_;
  LoadedKernels kernels_;
  PinnedMemory pinned_;
  UploadStaging staging_;
  Context context_ = nullptr;
  std::atomic<const char*> newest_kernel_ = nullptr;
  std::mutex mutex_;
  std::map<std::thread::id, std::array<Stream, 4>> streams_;
  std::map<std::thread::id, Capture> captures_;
  std::mutex constants_mutex_;
  std::map<const void*, void*> constants_;
};

}  // namespace

std::unique_ptr<CudaDevice> make_cuda_device(cuda_driver::Driver driver) {
  if (!driver.is_faked() && !has_kernel_images())
    throw Error(fmt::format("device 'cuda': this program has no kernels for it ({})", driver.name),
                "leave --device out to compute on the CPU, or configure with -DINGOT_CUDA=ON where nvcc is");
  if (!driver.is_faked() && !cuda_driver::serve(cuda_driver::image_architectures(), driver.compute))
    throw Error(fmt::format("device 'cuda': {} is {}, and this program's kernels are for {}", driver.name,
                            driver.architecture(), cuda_driver::image_architectures()),
                "leave --device out to compute on the CPU, or configure with -DINGOT_CUDA_ARCHITECTURES=" +
                    driver.architecture());
  return std::make_unique<DriverDevice>(std::move(driver));
}

CudaDevice& cuda_device() {
  static std::mutex mutex;
  static CudaDevice* device = nullptr;  // never destroyed: others may release memory later
  const std::lock_guard lock(mutex);
  if (device == nullptr) {
    const char* const library = std::getenv("INGOT_CUDA_LIBRARY");
    device =
        make_cuda_device(cuda_driver::open_driver(library != nullptr ? library : "libcuda.so.1")).release();
  }
  return *device;
}

}  // namespace ingot
