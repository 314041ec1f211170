// See op_cost.h.
#include "plan/op_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

/// Shares at distances: the nearest count most (weights fall with the square). Exact at a point.
struct Blend {
  double sum = 0, weights = 0, nearest = 1e300;
  Quality quality = Quality::described;
  void add(double distance, double share, Quality q) {
    if (distance < nearest) nearest = distance, quality = q;
    const double weight = 1 / (distance * distance + 1e-9);
    sum += weight * share, weights += weight;
  }
};

/// A product further away than that in every dimension is not known by the points: small ones leave most of
/// a device idle. Three powers of e.
constexpr double kFar = 3;

}  // namespace

OpCostModel::OpCostModel(const Cluster& cluster, std::string type)
    : cluster_(cluster), type_(std::move(type)), peak_(1e12 * cluster.device.rates.of(type_)) {
  if (peak_ <= 0)
    throw Error(fmt::format("cluster '{}' names no rate of {}", cluster.name, type_),
                "set device.rates." + type_ + " in its file");
}

double OpCostModel::product_share(double m, double n, double k, Quality* quality) const {
  Blend blend;
  for (const DevicePoint& p : cluster_.device.points) {
    if (p.op != "linear" || p.type != type_) continue;
    const double dm = std::log(m / static_cast<double>(p.m)), dn = std::log(n / static_cast<double>(p.n)),
                 dk = std::log(k / static_cast<double>(p.k));
    blend.add(std::sqrt(dm * dm + dn * dn + dk * dk), p.tflops * 1e12 / peak_, p.quality);
  }
  const bool known = blend.weights > 0 && blend.nearest < kFar;
  if (quality != nullptr) *quality = known ? blend.quality : Quality::described;
  return known ? blend.sum / blend.weights : cluster_.device.product_share;
}

double OpCostModel::attention_share(const std::string& pass, double width, double length,
                                    Quality* quality) const {
  // Attention computes in bf16 where products have 8 bits. Points of another type serve where there are none
  // of this one: as a share of their own peak.
  const std::string type = type_ == "f8" ? "bf16" : type_;
  Blend same, other;
  for (const DevicePoint& p : cluster_.device.points) {
    if (p.op != "attention" || p.pass != pass) continue;
    const double peak = 1e12 * cluster_.device.rates.of(p.type);
    if (peak <= 0) continue;
    const double dw = std::log(width / static_cast<double>(p.width)),
                 dl = std::log(length / static_cast<double>(p.length));
    (p.type == type ? same : other).add(std::sqrt(dw * dw + dl * dl), p.tflops * 1e12 / peak, p.quality);
  }
  const Blend& blend = same.weights > 0 ? same : other;
  if (quality != nullptr) *quality = blend.quality;
  return blend.weights > 0 ? blend.sum / blend.weights : cluster_.device.attention_share;
}

OpTime OpCostModel::time_of(const PassStep& s) const {
  OpTime t;
  double compute = 0;
  if (s.what == TimeOf::products) {
    const OpSizes& z = s.sizes;
    const double share = z.m > 0 ? product_share(static_cast<double>(z.m), static_cast<double>(z.n),
                                                 static_cast<double>(z.k), &t.quality)
                                 : cluster_.device.product_share;
    compute = s.flops / (share * peak_);
  } else if (s.what == TimeOf::attention) {
    const double peak = type_ == "f8" ? 1e12 * cluster_.device.rates.bf16 : peak_;
    const bool forward = s.direction == Direction::forward;
    const double share = s.sizes.length > 0 ? attention_share(forward ? "forward" : "backward",
                                                              static_cast<double>(s.sizes.width),
                                                              static_cast<double>(s.sizes.length), &t.quality)
                                            : cluster_.device.attention_share;
    compute = s.flops / (share * peak);
  } else {
    t.quality = cluster_.device.quality;
  }
  t.seconds = std::max(compute, memory_seconds(s.bytes)) + 1e-6 * cluster_.device.launch_us;
  return t;
}

}  // namespace ingot
