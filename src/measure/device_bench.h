// `ingot bench device`: how fast the kernels of a device are, as shares of what it can do, measured in the
// same seconds: P, the rate of a large product of bf16, and B, the bandwidth of a copy within it. Each row is
// one kernel of training on tensors of a real size, beside its peer where it has one (NVIDIA's cuBLASLt; a
// dense product of equal FLOPs), with the share that docs/gpu.md demands.
#pragma once
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/spread.h"
#include "device/device.h"

namespace ingot {

/// products   of bf16, beside cuBLASLt
/// grouped    products of rows grouped by experts, beside dense ones
/// rows       kernels over rows, bound by memory
/// update     norm and clip factor of gradients, AdamW
/// attention  of bf16
/// exact      products of f32, with the CPU's bits
/// copies     between host and device, and within it
/// launches   of small kernels, one by one and as a graph
enum class DevicePart { products, grouped, rows, update, attention, exact, copies, launches };
constexpr auto enum_names(DevicePart) {
  return names_in_order<DevicePart>("products", "grouped", "rows", "update", "attention", "exact", "copies",
                                    "launches");
}
inline constexpr DevicePart kEveryDevicePart[] = {
    DevicePart::products,  DevicePart::grouped, DevicePart::rows,   DevicePart::update,
    DevicePart::attention, DevicePart::exact,   DevicePart::copies, DevicePart::launches};

struct DeviceBenchOptions {
  std::vector<DevicePart> parts{std::begin(kEveryDevicePart), std::end(kEveryDevicePart)};
  bool small = false;  ///< sizes that an emulator takes
  int trials = 7;
  double seconds = 0.01;  ///< of a trial, at least
};

/// One kernel. Shares are of one trial each: the kernel's, its peer's and the limit's follow each other.
struct DeviceRow {
  DevicePart part = DevicePart::products;
  std::string what, pass, shapes, kernel;
  double flops = 0, bytes = 0;
  Spread seconds;       ///< of a call
  std::string limit;    ///< "P", "B" or ""
  Spread limit_share;   ///< of its rate
  std::string peer;     ///< "cuBLASLt", "dense", "one by one" or ""
  Spread peer_seconds;  ///< of a call that does the same, or the same FLOPs
  Spread peer_share;    ///< peer's seconds / seconds
  std::string bits;     ///< whether the peer has the same bits: "same" or "others"; "": not compared
  std::string alone;    ///< whether a row has the same bits alone, by the peer's algorithm, or it "refuses"
  double bar = 0;       ///< the share that is demanded, of the peer where there is one; 0: none
  /// The share that the bar is of; 0 where there is none.
  double judged() const { return (peer.empty() ? limit_share : peer_share).median; }
};

struct DeviceBenchReport {
  std::string kind, device;  ///< "cuda", "NVIDIA H100 80GB HBM3, sm_90, driver of CUDA 13.0"
  bool is_real = false;      ///< false: emulated or faked, so that rates mean nothing
  std::string peer;          ///< which cuBLASLt, or why there is none
  std::string peak_of;       ///< what P is the rate of
  Spread peak;               ///< P, FLOP/s
  Spread copy;               ///< B, bytes/s, read and written
  std::vector<DeviceRow> rows;
  std::vector<std::string> left_out;  ///< what no kernel takes
};

/// Measures the device, sim or cuda; Error for another. Not while something else runs there.
DeviceBenchReport bench_device(DeviceKind device, const DeviceBenchOptions& options);

/// A table, and the lowest share of each part beside its bar.
std::string to_text(const DeviceBenchReport& report);
/// docs/measuring.md lists the fields.
std::string to_json(const DeviceBenchReport& report);

}  // namespace ingot
