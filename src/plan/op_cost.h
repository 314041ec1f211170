// How long a kernel takes on a device of a cluster: by the points of the cluster file nearest to its shape
// (of ops that are neither products nor attention: to its bytes), else by the share of the peak that the
// file describes, else by what its bytes take; never less than the start of a kernel.
#pragma once
#include <cmath>

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
  };
  /// The mean of what points reach at distances, the nearest counting most: weights fall with the square.
  /// Exact at a point.
  struct Blend {
    double sum = 0, weights = 0, nearest = 1e300;
    Quality quality = Quality::described;  ///< of the nearest
    void add(double distance, double reached, Quality of) {
      if (std::fabs(distance) < nearest) nearest = std::fabs(distance), quality = of;
      const double weight = 1 / (distance * distance + 1e-9);
      sum += weight * reached, weights += weight;
    }
    double mean() const { return sum / weights; }
  };
  /// Of points that have bytes: FLOP/s and bytes a second.
  struct Rates {
    Blend flops, bytes;
  };
  Reached reached(const PassStep& step) const;
  template <class Matches>
  Rates rates_at(double bytes, const Matches& matches) const;
  double peak_of(const std::string& type) const { return 1e12 * device_.rates.of(type); }

  const DeviceSpec& device_;
  std::string type_;
};

}  // namespace ingot
