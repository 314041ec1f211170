// For scripts/check_gpu_launch: adds two arrays by a kernel that nvcc compiled, on the driver that the
// command line names. Ends with 1 where the sum is another.
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/simd/gpu_array.h"

namespace ingot {
namespace {

int add_on(const char* library) {
  const auto device = make_cuda_device(cuda_driver::open_driver(library));
  constexpr int64_t kCount = 1000, kBytes = kCount * 4;
  std::vector<float> x(kCount, 1.5F), y(kCount, 2), sum(kCount);
  auto* const a = static_cast<float*>(device->allocate(kBytes));
  auto* const b = static_cast<float*>(device->allocate(kBytes));
  device->upload(a, x.data(), kBytes);
  device->upload(b, y.data(), kBytes);
  {
    const LaunchOn on(device.get());
    if (!launches_compiled()) return 1;
    cuda::launch_array_copy({}, {a, DType::f32, b, DType::f32, kCount, true});
  }
  device->download(sum.data(), a, kBytes);
  device->release(a, kBytes);
  device->release(b, kBytes);
  const bool is_right = sum == std::vector<float>(kCount, 3.5F);
  std::printf("%s: a compiled kernel was launched on %s, and its sum is %s\n", library,
              device->driver().architecture().c_str(), is_right ? "right" : "WRONG");
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  try {
    return argc == 2 ? ingot::add_on(argv[1]) : 2;
  } catch (const ingot::Error& e) {
    std::printf("error: %s\nhint: %s\n", e.what(), e.hint().c_str());
    return 1;
  }
}
