// `ingot bench machine`: formulas against the paper's example, levels of caches, counted pages of samples,
// and every flag.
#include "measure/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/build_info.h"
#include "base/error.h"
#include "base/file_system.h"
#include "device/machine/peak_kernels.h"
#include "device/simd/isa.h"
#include "measure/scratch_file.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::machine_test {

using nlohmann::json;
using test::TempDir;

TEST(Spread, IsTheMiddleAndTheEnds) {
  const Spread odd = spread_of({5, 1, 3}), even = spread_of({4, 1, 2, 8});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 5);
  EXPECT_EQ(even.median, 3);
  EXPECT_EQ(width_of({100, 99, 103}), "4 %");
}

// Appendix B of the paper: 64 MiB in 16,384 pages an iteration, about 6,554 sigma IOPS, break-even 0.234
// sigma seconds.
TEST(LoaderDemand, EqualsThePapersExample) {
  LoaderDemand d;
  d.batch = 4096, d.sequence = 4096, d.token_bytes = 4, d.step_seconds = 2.5, d.most_iops = 70000;
  EXPECT_EQ(d.pages(), 16384);
  EXPECT_EQ(d.scatter(), 1);
  EXPECT_NEAR(d.needed_iops(), 6554, 0.5);
  EXPECT_NEAR(d.break_even_seconds(), 0.234, 5e-4);
  d.extra_pages = 28;  // sigma = 1 + 28 x 4096 / 16384 = 8
  EXPECT_EQ(d.scatter(), 8);
  EXPECT_NEAR(d.needed_iops(), 8 * 6553.6, 1e-6);
  EXPECT_LT(d.break_even_seconds(), 2.5);
  EXPECT_NE(to_text(d).find("enough"), std::string::npos);
  d.most_iops = 7000;
  EXPECT_NE(to_text(d).find("too few"), std::string::npos);
}

TEST(Levels, AWorkingSetLiesWhereItHasRoom) {
  const std::vector<CacheLevel> levels{{"L1", 48 << 10, 2}, {"L2", 2 << 20, 2}, {"L3", 32 << 20, 8}};
  EXPECT_EQ(level_of(levels, 1, 48 << 10), "L1");
  EXPECT_EQ(level_of(levels, 2, 48 << 10), "L2") << "hyper-threads share the first level";
  EXPECT_EQ(level_of(levels, 16, 4 << 20), "L3") << "eight share a last level";
  EXPECT_EQ(level_of(levels, 16, 8 << 20), "memory");
  EXPECT_EQ(level_of({}, 1, 1), "memory");
  EXPECT_EQ(thread_counts(1), (std::vector<int>{1}));
  EXPECT_EQ(thread_counts(6), (std::vector<int>{1, 2, 4, 6}));
}

TEST(Levels, BeyondTheCachesIsManyTimesAThreadsShare) {
  constexpr int64_t kLast = 4 << 20, kLeast = 16 << 20;
  const std::vector<CacheLevel> levels{{"L1", 48 << 10, 2}, {"L2", kLast, 8}};
  EXPECT_EQ(beyond_caches(levels, 1, 2), 16 * kLast) << "one thread alone has the whole cache";
  EXPECT_EQ(beyond_caches(levels, 2, 2), 8 * kLast);
  EXPECT_EQ(beyond_caches(levels, 8, 8), 4 * kLast) << "each may have a cache of its own";
  EXPECT_EQ(beyond_caches({{"L2", 64 << 10, 1}}, 1, 1), kLeast);
  EXPECT_EQ(beyond_caches(levels, 1, 1 << 20), kLeast);
  EXPECT_LE(beyond_caches({{"L9", int64_t{1} << 50, 1}}, 2, 2),
            std::max(kLeast, machine_info().memory_bytes / 16));
}

