// `ingot bench cluster`: its links are those that its measurements follow from, its points those of the
// profile, and what it writes reads back and plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/threads.h"
#include "measure/fabric.h"
#include "measure/measured_cluster.h"
#include "measure/rank_drift.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::measured_cluster_runs_test {

/// Collectives of ranks that share a memory, by its formula, times what `error` makes of the i-th.
template <class Error>
std::vector<CommMeasurement> collectives(double gb_per_s, double latency_us, Error&& error) {
  std::vector<CommMeasurement> all;
  for (const CommKind kind : {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather,
                              CommKind::all_to_all, CommKind::broadcast, CommKind::barrier})
    for (const int ranks : {2, 4})
      for (int64_t bytes = 4096; bytes <= int64_t{16} << 20; bytes *= 4) {
        const double factor = kind == CommKind::all_reduce ? 2 : 1,
                     seconds = (ranks - 1) *
                               (1e-6 * latency_us + factor * static_cast<double>(bytes) / (1e9 * gb_per_s)) *
                               error(all.size()),
                     bus = factor * (ranks - 1) / ranks * static_cast<double>(bytes) / seconds;
        all.push_back({kind, ranks, bytes, seconds, bus});
      }
  return all;
}

TEST(MeasuredCluster, TheFitFindsTheLinksThatTimesFollowFrom) {
  const LinkFit exact = fit_shared_memory(collectives(8, 15, [](size_t) { return 1.0; }));
  EXPECT_NEAR(exact.gb_per_s, 8, 1e-6);
  EXPECT_NEAR(exact.latency_us, 15, 1e-6);
  EXPECT_LT(exact.residual, 1e-9);
  const LinkFit noisy =
      fit_shared_memory(collectives(8, 15, [](size_t i) { return 1 + 0.08 * std::sin(7.0 * i); }));
  EXPECT_NEAR(noisy.gb_per_s, 8, 0.8);
  EXPECT_NEAR(noisy.latency_us, 15, 1.5);
  EXPECT_GT(noisy.residual, 0.02);
  EXPECT_LT(noisy.residual, 0.09);
}

/// The same times, by the fabric of a cluster with the fitted links, without its curves.
TEST(MeasuredCluster, TheFitIsInTheFabricsTerms) {
  const auto measured = collectives(8, 15, [](size_t) { return 1.0; });
  const LinkFit fit = fit_shared_memory(measured);
  Cluster c;
  c.links.resize(1);
  c.links[0].kind = LinkKind::shared, c.links[0].gb_per_s = fit.gb_per_s;
  c.links[0].latency_us = fit.latency_us;
  const Fabric fabric(c);
  int compared = 0;
  for (const CommMeasurement& m : measured) {
    if (m.kind == CommKind::broadcast || m.kind == CommKind::barrier) continue;
    const double planned =
        fabric.collective(m.kind, {m.ranks, m.ranks}, static_cast<double>(m.bytes)).seconds;
    EXPECT_NEAR(planned, m.seconds, 1e-6 * m.seconds) << name_of(m.kind) << " " << m.ranks << " " << m.bytes;
    ++compared;
  }
  EXPECT_EQ(compared, 4 * 2 * 7);
}

TEST(MeasuredCluster, WithoutALatencyThatCanBeSeenThereIsNone) {
  const LinkFit fit = fit_shared_memory(collectives(8, 0, [](size_t i) { return i % 2 == 0 ? 1.0 : 1.02; }));
  EXPECT_GE(fit.latency_us, 0);
  EXPECT_LT(fit.latency_us, 0.02);
  EXPECT_NEAR(fit.gb_per_s, 8, 0.2);
}

TEST(MeasuredCluster, CurvesLeaveOutSizesThatTookLessTimeThanSmallerOnes) {
  const std::vector<CommMeasurement> measured = {{CommKind::all_reduce, 2, 4096, 20e-6, 2.0e8},
                                                 {CommKind::all_reduce, 2, 16384, 10e-6, 1.6e9},
                                                 {CommKind::all_reduce, 2, 65536, 40e-6, 1.6e9},
                                                 {CommKind::all_gather, 2, 4096, 8e-6, 2.5e8},
                                                 {CommKind::barrier, 2, 0, 5e-6, 0}};
  const std::vector<BandwidthCurve> curves = curves_of(measured, "test");
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].collective, "all_reduce");
  EXPECT_EQ(curves[0].bytes, (std::vector<double>{4096, 65536}));
  EXPECT_EQ(curves[1].gb_per_s, (std::vector<double>{0.25}));
}

