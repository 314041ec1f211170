// See measured_cluster.h.
#include "measure/measured_cluster.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <tuple>

#include "base/build_info.h"
#include "base/error.h"
#include "base/host_name.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "comm/agree.h"
#include "device/gemm/gemm.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "measure/gemm_bench.h"
#include "measure/ops_bench.h"
#include "measure/rank_drift.h"
#include "measure/step_bench.h"
#include "report/table.h"

namespace ingot {
namespace {

/// Four digits: no measurement has more.
double rounded(double value) {
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}

void require_one_host(Communicator& group) {
  std::set<std::string> hosts;
  for (const std::string& host : all_gather_text(group, host_name())) hosts.insert(host);
  if (hosts.size() == 1) return;
  throw Error(fmt::format("the ranks are on {} hosts ({}): a cluster file of one machine is measured here",
                          hosts.size(), fmt::join(hosts, ", ")),
              "launch it on one host, and add a [[links]] for what is between hosts: `ingot launch ... bench "
              "comm` measures that");
}

/// The mean over ranks of each of some numbers, which every rank has in the same order.
std::vector<double> mean_of_ranks(Communicator& group, std::vector<double> mine) {
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<double> all(mine.size() * static_cast<size_t>(group.size())), mean(mine.size(), 0);
  group
      .all_gather(Tensor::of(mine.data(), {count}),
                  Tensor::of(all.data(), {static_cast<int64_t>(all.size())}))
      .wait();
  for (size_t i = 0; i < all.size(); ++i) mean[i % mean.size()] += all[i] / group.size();
  return mean;
}

/// Rates of a rank while all others measure too.
void measure_rates(Communicator& group, const ClusterMeasureOptions& o, DeviceSpec& device) {
  // As a profile measures them (measure/profile_run.h), and of several ranks long enough for turns: they may
  // share cores.
  const double seconds = std::max(0.1, o.seconds);
  std::vector<double> fma, read, copy, fresh, dot;
  for (int trial = 0; trial < o.trials; ++trial) {
    if (group.size() == 1) {
      const MachinePeak peak = machine_peak();
      fma.push_back(peak.fma_gflops), read.push_back(peak.read_gbs);
    } else {
      fma.push_back(shared_fma_gflops(seconds, 0, agree_on_begin(group)));
      read.push_back(shared_read_gbs(seconds, 0, agree_on_begin(group)));
    }
    copy.push_back(shared_copy_gbs(seconds, 0, agree_on_begin(group)));
    fresh.push_back(shared_fresh_gbs(seconds, agree_on_begin(group)));
    group.barrier();
    dot.push_back(dot_peak_gflops() / fma_peak_gflops());
  }
  group.barrier();
  const std::array<float, 16> ones{};
  float result = 0;
  GemmArgs smallest;
  smallest.m = smallest.n = 1, smallest.k = smallest.lda = smallest.ldb = 16, smallest.ldc = 1;
  smallest.a = smallest.b = ones.data(), smallest.b_transposed = true, smallest.c = &result;
  const double launch = mean_call_seconds(o.seconds, [&] { gemm(smallest); });
  const std::vector<double> mean =
      mean_of_ranks(group, {spread_of(fma).median, spread_of(read).median, spread_of(dot).median, launch,
                            spread_of(fresh).median, spread_of(copy).median});
  device.rates.f32 = rounded(1e-3 * mean[0]);
  device.rates.bf16 = rounded(1e-3 * mean[0] * mean[2]);
  device.bandwidth = rounded(mean[1]);
  device.launch_us = rounded(1e6 * mean[3]);
  device.fresh_gb_per_s = rounded(mean[4]), device.copy_gb_per_s = rounded(mean[5]);
}

/// What ops reach by their sizes. Products of all passes of a shape and op are one point, of other ops the
/// forward passes and the others. Seconds are of the machine as its peak was measured: where it was another
/// beside the ops, they are scaled by it. They are not scaled by the rate of its memory, which neighbours
/// change from one moment to the next.
class PointSums {
 public:
  void add(const std::string& op, TimeOf what, OpPass pass, const OpSizes& sizes, double flops, double bytes,
           double seconds) {
    const bool product = what == TimeOf::products, attends = what == TimeOf::attention;
    if (((product || attends) && sizes == OpSizes{}) || seconds <= 0) return;
    const bool backward = !product && pass != OpPass::forward && pass != OpPass::recompute;
    sums_[{attends ? "attention" : op, sizes, product || attends ? 0 : bytes, backward}].add(
        {flops, bytes, seconds});
  }
  /// Of each point the step that took the median time for it: a neighbour's burst is in the mean.
  void add_median_of(const std::vector<PointSums>& steps) {
    std::map<Key, std::vector<Sum>> all;
    for (const PointSums& step : steps)
      for (const auto& [key, sum] : step.sums_) all[key].push_back(sum);
    for (auto& [key, sums] : all) {
      const auto middle = sums.begin() + static_cast<std::ptrdiff_t>(sums.size() / 2);
      std::nth_element(sums.begin(), middle, sums.end(),
                       [](const Sum& a, const Sum& b) { return a.seconds < b.seconds; });
      sums_[key].add(*middle);
    }
  }
  /// Where the op is not shaped, with a rate of its FLOPs and one of its bytes.
  std::vector<DevicePoint> points(const std::string& type, const char* source) const {
    std::vector<DevicePoint> points;
    for (const auto& [key, sum] : sums_) {
      const auto& [op, sizes, bytes, backward] = key;
      DevicePoint& p = points.emplace_back(point_of(op, type, sizes, backward, source));
      p.tflops = 1e-12 * sum.flops / sum.seconds;
      if (sizes == OpSizes{}) p.bytes = bytes, p.gb_per_s = 1e-9 * sum.bytes / sum.seconds;
    }
    return points;
  }
  static DevicePoint point_of(const std::string& op, const std::string& type, const OpSizes& sizes,
                              bool backward, const char* source) {
    DevicePoint p;
    p.op = op, p.pass = backward ? "backward" : "forward";
    p.type = type, p.sizes = sizes;
    p.source = source, p.quality = Quality::measured;
    return p;
  }

