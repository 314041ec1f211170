// A device: where the buffers of a tape are, and how bytes reach them from the host. One of each kind in a
// process; ranks that are threads share it.
//   cpu   the machine's memory, which kernels and host code share
//   null  no memory: a dry run counts allocations and work (tensor/arena.h, CountingArena)
//   sim   memory that host code cannot touch, as a GPU's. It proves on any machine that host code does not
//         read what a device holds (sim/sim_device.h)
//   cuda  an NVIDIA GPU behind the driver's interface (cuda/cuda_device.h)
//   hip   not built yet
// docs/gpu.md says how far the way to a GPU is.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/enum.h"

namespace ingot {

struct HostKernel;  // device/host_kernel.h

enum class DeviceKind : uint8_t { cpu = 0, null = 1, cuda = 2, hip = 3, sim = 4 };
constexpr auto enum_names(DeviceKind) {
  return names_in_order<DeviceKind>("cpu", "null", "cuda", "hip", "sim");
}

/// The streams that a thread has on a device. Work of one stream runs in the order in which it was asked for,
/// work of two beside each other, unless one waits for an event of the other.
///   compute   kernels
///   copy_in, copy_out   values that wait on the host (tensor/offload.h)
///   comm      messages of other ranks
enum class StreamRole : uint8_t { compute, copy_in, copy_out, comm };
constexpr auto enum_names(StreamRole) {
  return names_in_order<StreamRole>("compute", "copy_in", "copy_out", "comm");
}

/// A moment of a stream: all that it was asked for until then is over, and what that waited for. Of the
/// thread that recorded it. A device that does its work at once leaves it empty.
struct DeviceEvent {
  std::shared_ptr<const void> moment;
};

/// Work that a device has captured, to be asked for again as a whole.
struct DeviceGraph {
  std::shared_ptr<const void> work;
};

/// What was launched, allocated and copied, and how often the host waited, since the process began; zeros for
/// the cpu, whose memory is the host's.
struct DeviceCounters {
  std::atomic<int64_t> launches = 0;  ///< of kernels, those of a graph counted with it
  std::atomic<int64_t> graph_launches = 0;
  std::atomic<int64_t> allocations = 0;
  std::atomic<int64_t> uploads = 0, uploaded_bytes = 0;
  std::atomic<int64_t> downloads = 0, downloaded_bytes = 0;
  /// Of these copies, those that host code makes because it wants a value now, or has one that a kernel
  /// wants; a planned copy is made beside kernels and waited for with all others of a step.
  std::atomic<int64_t> unplanned_copies = 0;
  /// Of all copies, those of a GPU's compute stream from or to memory of the host that is not page-locked.
  /// The host may wait for each of them as for an event.
  std::atomic<int64_t> pageable_copies = 0;
  std::atomic<int64_t> synchronizations = 0;
};

/// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  /// Memory of the device, 64-byte aligned, not initialised; nullptr for no bytes. Error: out of memory.
  virtual void* allocate(int64_t bytes) = 0;
  /// Frees memory of allocate() with the same size, once the compute stream is done with it. Other streams
  /// must be done with it as end_use() demands.
  virtual void release(void* memory, int64_t bytes) = 0;
  /// Copies from the host to the device, in the stream. The host's bytes may change once it returns.
  virtual void upload(void* to, const void* from, int64_t bytes, StreamRole stream = StreamRole::compute) = 0;
  /// Begins to copy from the device to the host, in the stream. `to` must stay, and has the bytes once an
  /// event recorded later is synchronized.
  virtual void begin_download(void* to, const void* from, int64_t bytes, StreamRole stream) = 0;
  /// Memory of the host for begin_download(), 64-byte aligned, not initialised; nullptr for no bytes. It is
  /// given back with the same size once no copy writes it. For a GPU it is page-locked, so that the host does
  /// not wait for copies to it, and kept when it was given back; ordinary memory where the system refuses.
  /// Use HostBlock (device/host_block.h). Error: out of memory.
  virtual void* take_host(int64_t bytes);
  virtual void give_host(void* memory, int64_t bytes);
  /// begin_download(), and waits: the bytes are there once it returns.
  void download(void* to, const void* from, int64_t bytes, StreamRole stream = StreamRole::compute);

  /// Whether kernels of this device may be host code.
  virtual bool runs_host_kernels() const { return false; }
  /// Whether the CPU's kernels then count as the device's own: the policy strict (tape/op.h) takes them.
  virtual bool owns_host_kernels() const { return runs_host_kernels(); }
  /// Runs host code as a kernel, in the compute stream. What it throws is thrown by this call or a later one
  /// that launches, or waits for an event.
  virtual void launch(HostKernel&& kernel);

  // Work of the compute stream on the device's memory, as kernels are; here for devices that run host code.

  virtual void copy(void* to, const void* from, int64_t bytes);
  virtual void set_zero(void* memory, int64_t bytes);
  /// to[i] += from[i], of floats.
  virtual void add(void* to, const void* from, int64_t count);

  /// Whether the device captures graphs.
  virtual bool captures_graphs() const { return false; }
  /// Kernels that the thread launches from now on are not run but kept, until end_capture(). What would be
  /// another at each replay is an InternalError, which ends the capture: bytes that are copied from or to the
  /// host, waits, events, memory that is allocated or released. What an arena gives out must come back to it
  /// before the capture ends, and is given out again by each replay.
  virtual void begin_capture() {}
  virtual DeviceGraph end_capture() { return {}; }
  /// Asks for the work of the graph in the compute stream. Its kernels read what their memory holds then;
  /// what else they use is as it was when it was captured. InternalError where an arena has given some of
  /// that memory to something else since, or it was released, on a device that knows what its kernels touch
  /// (sim).
  virtual void replay(const DeviceGraph& /*graph*/) {}

  virtual DeviceEvent record(StreamRole /*stream*/) { return {}; }
  /// What the stream is asked for from now on runs after the event.
  virtual void wait(StreamRole /*stream*/, const DeviceEvent& /*event*/) {}
  /// Returns after the event.
  virtual void synchronize(const DeviceEvent& /*event*/) {}

  /// An arena uses these bytes of its memory for something of this category, a literal, from now on.
  virtual void begin_use(void* /*memory*/, int64_t /*bytes*/, const char* /*category*/) {}
  /// The arena may use them for something else. What other streams do with them must be over before anything
  /// that the compute stream is asked for next.
  virtual void end_use(void* /*memory*/, int64_t /*bytes*/) {}
  /// Says what a part of the device's memory holds from now on, for messages: output or input `slot` of op
  /// `owner`. Both are literals.
  virtual void name_memory(const void* /*memory*/, int64_t /*bytes*/, const char* /*owner*/,
                           const char* /*slot*/) {}
  /// Values of this host memory, of category `what` (a literal), have moved to the device, or back: for
  /// messages about host code that touches it meanwhile.
  virtual void name_moved(const void* /*host*/, int64_t /*bytes*/, const char* /*what*/, bool /*away*/) {}
  void count_unplanned_copy() { ++counters_.unplanned_copies; }
  const DeviceCounters& counters() const { return counters_; }

 protected:
  DeviceCounters counters_;
};

Device& cpu_device();
Device& null_device();
/// Error for a kind that this program was built without.
Device& device_of(DeviceKind kind);

/// The device that forward and backward passes of training run on, in the whole process; cpu by default, or
/// what INGOT_DEVICE names. Set it before anything runs. Errors as device_of(); for null, which trains
/// nothing.
void set_compute_device(DeviceKind kind);
DeviceKind compute_device();

}  // namespace ingot
