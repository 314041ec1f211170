// Machines as files: what a device computes and holds, how devices are linked, from the inside outwards,
// hosts, storage and how often something breaks. Every part says where its numbers are from. clusters/*.toml
// are shipped; docs/plan.md describes the format.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "measure/op_sizes.h"

namespace ingot {

/// How good a number is.
enum class Quality { described, published, measured };
constexpr auto enum_names(Quality) {
  return names_in_order<Quality>("described", "published", "measured");
}

/// Where a part's numbers are from.
struct Sourced {
  std::string source;
  Quality quality = Quality::published;
  template <class Visitor>
  void visit_source(Visitor& v) {
    v("source", source, "where the numbers are from");
    v("quality", quality, "measured, published or described");
  }
};

/// A number for each type in which products compute.
struct ByType {
  double f32 = 0, bf16 = 0, f8 = 0;
  /// By name; f32 of any other.
  double& of(const std::string& type) { return type == "f8" ? f8 : type == "bf16" ? bf16 : f32; }
  double of(const std::string& type) const { return type == "f8" ? f8 : type == "bf16" ? bf16 : f32; }
};

/// Dense peaks, in 1e12 operations per second; 0: the device has no such type.
struct DeviceRates : ByType {
  template <class Visitor>
  void visit(Visitor& v) {
    v("f32", f32, "TFLOP/s", up_to(1e9));
    v("bf16", bf16, "TFLOP/s", up_to(1e9));
    v("f8", f8, "TFLOP/s", up_to(1e9));
  }
};

/// Of the peak that products reach where no point says it.
struct ProductShare : ByType, Sourced {
  ProductShare() : ByType{0.7, 0.7, 0.7} { quality = Quality::described; }
  template <class Visitor>
  void visit(Visitor& v) {
    v("f32", f32, "share of the peak", positive(1));
    v("bf16", bf16, "share of the peak", positive(1));
    v("f8", f8, "share of the peak", positive(1));
    visit_source(v);
  }
};

/// The name of points of optimizers' updates.
inline constexpr const char* kUpdatePoint = "update";

/// What a kernel reaches: products and attention by their sizes, any other op by its bytes. Products of ops
/// that have no points of their own (experts', the head's) are as fast as "linear". "update": that of an
/// optimizer, its products (tflops, by their type and k) apart from what else it reads and writes (gb_per_s).
struct DevicePoint : Sourced {
  std::string op = "linear", pass = "forward", type = "bf16";
  OpSizes sizes;
  double bytes = 0, tflops = 0, gb_per_s = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("op", op, "linear, attention, or another op");
    v("pass", pass, "forward or backward");
    v("type", type, "f32, bf16 or f8");
    v("m", sizes.m, "rows of a product", up_to(1e12));
    v("n", sizes.n, "columns of its result", up_to(1e12));
    v("k", sizes.k, "length of its sums", up_to(1e12));
    v("width", sizes.width, "of a query's head, for attention", up_to(1e12));
    v("length", sizes.length, "tokens of a sequence, for attention", up_to(1e12));
    v("bytes", bytes, "that another op reads and writes", up_to(1e15));
    v("tflops", tflops, "TFLOP/s that it reaches", up_to(1e9));
    v("gb_per_s", gb_per_s, "GB/s that another op reaches, in place of tflops", up_to(1e9));
    visit_source(v);
  }
};

struct DeviceSpec : Sourced {
  std::string memory, reserved = "0B";
  bool copies = true;
  double launch_us = 0, hour_price = 0, bandwidth = 0, attention_share = 0.5;
  double rate_beside_transfers = 1, fresh_gb_per_s = 0, copy_gb_per_s = 0, save_ms = 0, drift_ms = 0;
  double rest_share = 0, ranks_per_core = 1, exposed_bytes = 0;
  ProductShare product_share;
  DeviceRates rates;
  std::vector<DevicePoint> points;
  template <class Visitor>
  void visit(Visitor& v) {
    v("memory", memory, "of a device, e.g. 80GB");
    v("reserved", reserved, "of that, for its system and libraries");
    v("copies", copies, "products read bf16 copies of the masters");
    v("launch_us", launch_us, "microseconds to start a kernel", up_to(1e6));
    v("hour_price", hour_price, "of a device and hour; 0: not known", up_to(1e9));
    v("bandwidth", bandwidth, "GB/s of its memory", positive(1e9));
    v("product_share", product_share, "of the peak that products reach where no point says it, by type");
    v("exposed_bytes", exposed_bytes,
      "share of the time of such a product's bytes that it takes besides: tiles are loaded before it and "
      "stored after it",
      up_to(1));
    v("attention_share", attention_share, "of the peak that attention reaches where no point says it",
      positive(1));
    v("rate_beside_transfers", rate_beside_transfers,
      "share of their rate that kernels keep while a transfer runs beside them; 0: its processor is theirs",
      up_to(1));
    v("fresh_gb_per_s", fresh_gb_per_s,
      "GB/s of writing memory that was given back, as gathered weights are; 0: as other memory", up_to(1e9));
    v("copy_gb_per_s", copy_gb_per_s,
      "GB/s at which its memory is copied, as a checkpoint's is; 0: half its bandwidth", up_to(1e9));
    v("save_ms", save_ms, "milliseconds of a save beside its copy, as its ranks agree on it", up_to(1e6));
    v("rest_share", rest_share,
      "of the kernels' time, what the host takes between them: batches, recording, metrics", up_to(1));
    v("ranks_per_core", ranks_per_core, "ranks that share each of its cores: while one waits, others have it",
      between(1, 1e6));
    v("drift_ms", drift_ms,
      "milliseconds by which ranks of equal work drift apart in a second; grows with the root of the time",
      up_to(1e6));
    v("rates", rates, "dense peaks");
    v("points", points, "rates that kernels reach");
    visit_source(v);
  }
};

