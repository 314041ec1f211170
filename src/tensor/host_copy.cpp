// See host_copy.h.
#include "tensor/host_copy.h"

#include <cstring>

#include "device/host_kernel.h"

namespace ingot {

HostCopy::HostCopy(const Tensor& from, StreamRole stream) : tensor_(from) {
  if (!from.defined() || from.on_host()) return;
  static char nothing;  // an empty tensor has no bytes but is defined
  memory_ = Buffer(from.bytes());
  Device& device = device_of(from.device);
  if (stream != StreamRole::compute) device.wait(stream, device.record(StreamRole::compute));
  device.download(memory_.data(), from.data, from.bytes(), stream);
  device.count_unplanned_copy();
  tensor_ = Tensor(from.bytes() > 0 ? memory_.data() : &nothing, from.meta);
}

void upload(const Tensor& from, const Tensor& to, StreamRole stream) {
  INGOT_CHECK(from.on_host() && from.bytes() == to.bytes(), "{} to {}", from.meta.str(), to.meta.str());
  device_of(to.device).upload(to.data, from.data, from.bytes(), stream);
}

void set_zero(const Tensor& t) {
  if (t.device == DeviceKind::null || t.bytes() == 0) return;
  if (t.on_host())
    std::memset(t.data, 0, static_cast<size_t>(t.bytes()));
  else
    device_of(t.device).set_zero(t.data, t.bytes());
}

}  // namespace ingot