OpSpan span(const OpSizes& sizes, OpPass pass, double seconds, double flops) {
  OpSpan s;
  s.op = sizes.width > 0 ? "attention" : "linear";
  s.what = sizes.width > 0 ? TimeOf::attention : TimeOf::products;
  s.pass = pass, s.end = seconds, s.flops = flops;
  s.sizes = sizes;
  return s;
}

/// One rank at half of a peak of 100 GFLOP/s in its products, of 200 in attention forward, of 50 backward; at
/// a quarter of 20 GB/s in an op that adds, at a tenth of the peak in one that convolves, and at 40 GFLOP/s
/// in the products of an update that moves 8 GB in 0.4 of its 2.4 s.
ProfileReport profile() {
  ProfileReport r;
  r.precision = "bf16";
  RankProfile rank;
  rank.peak_gflops = {90, 100, 110}, rank.read_gbs = {20};
  rank.update = {.flops = 80e9, .bytes = 8e9};
  StepSpan step;
  step.phases = {{StepPart::update, 20, 22.4}};
  OpSpan add = span({}, OpPass::forward, 1, 1e9), cca = span({}, OpPass::input_gradient, 2, 20e9);
  add.op = "add", add.what = TimeOf::kernels, add.bytes = 5e9;
  cca.op = "cca", cca.what = TimeOf::kernels, cca.bytes = 1e9;
  const OpSizes product{512, 256, 128, 0, 0}, attention{0, 0, 0, 64, 512};
  step.ops = {span(product, OpPass::forward, 1, 60e9),
              span(product, OpPass::weight_gradient, 1, 40e9),
              span(attention, OpPass::forward, 1, 200e9),
              span(attention, OpPass::recompute, 1, 200e9),
              span(attention, OpPass::input_gradient, 2, 100e9),
              span({}, OpPass::forward, 5, 1e9),
              add,
              cca};
  rank.steps = {step};
  r.ranks = {rank};
  return r;
}

TEST(MeasuredCluster, PointsOfAProfileAreScaledByItsPeak) {
  const std::vector<DevicePoint> points = points_of(profile(), 0.3, 60);
  ASSERT_EQ(points.size(), 6u);
  for (const DevicePoint& p : points) {
    EXPECT_EQ(p.type, p.op == "update" ? "f32" : "bf16");
    EXPECT_EQ(p.quality, Quality::measured);
    if (p.bytes > 0) continue;
    const double share = p.op == "linear" ? 0.5 : p.pass == "forward" ? 2 : 0.5;
    EXPECT_NEAR(p.tflops, 0.3 * share, 1e-9) << p.op << " " << p.pass;
  }
  const auto product =
      std::find_if(points.begin(), points.end(), [](const auto& p) { return p.op == "linear"; });
  EXPECT_EQ(product->sizes.m, 512);
  EXPECT_EQ(product->sizes.n, 256);
  EXPECT_EQ(product->sizes.k, 128);
}

/// Another op is as fast as its bytes or its FLOPs pass, whichever are nearer to what the machine does.
TEST(MeasuredCluster, PointsOfOtherOpsHaveTheRateThatLimitsThem) {
  int found = 0;
  for (const DevicePoint& p : points_of(profile(), 0.3, 60)) {
    if (p.bytes == 0) continue;
    ++found;
    const bool adds = p.op == "add", update = p.op == "update";
    EXPECT_EQ(p.bytes, adds ? 5e9 : update ? 8e9 : 1e9) << p.op;
    EXPECT_EQ(p.pass, adds || update ? "forward" : "backward") << p.op;
    EXPECT_NEAR(p.gb_per_s, adds ? 15 : 0, 1e-9) << p.op;
    EXPECT_NEAR(p.tflops, adds ? 0 : update ? 0.12 : 0.03, 1e-9) << p.op;
  }
  EXPECT_EQ(found, 3);
}

/// The rate at which memory was read beside the steps changes with neighbours, from one moment to the next.
TEST(MeasuredCluster, PointsFollowNoRateOfReading) {
  ProfileReport other = profile();
  other.ranks.front().read_gbs = {40};
  const std::vector<DevicePoint> one = points_of(profile(), 0.3, 60), two = points_of(other, 0.3, 60);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].gb_per_s, two[i].gb_per_s) << one[i].op;
    EXPECT_EQ(one[i].tflops, two[i].tflops) << one[i].op;
  }
}

/// The head has a softmax beside its product.
TEST(MeasuredCluster, PointsOfProductsAreOfTheirOp) {
  ProfileReport r = profile();
  OpSpan head = span({512, 256, 128, 0, 0}, OpPass::forward, 1, 20e9);
  head.op = "head";
  r.ranks.front().steps.front().ops = {span({512, 256, 128, 0, 0}, OpPass::forward, 1, 50e9), head};
  for (const DevicePoint& p : points_of(r, 0.1, 60))
    if (p.op != "update") {
      EXPECT_NEAR(p.tflops, p.op == "head" ? 0.02 : 0.05, 1e-9) << p.op;
    }
}

