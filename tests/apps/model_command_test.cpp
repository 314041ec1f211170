// `ingot model`: counts, cache and sparsity of a preset with fields changed, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::model_command_test {

using nlohmann::json;

json counts(const std::vector<std::string>& more) {
  std::vector<std::string> words = {INGOT_BINARY, "model", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  const ProcessResult r = run_process(words);
  EXPECT_EQ(r.exit_code, 0) << r.output;
  return json::parse(r.output, nullptr, false);
}

TEST(ModelCommand, CountsAPresetWithFieldsChanged) {
  EXPECT_EQ(counts({"llama-3.2-1b"})["parameters"], 1235814400);
  const json more = counts({"llama-3.2-1b", "--model.kv_heads=32", "--model.layers=14"});
  EXPECT_EQ(more["parameters"], 1202251776) << "the playbook's table of attention heads";
  EXPECT_EQ(more["embedding"].get<int64_t>() + more["without_embedding"].get<int64_t>(), 1202251776);
  int64_t parts = 0;
  for (const auto& part : more["parts"]) parts += part.get<int64_t>();
  EXPECT_EQ(parts, 1202251776);
  const json untied = counts({"llama-3.2-1b", "--model.tied=false"});
  EXPECT_EQ(untied["embedding"], 2 * 128256 * 2048);
}

/// 2 bytes of key and value of each of its key-value heads, of the layers that attend.
TEST(ModelCommand, TheCacheIsOfTheLayersThatHaveOne) {
  const json dense = counts({"llama3-8b", "--tokens=8192", "--model.kv_heads=32"});
  EXPECT_EQ(dense["cache_bytes"], int64_t{4} << 30) << "Llama-3-8B with MHA at 8,192 tokens";
  EXPECT_EQ(counts({"llama3-8b", "--context=1000"})["tokens"], 1000) << "where --tokens is not given";
  const json some = counts({"modded-nanogpt", "--tokens=100"});  // its eighth layer does not attend
  EXPECT_EQ(some["cache_layers"], 11);
  EXPECT_EQ(some["cache_bytes"], 100 * 11 * 2 * 2 * 6 * 128);
  EXPECT_EQ(counts({"deepseek-v3", "--tokens=1"})["cache_bytes"], 70272) << "latent and rotated key";
  const json zaya = counts({"zaya1-8b", "--tokens=10"});
  EXPECT_EQ(zaya["cache_bytes"].get<int64_t>(), 10 * zaya["cache_bytes_per_token_bf16"].get<int64_t>() +
                                                    zaya["cache_bytes_per_sequence_fp32"].get<int64_t>());
}

TEST(ModelCommand, SparsityCountsExperts) {
  const json v3 = counts({"deepseek-v3"});
  EXPECT_EQ(v3["experts"], 257);
  EXPECT_EQ(v3["experts_per_token"], 9);
  EXPECT_NEAR(v3["sparsity"].get<double>(), 28.6, 0.05);
  EXPECT_EQ(v3["granularity"], 7);
  EXPECT_NEAR(counts({"deepseek-v3", "--model.moe.experts=384"})["sparsity"].get<double>(), 42.8, 0.05);
  EXPECT_FALSE(counts({"llama3-8b"}).contains("sparsity"));
}

TEST(ModelCommand, RefusesWhatIsNoFieldOfAModel) {
  const auto refused = [](const std::vector<std::string>& more, int code, const char* part) {
    std::vector<std::string> words = {INGOT_BINARY, "model"};
    words.insert(words.end(), more.begin(), more.end());
    const ProcessResult r = run_process(words);
    EXPECT_EQ(r.exit_code, code) << r.output;
    EXPECT_NE(r.output.find(part), std::string::npos) << part << "\n" << r.output;
  };
  refused({"llama3-8b", "--run.precision=bf16"}, 2, "--run.precision=bf16");
  refused({"llama3-8b", "--model.preset=gpt2"}, 2, "named twice");
  refused({"--model.layers=2"}, 2, "none is named");
  refused({"llama3-8b", "--model.kv_heads=5"}, 1, "must be a multiple of kv_heads = 5");
  refused({"llama3-8b", "--model.layer=5"}, 1, "layers");
  refused({"llama3-8b", "--tokens=-1"}, 2, "--tokens");
  refused({"gpt-oss-20b"}, 1, "sinks");
}

}  // namespace ingot::test::model_command_test
