// See op_cost.h.
#include "plan/op_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

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

/// What points of so many bytes say that match.
template <class Matches>
Rates rates_where(const DeviceSpec& device, double bytes, const Matches& matches) {
  Rates rates;
  for (const DevicePoint& p : device.points)
    if (p.bytes > 0 && matches(p))
      (p.tflops > 0 ? rates.flops : rates.bytes)
          .add(std::log(bytes / p.bytes), 1e12 * p.tflops + 1e9 * p.gb_per_s, p.quality);
  return rates;
}
/// Of those, points of this type, and where there are none, of any: the same bytes take longer in bf16, of
/// which they are twice as many values.
template <class Matches>
Rates rates_at(const DeviceSpec& device, const std::string& type, double bytes, const Matches& matches) {
  const Rates same =
      rates_where(device, bytes, [&](const DevicePoint& p) { return p.type == type && matches(p); });
  return same.flops.weights + same.bytes.weights > 0 ? same : rates_where(device, bytes, matches);
}

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
  const auto blend = [&](const std::string& op, bool same_type) {
    Blend b;
    for (const DevicePoint& p : device_.points) {
      if (p.op != op || (attends && p.pass != pass) || (p.type == type) != same_type) continue;
      if (peak_of(p.type) <= 0 || (attends ? s.sizes.length : s.sizes.m) == 0) continue;
      double square = 0;
      for (const double r : log_ratios(s.sizes, p.sizes)) square += r * r;
      b.add(std::sqrt(square), p.tflops * 1e12 / peak_of(p.type), p.quality);
    }
    return b;
  };
  Blend b = blend(attends ? "attention" : s.op, true);
  if (attends && b.weights == 0) b = blend("attention", false);
  if (!attends && b.nearest >= kFar) b = blend("linear", true);
  if (b.weights > 0 && (attends || b.nearest < kFar)) return {b.mean() * peak_of(type), b.quality};
  if (attends) return {device_.attention_share * peak_of(type), Quality::described};
  return {device_.product_share.of(type) * peak_of(type), device_.product_share.quality,
          device_.exposed_bytes};
}

OpTime OpCostModel::time_of(const PassStep& s) const {
  OpTime t{memory_seconds(s.bytes), device_.quality};
  if (s.what == TimeOf::products || s.what == TimeOf::attention) {
    const Reached r = reached(s);
    t = {std::max(s.flops / r.flops + r.exposed_bytes * t.seconds, t.seconds), r.quality};
  } else if (s.bytes > 0) {
    const char* const pass = s.direction == Direction::forward ? "forward" : "backward";
    const Rates r = rates_at(device_, type_, s.bytes,
                             [&](const DevicePoint& p) { return p.op == s.op && p.pass == pass; });
    if (r.flops.weights > 0 && r.flops.nearest <= r.bytes.nearest)
      t = {s.flops / r.flops.mean(), r.flops.quality};
    else if (r.bytes.weights > 0)
      t = {s.bytes / r.bytes.mean(), r.bytes.quality};
  }
  t.seconds += device_.rest_share * t.seconds + 1e-6 * device_.launch_us;
  return t;
}

OpTime OpCostModel::time_of(const UpdateCost& u) const {
  const char* const type = u.bf16 || device_.rates.f32 == 0 ? "bf16" : "f32";
  Blend products;  // by the size of matrices, where it is known
  for (const DevicePoint& p : device_.points)
    if (p.op == kUpdatePoint && p.type == type && p.tflops > 0) {
      const auto depth = static_cast<double>(p.sizes.k);
      products.add(std::log(depth > 0 && u.depth > 0 ? u.depth / depth : u.bytes / p.bytes), 1e12 * p.tflops,
                   p.quality);
    }
  const Blend bytes = rates_at(device_, type, u.bytes, [](const DevicePoint& p) {
                        return p.op == kUpdatePoint && p.tflops == 0;
                      }).bytes;
  const double moved = bytes.weights > 0 ? u.bytes / bytes.mean() : memory_seconds(u.bytes);
  const double flops =
      products.weights > 0 ? products.mean() : device_.product_share.of(type) * peak_of(type);
  return {moved + u.flops / flops, u.flops > 0 ? products.quality : bytes.quality};
}

}  // namespace ingot
