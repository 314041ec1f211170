// How long a kernel takes on a device of a cluster: points of the cluster file nearest to its shape, else
// the share of the peak that the file describes, else what its bytes take; never less than the start of a
// kernel.
#pragma once
#include "plan/cluster.h"
#include "plan/op_program.h"

namespace ingot {

struct OpTime {
  double seconds = 0;
  Quality quality = Quality::described;  ///< of the numbers that it follows from
};

class OpCostModel {
 public:
  /// `type`: in which products compute: f32, bf16 or f8. Throws Error where the device has no such rate.
  OpCostModel(const Cluster& cluster, std::string type);
  OpTime time_of(const PassStep& step) const;
  double peak() const { return peak_; }  ///< FLOP/s
  /// What products of this shape reach, as a share of the peak: between points, by the distance of their
  /// logarithms. `quality` gets that of the nearest point.
  double product_share(double m, double n, double k, Quality* quality = nullptr) const;
  double attention_share(const std::string& pass, double width, double length,
                         Quality* quality = nullptr) const;
  /// Of bytes that pass through memory once.
  double memory_seconds(double bytes) const { return bytes / (1e9 * cluster_.device.bandwidth); }

 private:
  const Cluster& cluster_;
  std::string type_;
  double peak_;
};

}  // namespace ingot
