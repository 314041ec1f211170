// See device.h: the cpu and null devices, and which device computes.
#include "device/device.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/host_kernel.h"
#include "device/memory/pages.h"
#include "device/sim/sim_device.h"

namespace ingot {
namespace {

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  void* allocate(int64_t bytes) override { return system_allocate(bytes); }
  void release(void* memory, int64_t bytes) override { system_release(memory, bytes); }
  void upload(void* to, const void* from, int64_t bytes, StreamRole) override {
    std::memmove(to, from, static_cast<size_t>(bytes));
  }
  void begin_download(void* to, const void* from, int64_t bytes, StreamRole stream) override {
    upload(to, from, bytes, stream);
  }
  bool runs_host_kernels() const override { return true; }
  void launch(HostKernel&& kernel) override {
    std::vector<void*> at;
    for (const KernelRange& range : kernel.ranges) at.push_back(range.memory);
    kernel.body(at);
  }
};

class NullDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::null; }
  void* allocate(int64_t) override { return nullptr; }
  void release(void*, int64_t) override {}
  void upload(void*, const void*, int64_t, StreamRole) override {}
  void begin_download(void*, const void*, int64_t, StreamRole) override {
    INGOT_CHECK(false, "the null device has no data");
  }
};

DeviceKind checked(DeviceKind kind) {
  if (kind == DeviceKind::null)
    throw Error("device 'null' counts memory and work, and trains nothing", "`ingot plan` uses it");
  device_of(kind);
  return kind;
}

std::atomic<int> chosen = -1;  // a DeviceKind; -1: nothing was chosen

DeviceKind device_of_environment() {
  const char* const name = std::getenv("INGOT_DEVICE");
  return name == nullptr ? DeviceKind::cpu : checked(enum_from<DeviceKind>(name, "INGOT_DEVICE"));
}

}  // namespace

void Device::launch(HostKernel&&) {
  INGOT_CHECK(false, "device '{}' runs no host code as a kernel", name_of(kind()));
}

void Device::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  launch({{{const_cast<void*>(from), bytes, false}, {to, bytes, true}},
          [bytes](std::span<void* const> at) { std::memcpy(at[1], at[0], static_cast<size_t>(bytes)); }});
}

void Device::set_zero(void* memory, int64_t bytes) {
  if (bytes == 0) return;
  launch({{{memory, bytes, true}},
          [bytes](std::span<void* const> at) { std::memset(at[0], 0, static_cast<size_t>(bytes)); }});
}

void Device::add(void* to, const void* from, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (count == 0) return;
  launch({{{const_cast<void*>(from), bytes, false}, {to, bytes, true}}, [count](std::span<void* const> at) {
            const auto* const values = static_cast<const float*>(at[0]);
            auto* const sums = static_cast<float*>(at[1]);
            for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
          }});
}

void* Device::take_host(int64_t bytes) {
  return system_allocate(bytes);
}

void Device::give_host(void* memory, int64_t bytes) {
  system_release(memory, bytes);
}

void Device::download(void* to, const void* from, int64_t bytes, StreamRole stream) {
  begin_download(to, from, bytes, stream);
  synchronize(record(stream));
}

Device& cpu_device() {
  static CpuDevice device;
  return device;
}

Device& null_device() {
  static NullDevice device;
  return device;
}

Device& device_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return cpu_device();
    case DeviceKind::null:
      return null_device();
    case DeviceKind::sim:
      return sim_device();
    case DeviceKind::cuda:
      return cuda_device();
    case DeviceKind::hip:
      break;
  }
  throw Error(fmt::format("this program was built without device '{}'", name_of(kind)),
              "leave --device out, or give cpu, cuda or sim; docs/gpu.md says what is there");
}

void set_compute_device(DeviceKind kind) {
  chosen = static_cast<int>(checked(kind));
}

DeviceKind compute_device() {
  if (const int kind = chosen; kind >= 0) return static_cast<DeviceKind>(kind);
  static const DeviceKind kind = device_of_environment();
  return kind;
}

}  // namespace ingot
