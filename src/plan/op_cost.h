// How long a kernel takes on a device of a cluster: by the points of the cluster file nearest to its shape
// (of ops that are neither products nor attention: to its bytes), else by the share of the peak that the
// file describes, after the part of a product's bytes that it does not hide, else by what its bytes take;
// never less than the start of a kernel.
#pragma once
#include "measure/cluster.h"
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
  /// Its products, which have a type of their own, and then its bytes.
  OpTime time_of(const UpdateCost& update) const;
  double peak() const { return peak_of(type_); }  ///< FLOP/s
  /// Of bytes that pass through memory once.
  double memory_seconds(double bytes) const { return bytes / (1e9 * device_.bandwidth); }

 private:
  /// What products or attention of a shape reach.
  struct Reached {
    double flops;  ///< a second
    Quality quality;
    double exposed_bytes = 0;  ///< share of the time of its bytes that comes on top
  };
  Reached reached(const PassStep& step) const;
  double peak_of(const std::string& type) const { return 1e12 * device_.rates.of(type); }

  const DeviceSpec& device_;
  std::string type_;
};

}  // namespace ingot