TEST(MeasuredCluster, PointsAreOfTheMedianStep) {
  ProfileReport r = profile();
  std::vector<StepSpan>& steps = r.ranks.front().steps;
  steps.assign(3, steps.front());
  for (OpSpan& op : steps[1].ops) op.end = 10 * op.end;
  steps[1].phases.front().end = 60;
  const std::vector<DevicePoint> one = points_of(profile(), 0.3, 60), three = points_of(r, 0.3, 60);
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].tflops, three[i].tflops) << one[i].op;
}

TEST(MeasuredCluster, AttentionOfDividedSequencesCountsAsThatOfWholeOnes) {
  ProfileReport r = profile();
  std::vector<OpSpan>& ops = r.ranks.front().steps.front().ops;
  ops.clear();
  for (const int64_t length : {512, 300, 256, 200})
    ops.push_back(span({0, 0, 0, 64, length}, OpPass::forward, 1, 1e8 * static_cast<double>(length)));
  std::map<int64_t, double> tflops;
  for (const DevicePoint& p : points_of(r, 0.1, 60))
    if (p.op == "attention") tflops[p.sizes.length] = p.tflops;
  ASSERT_EQ(tflops.size(), 2u);
  EXPECT_NEAR(tflops[512], 1e-4 * (512 + 300 + 256) / 3, 1e-6) << "in as many seconds";
  EXPECT_NEAR(tflops[200], 1e-4 * 200, 1e-9);
}

/// What ranks that share cores reach where none waits, which is less than in steps with waits.
TEST(MeasuredCluster, PointsOfACrowdedProfileAreSlower) {
  ProfileReport crowded = profile();
  RankProfile& rank = crowded.ranks.front();
  rank.processor_share = {0.5};
  rank.steps.front().end = 22.4, rank.steps.front().processor = 0.5 * (1.25 * 20 + 2.4);
  ASSERT_NEAR(rank.crowding(), 1.25, 1e-12) << "without the update, of 2.4 s";
  const std::vector<DevicePoint> alone = points_of(profile(), 0.3, 60), slower = points_of(crowded, 0.3, 60);
  ASSERT_EQ(slower.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    if (alone[i].tflops == 0) continue;
    const double expected = alone[i].op == "update" ? 1 : rank.crowding();
    EXPECT_NEAR(alone[i].tflops / slower[i].tflops, expected, 1e-3) << alone[i].op;
  }
}

TEST(MeasuredCluster, ARunsPointsStandForTheirNeighbourhood) {
  const std::vector<DevicePoint> of_run = points_of(profile(), 0.3, 60);
  DevicePoint near = *std::find_if(of_run.begin(), of_run.end(),
                                   [](const auto&p) { return p.op == "attention"; }),
              far = near, other = near;
  near.sizes.length = 1000, far.sizes.length = 1100, other.type = "f32";
  const std::vector<DevicePoint> kept = preferred_points(of_run, {near, far, other});
  ASSERT_EQ(kept.size(), 8u);
  EXPECT_EQ(kept[6].sizes.length, 1100);
  EXPECT_EQ(kept[7].type, "f32");
}

ClusterMeasureOptions quick(const std::string& folder) {
  ClusterMeasureOptions o;
  o.vocab = 64;
  o.sizes = {32, 64}, o.depths = {64}, o.lengths = {32}, o.messages = {4096, 65536};
  o.disk.folder = folder, o.disk.file_bytes = 1 << 20, o.disk.bytes = {4096, 65536}, o.disk.threads = {1};
  o.disk.seconds = 0.005;
  o.trials = 1, o.seconds = 1e-4, o.comm_seconds = 1e-3;
  return o;
}

/// Ranks get the same file, with links and drift, and a plan of two ranks stands on measured numbers.
TEST(MeasuredCluster, OfTwoRanksHasTheLinksBetweenThem) {
  const TempDir folder;
  ProfileReport alone = profile();
  alone.ranks.front().steps.front().phases.push_back({StepPart::passes, 0, 16});
  ProfileReport two = alone;
  two.ranks.push_back(two.ranks.front());
  two.ranks[1].steps[0].ops[0].end += 0.1;
  std::vector<std::string> files(2);
  run_ranks(2, [&](ThreadRank& self) {
    files[static_cast<size_t>(self.rank())] =
        cluster_file(measure_cluster(self, quick(folder.path()), {alone, two}));
  });
  EXPECT_EQ(files[0], files[1]);
  const Cluster c = cluster_from_text(files[0], "file");
  EXPECT_EQ(c.devices, 2);
  ASSERT_EQ(c.links.size(), 1u);
  EXPECT_EQ(c.links[0].kind, LinkKind::shared);
  EXPECT_EQ(c.links[0].quality, Quality::measured);
  EXPECT_EQ(c.device.rate_beside_transfers, 0) << "the cores that compute send";
  EXPECT_GT(c.device.fresh_gb_per_s, 0);
  EXPECT_NEAR(c.device.rest_share, (16 - 14) / 14., 1e-4) << "of two of the three ranks";
  EXPECT_NEAR(c.device.drift_ms, 1e3 * rank_drift(two), 1e-3 * c.device.drift_ms);
  EXPECT_GT(c.device.drift_ms, 0);
  EXPECT_FALSE(c.curves.empty());
  const Fabric fabric(c);
  EXPECT_GT(fabric.collective(CommKind::all_reduce, {2, 2}, 1e6).seconds, 0);
}

