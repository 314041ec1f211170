// `ingot bench device` on emulated kernels and on a driver that is faked: every part has its rows, shares
// follow from the times, and what is no GPU says so.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "measure/device_bench.h"
#include "support/fake_cuda.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::device_bench_emulated_test {

using nlohmann::json;

ProcessResult bench(std::vector<std::string> arguments, const std::vector<std::string>& environment) {
  std::vector<std::string> command{INGOT_BINARY, "bench",      "device",
                                   "--small",    "--trials=2", "--seconds=1e-6"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command, environment);
}

bool has(const ProcessResult& r, const std::string& part) {
  return r.output.find(part) != r.output.npos;
}

TEST(DeviceBench, MeasuresEveryPartOnEmulatedKernels) {
  const TempDir folder;
  const ProcessResult r =
      bench({"--device=sim", "--json", folder / "device.json"}, {"INGOT_EMULATE=1,wgmma"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text :
       {"these times and rates mean nothing", "grouped: at least ", "70 % are demanded",
        "35 % of cuDNN are demanded, which is not measured here", "cuda_mma", "peer: none: cuBLASLt"})
    EXPECT_TRUE(has(r, text)) << text << "\n" << r.output;
  EXPECT_FALSE(has(r, ": met") || has(r, ": missed")) << r.output;
  const json all = json::parse(read_text(folder / "device.json"));
  EXPECT_EQ(all["format"], 1);
  EXPECT_FALSE(all["is_real"]);
  EXPECT_TRUE(all["left_out"].empty()) << all["left_out"];
  std::set<std::string> parts;
  for (const json& row : all["rows"]) {
    const std::string part = row["part"];
    parts.insert(part);
    EXPECT_GT(row["seconds"]["least"], 0) << row;
    EXPECT_TRUE(part == "copies" || row["kernel"] == "cuda" || row["kernel"] == "cuda_mma") << row;
    const bool by_bytes = part == "rows" || part == "update";
    EXPECT_EQ(row.value("limit", ""), by_bytes                                                    ? "B"
                                      : part == "exact" || part == "copies" || part == "launches" ? ""
                                                                                                  : "P");
    EXPECT_GT(row["bytes"].get<double>() + row["flops"].get<double>(), 0);
    const bool is_graph = row["what"].get<std::string>().ends_with("a graph");
    EXPECT_EQ(row.value("peer", ""), part == "grouped" ? "dense" : is_graph ? "one by one" : "");
    EXPECT_EQ(row.value("bits", ""), is_graph ? "same" : "");
    if (part == "grouped") {
      EXPECT_GE(row["share_of_peer"]["median"].get<double>(),
                row["peer_seconds"]["least"].get<double>() / row["seconds"]["most"].get<double>());
      EXPECT_EQ(row["bar"], 0.70);
    }
  }
  EXPECT_EQ(parts.size(), std::size(kEveryDevicePart));
}

TEST(DeviceBench, TakesTheCpusKernelsOnSimWithoutEmulation) {
  const ProcessResult r =
      bench({"--device=sim", "--parts=update,rows,copies", "--json"}, {"INGOT_SIM=async,3"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const json all = json::parse(r.output);
  for (const json& row : all["rows"]) {
    EXPECT_NE(row["part"], "products");
    EXPECT_EQ(row["kernel"], row["part"] == "copies" ? "" : "cpu") << row;
  }
}

TEST(DeviceBench, ComparesWithCublasLt) {
  const std::string faked = std::string("INGOT_CUDA_LIBRARY=") + kFakeCuda;
  const ProcessResult r = bench({"--parts=products,copies,launches", "--json"},
                                {faked, std::string("INGOT_CUBLASLT_LIBRARY=") + kFakeCublasLt});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  const json all = json::parse(r.output);
  EXPECT_EQ(all["device"], "a faked GPU, sm_90, driver of CUDA 13.0");
  EXPECT_FALSE(all["is_real"]);
  EXPECT_EQ(all["peak_of"], "cuBLASLt's product of bf16, 64 x 64 x 64");
  EXPECT_TRUE(all["peer"].get<std::string>().starts_with("cuBLASLt 13.1.0 ('")) << all["peer"];
  std::set<std::string> copies;
  for (const json& row : all["rows"]) {
    if (row["part"] == "copies") copies.insert(row["what"]);
    if (row["part"] != "products" || row["what"] != "linear") continue;
    EXPECT_EQ(row["peer"], "cuBLASLt");
    EXPECT_EQ(row["bar"], 0.90);
    EXPECT_TRUE(row["bits"] == "same" || row["bits"] == "others") << row;
    EXPECT_GT(row["peer_seconds"]["least"], 0);
    const std::string alone = row.value("alone", "");
    EXPECT_TRUE(row["pass"] == "weight gradient" ? alone.empty() : alone == "same" || alone == "others");
  }
  EXPECT_TRUE(copies.contains("pinned host to device") && copies.contains("device to pinned host"));

  const ProcessResult without =
      bench({"--parts=products"}, {faked, "INGOT_CUBLASLT_LIBRARY=libcublasLt-which-nobody-has.so"});
  EXPECT_EQ(without.exit_code, 0) << without.output;
  EXPECT_TRUE(has(without, "peer: none: cuBLASLt: no library: libcublasLt-which-nobody-has.so") &&
              has(without, "our product of bf16, 64 x 64 x 64"))
      << without.output;
}

TEST(DeviceBench, RefusesOtherDevices) {
  const ProcessResult cpu = bench({"--device=cpu"}, {});
  EXPECT_EQ(cpu.exit_code, 1);
  EXPECT_TRUE(has(cpu, "measures kernels of device cuda or sim, not 'cpu'")) << cpu.output;
  const ProcessResult none = bench({}, {"INGOT_CUDA_LIBRARY=libcuda-which-nobody-has.so.1"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_TRUE(has(none, "no driver of an NVIDIA GPU")) << none.output;
  EXPECT_EQ(bench({"--trials=0"}, {}).exit_code, 2);
  EXPECT_EQ(bench({"--parts=everything"}, {}).exit_code, 2);
}

}  // namespace ingot::test::device_bench_emulated_test