TEST(MemoryBench, EveryPassMovesBytesOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : kEveryIsa) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    MemoryBench bench(2, 1 << 16);
    for (const MemoryPass pass : kEveryMemoryPass) {
      const double rate = bench.rate(pass, 2, 1 << 14, 1e-4);
      EXPECT_GT(rate, 1e6) << isa_name(isa) << " " << name_of(pass);
      EXPECT_LT(rate, 1e14) << isa_name(isa) << " " << name_of(pass) << ": the loop was folded away";
    }
  }
  force_isa(before);
}

TEST(MemoryBench, NarrowAndWideVectorsWriteTheSame) {
  const Isa before = active_isa();
  std::vector<float> x(512), y(512), to(512);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i), y[i] = static_cast<float>(3 * i + 1);
  const float factor = 2;
  const auto bytes = static_cast<int64_t>(4 * x.size());
  for (const Isa isa : kEveryIsa) {
    if (!isa_available(isa)) continue;
    force_isa(isa);
    for (const PeakVectors vectors : {PeakVectors::wide, PeakVectors::narrow}) {
      const auto expect = [&](auto&& value) {
        for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(to[i], value(i)) << isa_name(isa) << " " << i;
        std::fill(to.begin(), to.end(), -1.0f);
      };
      INGOT_ISA_CALL(peak_copy)(to.data(), x.data(), bytes, vectors);
      expect([&](size_t i) { return x[i]; });
      INGOT_ISA_CALL(peak_add)(to.data(), x.data(), y.data(), bytes, vectors);
      expect([&](size_t i) { return x[i] + y[i]; });
      INGOT_ISA_CALL(peak_triad)(to.data(), x.data(), y.data(), bytes, vectors, &factor);
      expect([&](size_t i) { return x[i] + 2 * y[i]; });
    }
  }
  force_isa(before);
}

TEST(ScratchFile, HoldsWhatWasWrittenAndLeavesNothing) {
  const TempDir folder;
  for (const bool direct : {false, true}) {
    const ScratchFile file(folder.path(), direct);
    EXPECT_TRUE(direct || !file.direct());
    const auto out = transfer_buffer(8192), in = transfer_buffer(4096);
    file.write(out.get(), 8192, 4096);
    file.sync();
    file.read(in.get(), 4096, 8192);
    EXPECT_EQ(std::memcmp(in.get(), out.get() + 4096, 4096), 0);
    EXPECT_THROW(file.read(in.get(), 4096, 1 << 20), Error);
  }
  EXPECT_TRUE(real_file_system().list(folder.path()).empty());
  EXPECT_THROW(ScratchFile("/nowhere/at/all", true), Error);
}