TEST(BenchClusterCommand, WritesAFileThatPlans) {
  const TempDir folder;
  const std::string recipe = folder / "recipe.toml";
  write_text(folder / "text.txt", tiny_text(2000));
  write_text(recipe, base_recipe(folder.path(), 32, "kind = \"characters\""));
  const std::string out = folder / "here.toml";
  const std::vector<std::string> words = {INGOT_BINARY,
                                          "bench",
                                          "cluster",
                                          "--out",
                                          out,
                                          "--sizes=32,64",
                                          "--depths=64",
                                          "--lengths=32",
                                          "--vocab=64",
                                          "--trials=1",
                                          "--seconds=1e-4",
                                          "--file=1MiB",
                                          "--io-seconds=0.005",
                                          "--folder",
                                          folder.path()};
  const ProcessResult r = run_process(words);
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("--cluster"), std::string::npos) << r.output;
  const Cluster c = load_cluster(out);
  EXPECT_EQ(c.devices, 1);
  EXPECT_TRUE(c.links.empty());
  EXPECT_EQ(c.device.quality, Quality::measured);
  EXPECT_GT(c.device.rates.f32, 0);
  EXPECT_GT(c.device.rates.bf16, 0);
  EXPECT_GT(c.device_bytes(), 0);
  ASSERT_EQ(c.storage.size(), 1u);
  EXPECT_GT(c.storage[0].iops, 0);
  int products = 0, forward = 0, backward = 0;
  for (const DevicePoint& p : c.device.points) {
    EXPECT_EQ(p.quality, Quality::measured);
    EXPECT_FALSE(p.source.empty());
    EXPECT_TRUE(p.op != "linear" || p.tflops <= c.device.rates.of(p.type))
        << p.sizes.m << " " << p.sizes.n << " " << p.sizes.k;
    products += p.op == "linear", forward += p.op == "attention" && p.pass == "forward",
        backward += p.op == "attention" && p.pass == "backward";
  }
  EXPECT_GT(products, 8) << "those of the map and of the preset, in two types";
  EXPECT_EQ(forward, 2) << "f32 and bf16";
  EXPECT_EQ(backward, 2);
  const ProcessResult plan = run_process({INGOT_BINARY, "plan", recipe, "--model.vocab=64", "--ranks", "1",
                                          "--cluster", out, "--type", "f32", "--json"},
                                         {"INGOT_LOG=error"});
  ASSERT_EQ(plan.exit_code, 0) << plan.output;
  EXPECT_GT(nlohmann::json::parse(plan.output).at("time").at("step_seconds").get<double>(), 0);

  // With the steps of a run: points of its shapes.
  std::vector<std::string> more = words;
  more.insert(more.end(), {"--run", recipe, "--steps=1"});
  const ProcessResult with = run_process(more);
  ASSERT_EQ(with.exit_code, 0) << with.output;
  int in_steps = 0;
  for (const DevicePoint& p : load_cluster(out).device.points)
    in_steps += p.source.find("in steps of the run") != std::string::npos;
  EXPECT_GT(in_steps, 2);
}

TEST(BenchClusterCommand, SaysWhatItCannotUse) {
  const auto refused = [](const std::vector<std::string>& more, int code, const char* part) {
    std::vector<std::string> words = {INGOT_BINARY, "bench", "cluster"};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult r = run_process(words);
    EXPECT_EQ(r.exit_code, code) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
  };
  refused({}, 2, "--out");
  refused({"--out", "x.toml", "--model.layers=2"}, 2, "--run names none");
  refused({"--out", "x.toml", "--largest=4KiB"}, 1, "at least 16KiB");
  refused({"--out", "x.toml", "--preset", "nothing"}, 1, "there is no preset 'nothing'");
  refused({"--out", "x.toml", "--run", "nowhere"}, 1, "nowhere");
}

}  // namespace ingot::test::measured_cluster_runs_test