 private:
  struct Sum {
    double flops = 0, bytes = 0, seconds = 0;
    void add(const Sum& o) { flops += o.flops, bytes += o.bytes, seconds += o.seconds; }
  };
  /// Name, sizes, bytes, and whether it is of backward.
  using Key = std::tuple<std::string, OpSizes, double, bool>;
  std::map<Key, Sum> sums_;
};

/// Of its products, once its bytes took their time at the bandwidth; without products of its bytes.
DevicePoint update_point(const UpdateCost& update, double seconds, double gb_per_s) {
  OpSizes sizes;
  sizes.k = std::llround(update.depth);
  DevicePoint p = PointSums::point_of(kUpdatePoint, update.bf16 ? "bf16" : "f32", sizes, false, "");
  p.bytes = update.bytes;
  const double left = seconds - 1e-9 * update.bytes / gb_per_s;
  if (update.flops > 0 && left > 0) p.tflops = 1e-12 * update.flops / left;
  if (update.flops == 0) p.gb_per_s = 1e-9 * update.bytes / seconds;
  return p;
}

/// The points with four digits of their rates: of the two that other ops have the one that is nearer to its
/// ceiling. Without those that reach nothing.
std::vector<DevicePoint> of_one_rate(std::vector<DevicePoint> points, double f32_tflops, double gb_per_s) {
  for (DevicePoint& p : points) {
    (p.tflops / f32_tflops > p.gb_per_s / gb_per_s ? p.gb_per_s : p.tflops) = 0;
    p.tflops = rounded(p.tflops), p.gb_per_s = rounded(p.gb_per_s);
  }
  std::erase_if(points, [](const DevicePoint& p) { return p.tflops <= 0 && p.gb_per_s <= 0; });
  return points;
}

PresetStep step_of(const ClusterMeasureOptions& o, int64_t length, bool bf16) {
  return {.preset = o.preset, .batch = 1, .length = length, .vocab = o.vocab, .bf16 = bf16};
}

/// Products of a map of sizes, then the ops of steps of the preset, each alone, in the passes that it has.
void measure_points(Communicator& group, const ClusterMeasureOptions& o, DeviceSpec& device) {
  GemmBenchOptions products;
  products.read_gbs = device.bandwidth;
  products.parts = {GemmPart::map}, products.decode = false;
  products.sizes = o.sizes, products.depths = o.depths, products.trials = o.trials;
  products.seconds = o.seconds;
  std::vector<DevicePoint> found;
  for (const GemmRow& row :
       bench_gemm(preset_recipe(step_of(o, o.lengths.front(), false), {}), products).rows)
    found
        .emplace_back(PointSums::point_of("linear", name_of(row.type),
                                          {row.product.rows, row.product.n, row.product.k}, false,
                                          "ingot bench cluster: a product alone"))
        .tflops = row.share.median * device.rates.f32;
  OpsBenchOptions ops;
  ops.trials = o.trials, ops.seconds = o.seconds;
  ops.read_gbs = device.bandwidth;
  for (const int64_t length : o.lengths)
    for (const bool bf16 : {false, true}) {
      group.barrier();
      const OpsBenchReport report = bench_ops(preset_recipe(step_of(o, length, bf16), {}), ops);
      const double scale = 1e-3 * report.peak_gflops / device.rates.f32;
      PointSums sums;
      for (const OpRow& row : report.rows)
        sums.add(row.op, row.what, row.pass, row.sizes, row.flops, row.bytes, scale * row.seconds.median);
      for (DevicePoint& p : sums.points(bf16 ? "bf16" : "f32", "ingot bench cluster: an op of a step alone"))
        found.push_back(std::move(p));
    }
  std::vector<double> rates;
  for (const DevicePoint& p : found) rates.insert(rates.end(), {p.tflops, p.gb_per_s});
  rates = mean_of_ranks(group, std::move(rates));
  for (size_t i = 0; i < found.size(); ++i)
    found[i].tflops = rates[2 * i], found[i].gb_per_s = rates[2 * i + 1];
  device.points = of_one_rate(std::move(found), device.rates.f32, device.bandwidth);
}

/// No product is faster than the peak: where one was, that is the peak. And what stands for sizes far from
/// all points: the median over them, of products in each type, of attention in bf16.
void set_shares(DeviceSpec& device) {
  for (const DevicePoint& p : device.points) {
    double& peak = p.type == "bf16" ? device.rates.bf16 : device.rates.f32;
    if (is_product(p.op)) peak = std::max(peak, p.tflops);
  }
  const auto median_of = [&](const char* op, const char* type, double& share) {
    std::vector<double> shares;
    for (const DevicePoint& p : device.points)
      if (p.op == op && p.type == type) shares.push_back(p.tflops / device.rates.of(type));
    if (!shares.empty()) share = rounded(std::min(1.0, spread_of(shares).median));
  };
  for (const char* type : {"f32", "bf16"}) median_of("linear", type, device.product_share.of(type));
  device.product_share.quality = Quality::measured;
  median_of("attention", "bf16", device.attention_share);
}

void measure_links(World& world, const ClusterMeasureOptions& o, Cluster& c) {
  CommMeasureOptions options;
  options.bytes = o.messages, options.seconds = o.comm_seconds, options.messages = false, options.cold = true;
  for (int n = 2; n < world.ranks(); n *= 2) options.ranks.push_back(n);
  options.ranks.push_back(world.ranks());
  const CommReport report = measure_comm(world, options);
  const LinkFit fit = fit_shared_memory(report.measurements);
  LinkLevel level;
  level.name = "memory", level.kind = LinkKind::shared;
  level.gb_per_s = rounded(fit.gb_per_s), level.latency_us = rounded(fit.latency_us);
  level.source = fmt::format("ingot bench cluster: fitted to collectives, which differ by {:.0f} % (median)",
                             100 * fit.residual);
  level.quality = Quality::measured;
  c.links.push_back(level);
  c.curves = curves_of(report.measurements, "ingot bench cluster");
}

StorageSpec storage_spec(const StorageReport& r) {
  StorageSpec s;
  s.name = "folder";
  for (const StorageRow& row : r.rows) {
    double& rate = row.write ? s.write_gb_per_s : s.read_gb_per_s;
    rate = std::max(rate, rounded(1e-9 * row.bandwidth()));
  }
  s.iops = rounded(r.most_reads(4096)), s.sync_ms = rounded(1e3 * r.sync.median);
  s.source = fmt::format("ingot bench cluster in '{}'{}", r.folder,
                         r.direct ? "" : ", through the page cache, which the file system insists on");
  s.quality = Quality::measured;
  return s;
}

/// Checkpoints of runs, written beside steps, say more about those of others than copies and files alone do:
/// what one takes at least, and by its bytes.
void set_saves(const std::vector<ProfileReport>& profiles, DeviceSpec& device, StorageSpec& storage) {
  std::vector<TimePoint> pauses, writes;
  for (const ProfileReport& profile : profiles) {
    const SaveTimes& s = profile.saves;
    if (s.write == 0) continue;
    pauses.push_back({1, static_cast<double>(s.most), s.pause});
    writes.push_back({1, static_cast<double>(s.bytes), s.write});
  }
  if (writes.empty()) return;
  const TimeFit pause = fit_times(pauses), write = fit_times(writes);
  device.copy_gb_per_s = rounded(1e-9 / pause.seconds_per_byte);
  device.save_ms = rounded(1e3 * pause.latency_seconds);
  storage.write_gb_per_s = rounded(1e-9 / write.seconds_per_byte);
  storage.checkpoint_ms = rounded(1e3 * write.latency_seconds);
  storage.source += "; writes: checkpoints beside steps of --run";
}

/// The median over ranks of all runs.
double rest_of(const std::vector<ProfileReport>& profiles) {
  std::vector<double> shares;
  for (const ProfileReport& profile : profiles)
    for (const RankProfile& rank : profile.ranks) {
      const auto times = profile.times(rank);
      const auto of = [&](TimeOf what) { return times[static_cast<size_t>(what)]; };
      const double kernels = of(TimeOf::products) + of(TimeOf::attention) + of(TimeOf::kernels);
      if (kernels > 0) shares.push_back(of(TimeOf::rest) / kernels);
    }
  return shares.empty() ? 0 : std::clamp(spread_of(shares).median, 0.0, 1.0);
}

/// The median over ranks of all runs.
double ranks_per_core_of(const std::vector<ProfileReport>& profiles) {
  std::vector<double> all;
  for (const ProfileReport& profile : profiles)
    for (const RankProfile& rank : profile.ranks) all.push_back(ranks_per_core(rank));
  return all.empty() ? 1 : spread_of(all).median;
}

/// The median over runs whose ranks drift.
double drift_of(const std::vector<ProfileReport>& profiles) {
  std::vector<double> drifts;
  for (const ProfileReport& profile : profiles)
    if (const double drift = rank_drift(profile); drift > 0) drifts.push_back(drift);
  return drifts.empty() ? 0 : spread_of(drifts).median;
}

/// Of a collective of n ranks, the bytes that pass the memory, over n - 1.
double traffic(const CommMeasurement& m) {
  return (m.kind == CommKind::all_reduce ? 2 : 1) * static_cast<double>(m.bytes);
}

bool has_formula(const CommMeasurement& m) {
  return m.ranks > 1 && (m.kind == CommKind::all_reduce || m.kind == CommKind::reduce_scatter ||
                         m.kind == CommKind::all_gather || m.kind == CommKind::all_to_all);
}

}  // namespace

LinkFit fit_shared_memory(const std::vector<CommMeasurement>& measured) {
  std::vector<TimePoint> points;
  for (const CommMeasurement& m : measured)
    if (has_formula(m)) points.push_back({m.ranks - 1.0, (m.ranks - 1) * traffic(m), m.seconds});
  INGOT_CHECK(!points.empty(), "no collective of several ranks among {} measurements", measured.size());
  const TimeFit fit = fit_times(points);
  return {1e-9 / fit.seconds_per_byte, 1e6 * fit.latency_seconds, fit.residual};
}

std::vector<BandwidthCurve> curves_of(const std::vector<CommMeasurement>& measured,
                                      const std::string& source) {
  std::map<std::pair<CommKind, int>, std::vector<const CommMeasurement*>> groups;
  for (const CommMeasurement& m : measured)
    if (has_formula(m)) groups[{m.kind, m.ranks}].push_back(&m);
  std::vector<BandwidthCurve> curves;
  for (auto& [key, points] : groups) {
    std::sort(points.begin(), points.end(), [](const auto* x, const auto* y) { return x->bytes < y->bytes; });
    BandwidthCurve c;
    c.collective = name_of(key.first), c.ranks = key.second, c.source = source;
    // As the file judges them: bytes over bandwidth may not fall.
    double longest = 0;
    for (const CommMeasurement* m : points) {
      const double rate = rounded(1e-9 * m->bus_bandwidth), bytes = static_cast<double>(m->bytes);
      if (rate <= 0 || bytes / rate < longest || (!c.bytes.empty() && bytes <= c.bytes.back())) continue;
      longest = bytes / rate;
      c.bytes.push_back(bytes), c.gb_per_s.push_back(rate);
    }
    if (!c.bytes.empty()) curves.push_back(std::move(c));
  }
  return curves;
}

namespace {

/// By which lengths a run's attention is known. Documents divide sequences of one length differently in each
/// batch, which then has fewer pairs and takes about as long: it counts with the longest of at most twice its
/// length.
class AttentionLengths {
 public:
  explicit AttentionLengths(const ProfileReport& profile) {
    for (const RankProfile& rank : profile.ranks)
      for (const StepSpan& step : rank.steps)
        for (const OpSpan& op : step.ops) lengths_[op.sizes.width][op.sizes.length] = 0;
    for (auto& [width, lengths] : lengths_) {
      int64_t longest = 0;
      for (auto at = lengths.rbegin(); at != lengths.rend(); ++at) {
        if (longest == 0 || 2 * at->first < longest) longest = at->first;
        at->second = longest;
      }
    }
  }
  OpSizes of(OpSizes sizes) const {
    sizes.length = lengths_.at(sizes.width).at(sizes.length);
    return sizes;
  }

