// See support/fake_cuda.h. The names are those of NVIDIA's driver.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/gpu/launcher.h"
#include "device/simd/gpu_array.h"
#include "support/fake_cuda.h"

namespace {

using Result = int;
using Address = uint64_t;
constexpr Result kSuccess = 0, kInvalid = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidImage = 200,
                 kNotFound = 500, kLaunchFailed = 719, kInCapture = 900;

using Work = std::function<void()>;

struct Stream {
  std::deque<Work> queue;
  uint64_t asked = 0, done = 0;
  bool captures = false;
  std::vector<Work> captured;
  std::vector<Address> given_back;  // while it captures
};
struct Event {
  Stream* stream = nullptr;
  uint64_t moment = 0;
};
struct Graph {
  std::vector<Work> work;
  std::vector<Address> memory = {};  // that it takes and gives back, which lives as long as it does
};

std::recursive_mutex mutex;
ingot::test::FakeCuda state;
// Never destroyed: the program may release memory later.
auto& blocks = *new std::map<Address, size_t>;
auto& pinned = *new std::map<const char*, size_t>;
auto& streams = *new std::vector<Stream*>;

Result now() {
  return state.has_failed ? kLaunchFailed : kSuccess;
}

Result ask(Stream* stream, Work work) {
  if (stream->captures) {
    stream->captured.push_back(std::move(work));
    return kSuccess;
  }
  if (state.has_failed) return kLaunchFailed;
  stream->queue.push_back(std::move(work));
  ++stream->asked;
  return kSuccess;
}

bool is_pinned(const void* host, size_t bytes) {
  const auto* const first = static_cast<const char*>(host);
  auto block = pinned.upper_bound(first);
  if (block == pinned.begin()) return false;
  --block;
  return first + bytes <= block->first + block->second;
}

bool is_allocated(Address at, size_t bytes) {
  auto block = blocks.upper_bound(at);
  if (block == blocks.begin()) return false;
  --block;
  return at + bytes <= block->first + block->second;
}

/// The GPU's memory, which the host can touch while work of a stream runs only. It opens and closes as a
/// whole, which takes a time for each page: pages are huge, and an address is used again once so many bytes
/// of blocks of its size were released after it.
constexpr size_t kAddresses = size_t{1} << 40, kPage = 4096, kHugePage = size_t{2} << 20,
                 kReleased = size_t{4} << 20;
char* first_address = nullptr;
char* next_address = nullptr;
int open_depth = 0;
auto& released = *new std::map<size_t, std::deque<Address>>;   // by size, the oldest first
auto& unknown = *new std::vector<std::pair<Address, size_t>>;  // becomes NaN before work runs

size_t pages_of(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

void protect(int protection) {
  const auto used = static_cast<size_t>(next_address - first_address);
  if (used > 0) ::mprotect(first_address, (used + kHugePage - 1) / kHugePage * kHugePage, protection);
}

class Open {
 public:
  Open() {
    if (open_depth++ > 0) return;
    protect(PROT_READ | PROT_WRITE);
    for (const auto& [memory, bytes] : unknown) std::memset(reinterpret_cast<void*>(memory), 0xff, bytes);
    unknown.clear();
  }
  ~Open() {
    if (--open_depth == 0) protect(PROT_NONE);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

/// Addresses of so many bytes; 0: there are none.
Address find_addresses(size_t size) {
  if (auto& old = released[size]; old.size() * size > kReleased) {
    const Address memory = old.front();
    old.pop_front();
    return memory;
  }
  if (first_address == nullptr) {
    auto* const all = static_cast<char*>(
        ::mmap(nullptr, kAddresses, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    const size_t beyond = reinterpret_cast<uintptr_t>(all) % kHugePage;
    first_address = next_address = all + (kHugePage - beyond) % kHugePage;
    ::madvise(first_address, kAddresses - kHugePage, MADV_HUGEPAGE);
  }
  if (next_address + size > first_address + kAddresses - kHugePage) return 0;
  const auto memory = reinterpret_cast<Address>(next_address);
  next_address += size;
  return memory;
}

/// Work of a stream asks for no memory, so none is open.
Result allocate(Address* memory, size_t bytes) {
  if (state.has_failed) return kLaunchFailed;
  if (state.used + bytes > state.memory) return kOutOfMemory;
  *memory = find_addresses(pages_of(bytes));
  if (*memory == 0) return kOutOfMemory;
  unknown.emplace_back(*memory, bytes);
  blocks[*memory] = bytes;
  state.used += bytes;
  state.most_used = std::max(state.most_used, state.used);
  ++state.blocks;
  return kSuccess;
}

Result release(Address memory) {
  const auto block = blocks.find(memory);
  if (block == blocks.end()) return kInvalid;
  --state.blocks;
  if (open_depth > 0)
    std::memset(reinterpret_cast<void*>(memory), 0xff, block->second);
  else
    unknown.emplace_back(memory, block->second);
  released[pages_of(block->second)].push_back(memory);
  blocks.erase(block);
  return now();
}

void drain(Stream& stream, uint64_t moment) {
  if (stream.done >= moment) return;
  const Open open;
  while (stream.done < moment && !stream.queue.empty()) {
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    ++stream.done;
    if (state.has_failed) continue;
    try {
      work();
    } catch (...) {
      state.has_failed = true;
    }
  }
}

}  // namespace

#define LOCKED const std::lock_guard<std::recursive_mutex> lock(mutex)

extern "C" {

ingot::test::FakeCuda* ingot_fake_cuda() {
  return &state;
}

Result cuInit(unsigned) {
  return state.devices == 0 ? kNoDevice : state.start;
}
Result cuDriverGetVersion(int* version) {
  *version = state.version;
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  *count = state.devices;
  return kSuccess;
}
Result cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
Result cuDeviceGetName(char* name, int bytes, int) {
  std::strncpy(name, "a faked GPU", static_cast<size_t>(bytes));
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int kMultiprocessors = 3;  // fewer than tiles of a product, so that each takes several
  *value = attribute == 75   ? state.compute_major
           : attribute == 76 ? state.compute_minor
           : attribute == 16 ? kMultiprocessors
                             : 0;
  return kSuccess;
}
/// The map says what it was asked to be; a driver's is not for the host to read.
Result cuTensorMapEncodeTiled(uint64_t* map, int type, unsigned rank, void* memory, const uint64_t* extents,
                              const uint64_t* strides, const unsigned* tile, const unsigned* steps,
                              int interleave, int swizzle, int, int fill) {
  constexpr int kBfloat16 = 9, kSwizzle128Bytes = 3;
  constexpr uint64_t kUnit = 16;
  if (type != kBfloat16 || rank != 3 || interleave != 0 || swizzle != kSwizzle128Bytes || fill != 0)
    return kInvalid;
  if (reinterpret_cast<Address>(memory) % kUnit != 0) return kInvalid;
  for (int i = 0; i < 3; ++i)
    if (extents[i] == 0 || tile[i] == 0 || tile[i] > 256 || steps[i] != 1) return kInvalid;
  for (int i = 0; i < 2; ++i)
    if (strides[i] % kUnit != 0 || strides[i] == 0) return kInvalid;
  const uint64_t said[] = {reinterpret_cast<Address>(memory),
                           extents[0],
                           extents[1],
                           extents[2],
                           strides[0],
                           strides[1],
                           tile[0],
                           tile[1],
                           tile[2]};
  std::memcpy(map, said, sizeof(said));
  return kSuccess;
}
Result cuFuncSetAttribute(const void*, int, int) {
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &state;
  return now();
}
Result cuCtxSetCurrent(void* context) {
  return context == &state ? now() : kInvalid;
}
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  LOCKED;
  *free = state.memory - state.used, *total = state.memory;
  return kSuccess;
}
Result cuMemAlloc_v2(Address* memory, size_t bytes) {
  LOCKED;
  return allocate(memory, bytes);
}
Result cuMemFree_v2(Address memory) {
  LOCKED;
  for (Stream* stream : streams) drain(*stream, stream->asked);
  const auto block = blocks.find(memory);
  if (block == blocks.end()) return kInvalid;
  state.used -= block->second;
  return release(memory);
}
Result cuMemHostRegister_v2(void* host, size_t bytes, unsigned flags) {
  LOCKED;
  const auto* const first = static_cast<const char*>(host);
  for (const auto& [other, size] : pinned)
    if (first < other + size && other < first + bytes) return kInvalid;
  if (bytes == 0 || flags != 0) return kInvalid;
  if (state.has_failed) return kLaunchFailed;
  if (bytes > state.lockable - state.locked) return kOutOfMemory;
  pinned[first] = bytes;
  state.locked += bytes;
  ++state.pins;
  return now();
}
Result cuMemHostUnregister(void* host) {
  LOCKED;
  const auto block = pinned.find(static_cast<const char*>(host));
  if (block == pinned.end()) return kInvalid;
  state.locked -= block->second;
  pinned.erase(block);
  return now();
}
Result cuMemAllocAsync(Address* memory, size_t bytes, Stream*) {
  LOCKED;
  return allocate(memory, bytes);
}
Result cuMemFreeAsync(Address memory, Stream* stream) {
  LOCKED;
  const auto block = blocks.find(memory);
  if (block == blocks.end()) return kInvalid;
  state.used -= block->second;  // the stream's later work may have it
  if (!stream->captures) return ask(stream, [memory] { release(memory); });
  stream->given_back.push_back(memory);
  return now();
}
Result cuDeviceGetDefaultMemPool(void** pool, int) {
  *pool = &state;
  return now();
}
Result cuMemPoolSetAttribute(void* pool, int, void*) {
  return pool == &state ? now() : kInvalid;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
  LOCKED;
  if (!is_allocated(to, bytes)) return kInvalid;
  if (is_pinned(from, bytes))
    return ask(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  ++state.pageable_copies;
  const auto* const first = static_cast<const char*>(from);
  return ask(stream, [to, copy = std::vector<char>(first, first + bytes)] {
    std::memcpy(reinterpret_cast<void*>(to), copy.data(), copy.size());
  });
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
  LOCKED;
  if (!is_allocated(from, bytes)) return kInvalid;
  if (!is_pinned(to, bytes)) ++state.pageable_copies;
  return ask(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
  LOCKED;
  if (!is_allocated(to, bytes) || !is_allocated(from, bytes)) return kInvalid;
  return ask(stream,
             [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Stream* stream) {
  LOCKED;
  if (!is_allocated(to, bytes)) return kInvalid;
  return ask(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
Result cuStreamCreate(Stream** stream, unsigned) {
  LOCKED;
  *stream = streams.emplace_back(new Stream);
  return now();
}
Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  LOCKED;
  return ask(stream, [of = event->stream, moment = event->moment] {
    if (of != nullptr) drain(*of, moment);
  });
}
Result cuStreamSynchronize(Stream* stream) {
  LOCKED;
  if (stream->captures) return kInCapture;
  drain(*stream, stream->asked);
  return now();
}
Result cuEventCreate(Event** event, unsigned) {
  *event = new Event;
  return now();
}
Result cuEventRecord(Event* event, Stream* stream) {
  LOCKED;
  if (stream->captures) return kInCapture;
  *event = {stream, stream->asked};
  return now();
}
Result cuEventSynchronize(Event* event) {
  LOCKED;
  if (event->stream != nullptr) drain(*event->stream, event->moment);
  return now();
}
Result cuEventDestroy_v2(Event* event) {
  delete event;
  return kSuccess;
}
Result cuModuleLoadData(const void** module, const void* image) {
  constexpr uint32_t kFatBinary = 0xba55ed50;  // what nvcc's images begin with
  *module = image;
  return *static_cast<const uint32_t*>(image) == kFatBinary ? kSuccess : kInvalidImage;
}
/// The one kernel that is known here, of src/device/simd/array.cu, from f32 to f32.
Result cuModuleGetFunction(const char** function, void*, const char* name) {
  *function = name;
  return std::strstr(name, "array_copy_kernelIffEE") != nullptr ? kSuccess : kNotFound;
}
Result cuLaunchKernel(const void*, unsigned blocks, unsigned y, unsigned z, unsigned threads, unsigned,
                      unsigned, unsigned, Stream* stream, void** parameters, void**) {
  LOCKED;
  const auto copy = *static_cast<const ingot::GpuArrayCopy*>(parameters[0]);
  if (y != 1 || z != 1 || int64_t{blocks} * threads * 4 < copy.n) return kInvalid;
  return ask(stream, [copy] {
    for (int64_t i = 0; i < copy.n; ++i)
      static_cast<float*>(copy.to)[i] =
          static_cast<const float*>(copy.from)[i] + (copy.accumulate ? static_cast<float*>(copy.to)[i] : 0);
  });
}
Result cuStreamBeginCapture_v2(Stream* stream, int) {
  LOCKED;
  if (stream->captures) return kInCapture;
  stream->captures = true;
  return now();
}
Result cuStreamEndCapture(Stream* stream, Graph** graph) {
  LOCKED;
  if (!stream->captures) return kInCapture;
  stream->captures = false;
  *graph = new Graph{std::exchange(stream->captured, {}), std::exchange(stream->given_back, {})};
  return now();
}
Result cuGraphInstantiateWithFlags(Graph** run, Graph* graph, unsigned long long) {
  *run = new Graph{graph->work};
  return now();
}
#ifndef INGOT_FAKE_OLD_DRIVER
Result cuGraphLaunch(Graph* run, Stream* stream) {
  LOCKED;
  for (const Work& work : run->work)
    if (const Result failed = ask(stream, work); failed != kSuccess) return failed;
  return now();
}
#endif
Result cuGraphDestroy(Graph* graph) {
  LOCKED;
  for (Stream* stream : streams) drain(*stream, stream->asked);
  for (const Address memory : graph->memory) release(memory);
  delete graph;
  return kSuccess;
}
Result cuGraphExecDestroy(Graph* run) {
  delete run;
  return kSuccess;
}
Result cuGetErrorName(Result error, const char** name) {
  *name = error == kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kNoDevice     ? "CUDA_ERROR_NO_DEVICE"
          : error == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED"
                                   : nullptr;
  return *name != nullptr ? kSuccess : kInvalid;
}
Result cuGetErrorString(Result error, const char** text) {
  *text = error == kLaunchFailed ? "unspecified launch failure" : nullptr;
  return *text != nullptr ? kSuccess : kInvalid;
}

#ifndef INGOT_FAKE_COMPILED
Result ingot_launch_host_code(Stream* stream, const ingot::GpuLaunch& launch,
                              void (*run)(const char*, int64_t, int, void (*)(const void*), const void*)) {
  LOCKED;
  const size_t units = launch.argument_bytes / sizeof(std::max_align_t) + 1;
  const auto arguments = std::make_shared<std::vector<std::max_align_t>>(units);
  std::memcpy(arguments->data(), launch.arguments, launch.argument_bytes);
  return ask(stream, [=, name = launch.name, grid = launch.grid, body = launch.body] {
    if (state.good_launches >= 0 && state.launches >= state.good_launches) {
      state.has_failed = true;
      return;
    }
    ++state.launches;
    run(name, grid.blocks, grid.threads, body, arguments->data());
  });
}
#endif

}  // extern "C"