test::ProcessResult bench(std::vector<std::string> arguments) {
  std::vector<std::string> command{INGOT_BINARY,        "bench", "machine", "--trials=2", "--seconds=0.0002",
                                   "--io-seconds=0.002"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

void expect_spread(const json& s) {
  EXPECT_GT(s["median"], 0);
  EXPECT_LE(s["least"], s["median"]);
  EXPECT_GE(s["most"], s["median"]);
}

TEST(BenchMachine, MeasuresEveryPartAndWritesJsonAndPlots) {
  const TempDir folder;
  const auto r = bench({"--threads=1,2", "--largest=64KiB", "--folder", folder.path(), "--file=1MiB",
                        "--io-sizes=4KiB,64KiB", "--io-threads=1,3", "--json", folder / "m.json", "--html",
                        folder / "m.html"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text : {"fp32 FMA", "memory, GB/s, 2 threads", "working set", "64 KiB", "IOPS",
                           "slowest 1 %", "widest spread"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(test::read_text(folder / "m.json"));
  EXPECT_EQ(all["format"], 1);
  ASSERT_EQ(all["arithmetic"].size(), 2u);
  for (const auto& row : all["arithmetic"])
    expect_spread(row["fma_gflops"]), expect_spread(row["dot_gflops"]);
  ASSERT_EQ(all["memory"].size(), 2u * 2 * std::size(kEveryMemoryPass)) << "threads, 16 and 64 KiB, passes";
  for (const auto& row : all["memory"]) expect_spread(row["bytes_per_second"]);
  EXPECT_EQ(all["storage"]["file_bytes"], 1 << 20);
  EXPECT_TRUE(all["storage"]["direct"].is_boolean());
  ASSERT_EQ(all["storage"]["rows"].size(), 2u * 2 * 2) << "directions, threads, sizes";
  for (const auto& row : all["storage"]["rows"]) {
    expect_spread(row["iops"]), expect_spread(row["latency_seconds"]);
    EXPECT_DOUBLE_EQ(row["bytes_per_second"],
                     row["iops"]["median"].get<double>() * row["bytes"].get<double>());
    EXPECT_GE(row["slowest_percent_seconds"]["most"], row["latency_seconds"]["least"]);
  }
  EXPECT_FALSE(all.contains("loader"));
  const std::string page = test::read_text(folder / "m.html");
  for (const char* text : {"Arithmetic", "GB/s by working set", "Transfers", "read, 3 threads", "</html>"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  for (const char* not_finite : {"inf,", "nan", "-inf"})
    EXPECT_EQ(page.find(not_finite), std::string::npos) << not_finite;
}

TEST(BenchMachine, PartsAreChosen) {
  const TempDir folder;
  const auto r = bench({"--parts=arithmetic", "--threads=1", "--json", folder / "m.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const json all = json::parse(test::read_text(folder / "m.json"));
  EXPECT_EQ(all["arithmetic"].size(), 1u);
  EXPECT_EQ(all["memory"].size(), 0u);
  EXPECT_FALSE(all.contains("storage"));
}

TEST(BenchMachine, RefusesWhatCannotBeMeasured) {
  EXPECT_EQ(bench({"--parts=storage", "--io-sizes=1000"}).exit_code, 1);
  EXPECT_EQ(bench({"--parts=storage", "--io-sizes=2MiB", "--file=1MiB"}).exit_code, 1);
  EXPECT_EQ(bench({"--parts=storage", "--io-threads=0", "--file=1MiB"}).exit_code, 2);
  EXPECT_EQ(bench({"--parts=storage", "--folder=/nowhere"}).exit_code, 1);
  EXPECT_EQ(bench({"--parts=memory", "--largest=1KiB"}).exit_code, 1);
  EXPECT_EQ(bench({"--parts=arithmetic", "--threads=0"}).exit_code, 2);
  EXPECT_EQ(bench({"--parts=ears"}).exit_code, 2);
}

// A short sample touches a page or two of tokens, and as many of the index.
TEST(BenchMachine, EvaluatesTheFormulasWithARunsOwnScatter) {
  const TempDir folder;
  test::write_text(folder / "text.txt", test::tiny_text(30000));
  const std::string text = test::tiny_recipe(folder / "run", folder / "data", folder / "text.txt");
  test::write_text(folder / "recipe.toml", text);
  const auto r =
      bench({"--parts=storage", "--folder", folder.path(), "--file=1MiB", "--io-sizes=4KiB", "--io-threads=1",
             "--run", folder / "recipe.toml", "--step-seconds=0.5", "--json", folder / "m.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find("scatter factor"), std::string::npos) << r.output;
  const json d = json::parse(test::read_text(folder / "m.json"))["loader"];
  EXPECT_EQ(d["token_bytes"], 2);
  EXPECT_GE(d["samples"], 16);
  const double ideal = d["sequence"].get<double>() * 2 / 4096;
  EXPECT_GE(d["extra_pages"].get<double>(), 1.5 - ideal)
      << "a page of tokens and, but where the two meet, one of the index";
  EXPECT_LE(d["extra_pages"].get<double>(), 4 - ideal) << "at most two of each";
  EXPECT_NEAR(d["scatter"].get<double>(), 1 + d["extra_pages"].get<double>() / ideal, 1e-9);
  EXPECT_NEAR(d["needed_iops"].get<double>(), d["transfers"].get<double>() / 0.5, 1e-6);
  EXPECT_GT(d["most_iops"], 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "run")) << "nothing is trained";
}

}  // namespace ingot::machine_test