/// What a level of links is like.
enum class LinkKind {
  one,    ///< a switch: the rate of a rank does not depend on the others
  mesh,   ///< a link to every other rank: (n - 1) times the rate of one
  rails,  ///< an adapter a rank; ranks with the same number in their domains share a leaf
  shared  ///< one memory, which all ranks share
};
constexpr auto enum_names(LinkKind) {
  return std::array<EnumName<LinkKind>, 4>{{{LinkKind::one, "switch"},
                                            {LinkKind::mesh, "mesh"},
                                            {LinkKind::rails, "rails"},
                                            {LinkKind::shared, "shared_memory"}}};
}

struct LinkLevel : Sourced {
  std::string name;
  int64_t ranks = 0;
  LinkKind kind = LinkKind::one;
  double gb_per_s = 0, latency_us = 0, hop_us = 0, reduce_gb_per_s = 0, oversubscribed = 1;
  int64_t domains_per_leaf = 0;
  bool overlaps = false;
  /// Seconds of a hop.
  double hop() const { return 1e-6 * (hop_us > 0 ? hop_us : latency_us); }
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "of the level");
    v("ranks", ranks, "that a domain of it joins; 0: all (the last level)", up_to(bounds::kRanks));
    v("kind", kind, "switch, mesh, rails or shared_memory");
    v("gb_per_s", gb_per_s, "that a rank sends, of a mesh by one link", positive(1e9));
    v("latency_us", latency_us, "of each of the messages that a rank sends at once", up_to(1e9));
    v("hop_us", hop_us, "of a message that waits for the one before, as in a ring; 0: latency_us",
      up_to(1e9));
    v("reduce_gb_per_s", reduce_gb_per_s, "bus bandwidth of sums that the switch forms; 0: it forms none",
      up_to(1e9));
    v("oversubscribed", oversubscribed, "factor by which traffic between leaves is slower", between(1, 1e6));
    v("domains_per_leaf", domains_per_leaf, "inner domains on one leaf; 0: all", up_to(bounds::kRanks));
    v("overlaps", overlaps, "transfers here run while those inside run");
    visit_source(v);
  }
};

/// A measured collective: better than any formula.
struct BandwidthCurve : Sourced {
  std::string collective = "all_reduce";
  int64_t ranks = 2;
  std::vector<double> bytes, gb_per_s;
  BandwidthCurve() { quality = Quality::measured; }
  template <class Visitor>
  void visit(Visitor& v) {
    v("collective", collective, "all_reduce, reduce_scatter, all_gather or all_to_all");
    v("ranks", ranks, "of the group", between(2, bounds::kRanks));
    v("bytes", bytes, "sizes, ascending", positive(1e15));
    v("gb_per_s", gb_per_s, "bus bandwidth at each size", positive(1e9));
    visit_source(v);
  }
};

struct HostSpec {
  int64_t cores = 1;
  std::string memory = "0B";
  double offload_gb_per_s = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("cores", cores, "of a node", between(1, bounds::kRanks));
    v("memory", memory, "of a node");
    v("offload_gb_per_s", offload_gb_per_s, "between a device and its host, each way", up_to(1e9));
  }
};

struct StorageSpec : Sourced {
  std::string name;
  double read_gb_per_s = 0, write_gb_per_s = 0, iops = 0, sync_ms = 0, checkpoint_ms = 0;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "of the storage");
    v("read_gb_per_s", read_gb_per_s, "GB/s of a node", positive(1e9));
    v("write_gb_per_s", write_gb_per_s, "GB/s of a node", positive(1e9));
    v("iops", iops, "reads a second; 0: not known", up_to(1e12));
    v("sync_ms", sync_ms, "milliseconds until a line that is appended to a file is there to stay",
      up_to(1e6));
    v("checkpoint_ms", checkpoint_ms, "milliseconds that a checkpoint takes beside its bytes", up_to(1e6));
    visit_source(v);
  }
};

struct FailureSpec {
  double device_hours = 0, restart_minutes = 10, detect_minutes = 10;
  template <class Visitor>
  void visit(Visitor& v) {
    v("device_hours", device_hours, "between two failures of one device; 0: not known", up_to(1e12));
    v("restart_minutes", restart_minutes, "from a stop to the next step", up_to(1e6));
    v("detect_minutes", detect_minutes, "from a failure to the stop", up_to(1e6));
  }
};

struct Cluster {
  std::string name;
  int64_t devices = 0, devices_per_node = 1;
  DeviceSpec device;
  std::vector<LinkLevel> links;
  std::vector<BandwidthCurve> curves;
  HostSpec host;
  std::vector<StorageSpec> storage;
  FailureSpec failures;
  template <class Visitor>
  void visit(Visitor& v) {
    v("name", name, "of the cluster");
    v("devices", devices, "total; 0: as many as are asked for", up_to(bounds::kRanks));
    v("devices_per_node", devices_per_node, "that share a host", between(1, bounds::kRanks));
    v("device", device, "one device");
    v("links", links, "levels of links, from the inside outwards");
    v("curves", curves, "measured collectives");
    v("host", host, "of a node");
    v("storage", storage, "where checkpoints and data are");
    v("failures", failures, "how often something breaks");
  }
  /// Levels that do not nest, curves that fall with size, amounts in GB beside amounts in GiB, no rate at
  /// all.
  void validate(ConfigErrors& errors) const;
  /// Bytes of a device that a run may take.
  int64_t device_bytes() const;
};

/// Throws Error, which names file, line and key, for what is no cluster.
Cluster load_cluster(const std::string& path);
Cluster cluster_from_text(std::string_view text, const std::string& where);

}  // namespace ingot
