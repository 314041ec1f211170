// See cluster.h.
#include "measure/cluster.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "ops/registry.h"
#include "train/memory_policy.h"

namespace ingot {
namespace {

/// Amounts of memory: each reads, and all count in the same units.
class Amounts {
 public:
  explicit Amounts(ConfigErrors& errors) : errors_(errors) {}
  void check(const std::string& field, const std::string& text) {
    if (text.empty()) return errors_.add(field, "is not set: write an amount as 80GB");
    if (text == "0B") return;
    try {
      parse_memory(text, field);
    } catch (const Error&) {
      return errors_.add(field, "'{}' is no amount of memory: write it as 80GB", text);
    }
    const bool binary = text.find("iB") != std::string::npos;
    if (!first_.empty() && binary != binary_)
      errors_.add(field, "is in {}, {} in {}: a file counts in one of them", binary ? "GiB" : "GB", first_,
                  binary_ ? "GiB" : "GB");
    if (first_.empty()) first_ = field, binary_ = binary;
  }

 private:
  ConfigErrors& errors_;
  std::string first_;
  bool binary_ = false;
};

/// Of a text that is none of the names: an error that lists them, and false.
bool is_named(const std::vector<std::string>& names, ConfigErrors& e, const std::string& field,
              const std::string& text) {
  const bool found = std::find(names.begin(), names.end(), text) != names.end(), two = names.size() == 2;
  if (!found)
    e.add(field, "'{}' is {} {}", text, two ? "neither" : "none of", fmt::join(names, two ? " nor " : ", "));
  return found;
}

std::vector<std::string> names_of_ops() {
  std::vector<std::string> names{kUpdatePoint};
  for (const Op* op : all_ops()) names.emplace_back(op->name);
  return names;
}

void validate_points(const DeviceSpec& device, ConfigErrors& e) {
  for (size_t i = 0; i < device.points.size(); ++i) {
    const DevicePoint& p = device.points[i];
    const OpSizes& z = p.sizes;
    const std::string field = fmt::format("device.points.{}", i);
    const bool product = is_product(p.op), shaped = product || p.op == "attention";
    if (!shaped) is_named(names_of_ops(), e, field + ".op", p.op);
    is_named({"forward", "backward"}, e, field + ".pass", p.pass);
    if (product && std::min({z.m, z.n, z.k}) < 1) e.add(field, "a product has m, n and k");
    if (p.op == "attention" && std::min(z.width, z.length) < 1)
      e.add(field, "attention has width and length");
    if (shaped && p.tflops == 0) e.add(field + ".tflops", "is not set");
    if (shaped && p.gb_per_s > 0) e.add(field + ".gb_per_s", "is of ops that are not {}", p.op);
    if (!shaped && p.bytes == 0) e.add(field + ".bytes", "is not set: {} takes time by its bytes", p.op);
    if (!shaped && (p.tflops > 0) == (p.gb_per_s > 0))
      e.add(field + ".gb_per_s", "an op reaches either gb_per_s or tflops: set one of them");
    if (is_named({"f32", "bf16", "f8"}, e, field + ".type", p.type) && device.rates.of(p.type) == 0)
      e.add(field + ".type", "is {}, of which device.rates names no rate: set it, or leave the point out",
            p.type);
  }
}

void validate_links(const Cluster& c, ConfigErrors& e) {
  int64_t inside = 1;
  for (size_t i = 0; i < c.links.size(); ++i) {
    const LinkLevel& l = c.links[i];
    const std::string field = fmt::format("links.{}", i);
    if (l.gb_per_s == 0) e.add(field + ".gb_per_s", "is not set: a level of links has a rate");
    const bool last = i + 1 == c.links.size();
    if (l.ranks == 0 && !last) e.add(field + ".ranks", "is 0, which only the outermost level may have");
    if (l.ranks != 0 && (l.ranks < inside || l.ranks % inside != 0))
      e.add(
          field + ".ranks",
          "{} ranks do not consist of whole domains of the level inside, which have {}: set a multiple of {}",
          l.ranks, inside, inside);
    if (l.kind == LinkKind::mesh && l.ranks == 0)
      e.add(field + ".ranks", "a mesh joins so many ranks: set 2 or more");
    if (l.ranks > 0) inside = l.ranks;
  }
}

void validate_curves(const Cluster& c, ConfigErrors& e) {
  for (size_t i = 0; i < c.curves.size(); ++i) {
    const BandwidthCurve& curve = c.curves[i];
    const std::string field = fmt::format("curves.{}", i);
    if (curve.bytes.empty() || curve.bytes.size() != curve.gb_per_s.size()) {
      e.add(field + ".gb_per_s", "{} rates for {} sizes: give one for each", curve.gb_per_s.size(),
            curve.bytes.size());
      continue;
    }
    for (size_t k = 1; k < curve.bytes.size(); ++k) {
      if (curve.bytes[k] <= curve.bytes[k - 1])
        e.add(field + ".bytes", "must ascend: {} follows {}", curve.bytes[k], curve.bytes[k - 1]);
      if (curve.bytes[k] / curve.gb_per_s[k] < curve.bytes[k - 1] / curve.gb_per_s[k - 1])
        e.add(field + ".gb_per_s",
              "{} bytes would take less time than {}: measure again, or leave the point out", curve.bytes[k],
              curve.bytes[k - 1]);
    }
    is_named({"all_reduce", "reduce_scatter", "all_gather", "all_to_all"}, e, field + ".collective",
             curve.collective);
  }
}

}  // namespace

void Cluster::validate(ConfigErrors& e) const {
  Amounts amounts(e);
  amounts.check("device.memory", device.memory);
  amounts.check("device.reserved", device.reserved);
  amounts.check("host.memory", host.memory);
  if (device.rates.f32 + device.rates.bf16 + device.rates.f8 == 0)
    e.add("device.rates", "names no rate: set bf16, f32 or f8");
  if (device.bandwidth == 0) e.add("device.bandwidth", "is not set: GB/s of the device's memory");
  validate_points(device, e);
  validate_links(*this, e);
  validate_curves(*this, e);
  for (size_t i = 0; i < storage.size(); ++i)
    if (std::min(storage[i].read_gb_per_s, storage[i].write_gb_per_s) == 0)
      e.add(fmt::format("storage.{}", i), "names no rate: set read_gb_per_s and write_gb_per_s");
}

int64_t Cluster::device_bytes() const {
  const int64_t reserved = device.reserved == "0B" ? 0 : parse_memory(device.reserved, "device.reserved");
  return parse_memory(device.memory, "device.memory") - reserved;
}

Cluster load_cluster(const std::string& path) {
  return load_config<Cluster>(path);
}

Cluster cluster_from_text(std::string_view text, const std::string& where) {
  return read_config<Cluster>(parse_toml(text, where));
}

}  // namespace ingot