 private:
  std::map<int64_t, std::map<int64_t, int64_t>> lengths_;  ///< by width
};

}  // namespace

std::vector<DevicePoint> points_of(const ProfileReport& profile, double f32_tflops, double gb_per_s) {
  constexpr const char* kSource = "ingot bench cluster --run: in steps of the run";
  const AttentionLengths lengths(profile);
  PointSums sums;
  std::vector<DevicePoint> updates;
  for (const RankProfile& rank : profile.ranks) {
    const double scale = 1e-3 * spread_of(rank.peak_gflops).median / f32_tflops;
    const double crowding = scale * rank.crowding();
    std::vector<double> update;
    std::vector<PointSums> steps;
    for (const StepSpan& step : rank.steps) {
      update.push_back(scale * step.times()[static_cast<size_t>(TimeOf::optimizer)]);
      PointSums& of_step = steps.emplace_back();
      for (const OpSpan& op : step.ops)
        if (op.what != TimeOf::exchanges)
          of_step.add(op.op, op.what, op.pass, lengths.of(op.sizes), op.flops, op.bytes,
                      crowding * op.seconds());
    }
    sums.add_median_of(steps);
    updates.push_back(update_point(rank.update, spread_of(std::move(update)).median, gb_per_s));
    updates.back().source = kSource;
  }
  std::vector<DevicePoint> points = sums.points(profile.precision, kSource);
  points.insert(points.end(), updates.begin(), updates.end());
  return of_one_rate(std::move(points), f32_tflops, gb_per_s);
}

std::vector<DevicePoint> preferred_points(std::vector<DevicePoint> of_run,
                                          const std::vector<DevicePoint>& others) {
  std::vector<DevicePoint> kept = of_run;
  for (const DevicePoint& p : others) {
    const bool known = std::any_of(of_run.begin(), of_run.end(), [&](const DevicePoint& r) {
      const auto ratios = log_ratios(r.sizes, p.sizes);
      const auto near = [](double ratio) { return std::fabs(ratio) <= std::numbers::ln2; };
      return r.op == p.op && r.type == p.type && r.pass == p.pass &&
             std::all_of(ratios.begin(), ratios.end(), near) &&
             (p.bytes == 0 || near(std::log(p.bytes / r.bytes)));
    });
    if (!known) kept.push_back(p);
  }
  return kept;
}

Cluster measure_cluster(World& world, const ClusterMeasureOptions& o,
                        const std::vector<ProfileReport>& profiles) {
  std::vector<int> everyone(static_cast<size_t>(world.ranks()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const std::unique_ptr<Communicator> group = world.group("measure cluster", everyone);
  require_one_host(*group);
  const MachineInfo machine = machine_info();
  Cluster c;
  c.name = o.name.empty() ? fmt::format("{}, {}", machine.cpu, count_of(world.ranks(), "rank")) : o.name;
  c.devices = c.devices_per_node = world.ranks();
  c.device.memory = fmt::format("{}MB", machine.memory_bytes / world.ranks() / 1'000'000);
  c.device.copies = false;             // products round while they pack
  c.device.rate_beside_transfers = 0;  // the processors that compute send
  measure_rates(*group, o, c.device);
  if (o.kernels) measure_points(*group, o, c.device);
  std::vector<DevicePoint> of_runs;
  for (const ProfileReport& profile : profiles)
    for (DevicePoint& p : points_of(profile, c.device.rates.f32, c.device.bandwidth))
      of_runs.push_back(std::move(p));
  c.device.points = preferred_points(std::move(of_runs), c.device.points);
  set_shares(c.device);
  c.device.rest_share = rounded(rest_of(profiles));
  c.device.ranks_per_core = rounded(ranks_per_core_of(profiles));
  c.device.drift_ms = rounded(1e3 * drift_of(profiles));
  c.device.source =
      fmt::format("ingot bench cluster: {} of {} each, {} kernels", count_of(world.ranks(), "rank"),
                  count_of(num_threads(), "thread"), isa_name(active_isa()));
  c.device.quality = Quality::measured;
  if (world.ranks() > 1) measure_links(world, o, c);
  c.host.cores = std::max<int64_t>(1, int64_t{num_threads()} * world.ranks());
  c.host.memory = fmt::format("{}MB", machine.memory_bytes / 1'000'000);
  if (world.rank() == 0 && o.disk.file_bytes > 0) {
    c.storage.push_back(storage_spec(measure_storage(o.disk)));
    set_saves(profiles, c.device, c.storage.back());
  }
  group->barrier();
  return cluster_from_text(broadcast_text(*group, print_config(c)), "measured");
}

std::string describe_measured(const Cluster& c) {
  const DeviceSpec& d = c.device;
  std::string text = fmt::format(
      "{}: {} of {}, {:.3g} TFLOP/s of f32, {:.3g} of bf16, {:.3g} GB/s, {:.2g} us a kernel\n", c.name,
      count_of(c.devices, "device"), d.memory, d.rates.f32, d.rates.bf16, d.bandwidth, d.launch_us);
  text += fmt::format("{} of kernels; products reach {:.0f} % of the peak, attention {:.0f} %\n",
                      count_of(static_cast<int64_t>(d.points.size()), "point"), 100 * d.product_share.bf16,
                      100 * d.attention_share);
  for (const LinkLevel& l : c.links)
    text += fmt::format("{}: {:.3g} GB/s, {:.3g} us; {}; {}\n", l.name, l.gb_per_s, l.latency_us, l.source,
                        count_of(static_cast<int64_t>(c.curves.size()), "curve"));
  for (const StorageSpec& s : c.storage)
    text += fmt::format("storage: reads {:.3g} GB/s, writes {:.3g} GB/s, {:.3g} reads a second\n",
                        s.read_gb_per_s, s.write_gb_per_s, s.iops);
  return text;
}

std::string cluster_file(const Cluster& c) {
  std::string text =
      "# Written by `ingot bench cluster`. What was not measured has its default: price, failures, "
      "offloading.\n" +
      print_config(c);
  cluster_from_text(text, "the measured cluster");
  return text;
}

}  // namespace ingot
