// `ingot bench decode`: what it prints follows from its trials, what a token reads, and every flag.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "measure/decode_bench.h"
#include "models/presets.h"
#include "nn/config.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::decode_bench_runs_test {

using nlohmann::json;

TEST(DecodeBench, SharesAndRatesFollowFromTheTrials) {
  DecodeBenchReport r;
  r.options.prompt = 100;
  r.prefill_flops = 1e9, r.bytes_per_token = 1000;
  r.trials = {
      {.peak_gflops = 10, .read_bytes = 8000, .prefill_seconds = 0.5, .token_seconds = {0.5, 0.25, 1}},
      {.peak_gflops = 20, .read_bytes = 4000, .prefill_seconds = 0.25, .token_seconds = {0.5, 0.5, 9}}};
  EXPECT_DOUBLE_EQ(r.prefill_tokens().median, 300);  // 200, 400
  EXPECT_DOUBLE_EQ(r.prefill_share().median, 0.2);   // 2 of 10, 4 of 20
  EXPECT_DOUBLE_EQ(r.decode_tokens().median, 2);
  EXPECT_DOUBLE_EQ(r.decode_share().median, 0.375);  // 2000 of 8000 and of 4000
}

TEST(DecodeBench, ATokenReadsTheHeadAndItsExperts) {
  ModelConfig m = model_preset("zaya-tiny");
  m.vocab = 50, m.layers = 1;
  const PackedModel packed(m, WeightForm::f32, 1);
  const ParameterTable& table = packed.model().weights().table();
  int64_t all = 0, idle = 0;
  for (int i = 0; i < table.size(); ++i) {
    all += table[i].shape.numel() * 4;
    if (table[i].role == ParamRole::expert)
      idle += table[i].shape.numel() * 4 / m.moe.experts * (m.moe.experts - m.moe.top_k);
  }
  EXPECT_GE(packed.bytes(), all);  // panels are filled up to whole vectors
  EXPECT_LE(packed.bytes(), all * 2);
  EXPECT_GE(packed.bytes_per_token(), all - idle);
  EXPECT_LT(packed.bytes_per_token(), packed.bytes() - idle / 2);
}

TEST(DecodeBench, FlopsOfAPromptCountUnmaskedPairs) {
  ModelConfig m = model_preset("gpt2");
  m.layers = 2;
  const Decoder d(m);
  const auto body = static_cast<double>(count_parameters(d).active_without_embedding);
  const double head = 2.0 * static_cast<double>(m.vocab) * 768;
  EXPECT_DOUBLE_EQ(prefill_flops(d, 1), 2 * body + head + 2.0 * 2 * 2 * 768);
  EXPECT_DOUBLE_EQ(prefill_flops(d, 3), 6 * body + head + 2.0 * 6 * 2 * 2 * 768);
}

test::ProcessResult bench(std::vector<std::string> arguments) {
  std::vector<std::string> command{INGOT_BINARY,       "bench",      "decode",  "zaya-tiny", "--vocab=31",
                                   "--model.layers=2", "--prompt=5", "--new=3", "--trials=2"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return test::run_process(command);
}

TEST(BenchDecode, PrintsRatesAndWritesJson) {
  const test::TempDir folder;
  for (const char* weights : {"f32", "bf16", "int8"}) {
    const auto r = bench({"--weights", weights, "--json", folder / "decode.json"});
    ASSERT_EQ(r.exit_code, 0) << r.output;
    for (const char* text :
         {"tokens/s", "% of P", "% of B", "medians of 2 trials", "grouped_linear", "outside of ops"})
      EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
    const json all = json::parse(test::read_text(folder / "decode.json"));
    EXPECT_EQ(all["format"], 1);
    EXPECT_EQ(all["preset"], "zaya-tiny");
    EXPECT_EQ(all["weights"], weights);
    EXPECT_EQ(all["prompt"], 5);
    EXPECT_EQ(all["new"], 3);
    for (const char* key :
         {"threads", "prefill_tokens_per_s", "prefill_of_peak", "decode_tokens_per_s", "bytes_per_token",
          "read_bytes_per_s", "decode_of_read", "peak_gflops", "resident_bytes"})
      EXPECT_GT(all[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(bench({"--quiet"}).output.find("grouped_linear"), std::string::npos);
}

TEST(BenchDecode, ManySequencesAtATime) {
  const test::TempDir folder;
  const auto r = bench({"--batch=1,3", "--json", folder / "batches.json"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  for (const char* text :
       {"prompts/s", "samples", "a pass of 1 sequence ", "a pass of 3 sequences", "grouped_linear"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  const json all = json::parse(test::read_text(folder / "batches.json"));
  ASSERT_EQ(all["batches"].size(), 2U);
  for (const json& batch : all["batches"]) {
    for (const char* key :
         {"sequences", "prefill_tokens_per_s", "decode_tokens_per_s", "decode_of_prefill",
          "attention_bytes_per_s", "attention_of_read", "samples_of_prefill", "resident_bytes"})
      EXPECT_GT(batch[key].get<double>(), 0) << key;
  }
  EXPECT_EQ(all["batches"][1]["sequences"], 3);
  EXPECT_EQ(bench({"--batch=2", "--quiet"}).output.find("grouped_linear"), std::string::npos);
}

TEST(BenchDecode, RefusesWhatItCannotDo) {
  const auto r = bench({"--weights=int4"});
  EXPECT_NE(r.exit_code, 0);
  EXPECT_NE(r.output.find("f32, bf16, int8"), std::string::npos) << r.output;
  EXPECT_NE(bench({"--new=0"}).exit_code, 0);
}

}  // namespace ingot::decode_bench_runs_test
