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
  Quality quality = Quality::described;  ///< of the nearest
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
    : device_(cluster.device), type_(std::move(type)) {
  if (peak() <= 0)
    throw Error(fmt::format("cluster '{}' names no rate of {}", cluster.name, type_),
                "set device.rates." + type_ + " in its file");
}

OpCostModel::Reached OpCostModel::reached(const PassStep& s) const {
  // Attention computes in bf16 where products have 8 bits. Points of another type serve it where there are
  // none of this one: as a share of their own peak.
  const bool attends = s.what == TimeOf::attention;
  const std::string type = attends && type_ == "f8" ? "bf16" : type_;
  const char* pass = s.direction == Direction::forward ? "forward" : "backward";
  Blend same, other;
  for (const DevicePoint& p : device_.points) {
    if (attends ? p.op != "attention" || p.pass != pass : p.op != "linear") continue;
    if (peak_of(p.type) <= 0 || (attends ? s.sizes.length : s.sizes.m) == 0) continue;
    double square = 0;
    for (const double r : log_ratios(s.sizes, p.sizes)) square += r * r;
    (p.type == type ? same : other).add(std::sqrt(square), p.tflops * 1e12 / peak_of(p.type), p.quality);
  }
  const Blend& b = attends && same.weights == 0 ? other : same;
  if (b.weights > 0 && (attends || b.nearest < kFar)) return {b.sum / b.weights * peak_of(type), b.quality};
  return {(attends ? device_.attention_share : device_.product_share) * peak_of(type), Quality::described};
}

OpTime OpCostModel::time_of(const PassStep& s) const {
  const bool shaped = s.what == TimeOf::products || s.what == TimeOf::attention;
  const Reached r = shaped ? reached(s) : Reached{1, device_.quality};
  const double compute = shaped ? s.flops / r.flops : 0;
  return {std::max(compute, memory_seconds(s.bytes)) + 1e-6 * device_.launch_us, r.quality};
}

}  // namespace ingot
