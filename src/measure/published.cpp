// See published.h.
#include "measure/published.h"

#include <fmt/core.h>

#include <cmath>

#include "report/table.h"

namespace ingot::published {
namespace {

constexpr double kGiB = 1073741824.0, kMiB = 1048576.0;

struct MoeModel {
  const char* name;
  double experts, shared, chosen, width, hidden, sparsity, granularity;
};

/// Total experts over experts of a token, shared ones in both; 2 width / hidden. 0: not printed.
constexpr MoeModel kMoeModels[] = {
    {"Mixtral-8x7B", 8, 0, 2, 4096, 14336, 4.0, 0.571},
    {"Grok-1", 8, 0, 2, 0, 0, 4.0, 0},
    {"Grok-2", 8, 0, 2, 8192, 16384, 4.0, 1.0},
    {"OLMoE-1B-7B", 64, 0, 8, 2048, 1024, 8.0, 4.0},
    {"gpt-oss-20b", 32, 0, 4, 2880, 2880, 8, 2.0},
    {"Step-3", 48, 1, 3, 7168, 5120, 12.25, 2.8},
    {"GLM-4.5-Air", 128, 1, 8, 4096, 1408, 14.3, 5.8},
    {"Qwen3-30B-A3B", 128, 0, 8, 2048, 768, 16, 5.3},
    {"Qwen3-235B-A22B", 128, 0, 8, 4096, 1536, 16, 5.3},
    {"GLM-4.5", 160, 1, 8, 5120, 1536, 17.8, 6.6},
    {"DeepSeek-V2", 160, 2, 6, 5120, 1536, 20.25, 6.6},
    {"DeepSeek-V3", 256, 1, 8, 7168, 2048, 28.6, 7.0},
    {"gpt-oss-120b", 128, 0, 4, 2880, 2880, 32, 2.0},
    {"Kimi K2", 384, 1, 8, 7168, 2048, 42.8, 7.0},
    {"Qwen3-Next-80B-A3B", 512, 1, 10, 2048, 512, 46.6, 8.0},
};

/// Llama-405B with Adam at 8K ([Megatron-MoE], introduction): GB, activations in GiB added to them.
std::vector<Row> llama_405b() {
  constexpr double n = 405, layers = 126, length = 8192, width = 16384, heads = 128;
  const double activations = layers * length * width * (34 + 5 * heads * length / width) / kGiB;
  return {{"Llama-405B weights", "GB", 2 * n, 810, 0.0005},
          {"Llama-405B gradients", "GB", 4 * n, 1620, 0.0005},
          {"Llama-405B optimizer", "GB", 12 * n, 4860, 0.0005},
          {"Llama-405B activations", "GiB", activations, 5575, 0.0005},
          {"Llama-405B total", "GB", 18 * n + activations, 12865, 0.0005}};
}

/// DeepSeek-V3 on 256 devices (Table 3), what its techniques save (Tables 4 and 5, section 3.3): GiB printed
/// as GB.
std::vector<Row> deepseek_v3() {
  constexpr double h = 7168, layers = 16, data = 64, ranks = 64, live = 60;  // layer-micro-batches
  constexpr double attention = h * 1536 + 1536.0 * 128 * 192 + h * 576 + 512.0 * 128 * 256 + 128.0 * 128 * h;
  constexpr double expert = 3 * h * 2048, dense = attention + expert, routed = 256 * expert / ranks;
  constexpr double weights = 6 * (dense + routed) * layers / kGiB,
                   state = 12 * (dense / data + routed) * layers / kGiB;
  // MiB of a layer and micro-batch: input, norm, latents, heads, statistics, router, shared expert, experts.
  constexpr double layer = 56 + 56 + 12 + 12 + 4 + 4 + 192 + 192 + 128 + 128 + 2 + 56 + 56 + 2 + 8 + 32 + 16 +
                           448 + 256 + 128 + 448;
  const auto saved = [](double mib) { return mib * live * kMiB / kGiB; };
  return {{"DeepSeek-V3 weights and gradients", "GiB", weights, 36.4, 0.0015},
          {"DeepSeek-V3 masters and moments", "GiB", state, 32.1, 0.0015},
          {"DeepSeek-V3 activations", "GiB", saved(layer), 131.0, 0.0015},
          {"DeepSeek-V3 total", "GiB", weights + state + saved(layer), 199.5, 0.0015},
          {"saved: memory-efficient permutation", "GiB", saved(448), 26.3, 0.015},
          {"saved: up-projections recomputed", "GiB", saved(512), 30.4, 0.015},
          {"saved: activation function recomputed", "GiB", saved(64), 3.8, 0.015},
          {"saved: norms recomputed", "GiB", saved(140), 8.2, 0.015, true},
          {"saved: the three", "GiB", saved(512 + 64 + 140), 42.4, 0.015},
          {"saved: activations in FP8", "GiB", saved(536) / 2, 16, 0.05, true},
          {"saved: attention recomputed at 64K", "GiB", 128.0 * 16 / 16 * 70 / 1024, 9, 0.05, true},
          {"Table 5, DeepSeek-V3 memory", "ratio", 151.0 / 169, 1 - 0.107, 0.0015},
          {"Table 5, DeepSeek-V3 speed", "ratio", 930.0 / 945, 1 - 0.016, 0.0015},
          {"Table 5, Qwen3-235B memory", "ratio", 175.0 / 172, 1.017, 0.0015},
          {"Table 5, Qwen3-235B speed", "ratio", 920.0 / 800, 1.15, 0.0015},
          {"Table 5, offloaded input of experts, 70 layers live", "GB", 224.0 * 33 / 32 * 70 * kMiB / 1e9, 18,
           0.1, true}};
}

/// ZAYA1's checkpoints, equations 10 to 12.
std::vector<Row> zaya1() {
  constexpr double all = 8.840488784e9, muon = 8.289e9, adamw = all - muon;
  constexpr double state = 4 * (2 * muon + 3 * adamw);
  return {{"ZAYA1 checkpoint with bf16 weights", "GB", (2 * all + state) * 1e-9, 90.61, 0.0005},
          {"ZAYA1 state of a rank, 8 data ranks", "GB", state / 8 * 1e-9, 9.12, 0.0015},
          {"ZAYA1 state of a rank, 1,024 data ranks", "MB", state / 1024 * 1e-6, 71, 0.005}};
}

/// Cache of Llama-3-8B with as many key-value heads as query heads; sparsity and granularity.
std::vector<Row> playbook() {
  std::vector<Row> rows = {{"Llama-3-8B with 32 key-value heads, cache of 8,192 tokens", "GiB",
                            2.0 * 2 * 32 * 4096 * 8192 / kGiB, 4, 1e-12}};
  for (const MoeModel& m : kMoeModels) {
    rows.push_back({fmt::format("{} sparsity", m.name), "", (m.experts + m.shared) / (m.chosen + m.shared),
                    m.sparsity, 0.0055});
    if (m.granularity > 0)
      rows.push_back({fmt::format("{} granularity", m.name), "", 2 * m.width / m.hidden, m.granularity,
                      0.0105});  // printed with one decimal, cut off
  }
  return rows;
}

/// What SmolLM3 took ([Playbook]): devices for 11T tokens in 28 days at 30 % of 720 TFLOP/s, its ledger of
/// devices and days, and Amdahl's ceiling where a tenth of the work does not divide.
std::vector<Row> smollm3() {
  constexpr double flops = 6 * 3e9 * 11e12, reached = 0.3 * 720e12, seconds = 28 * 86400;
  struct Entry {
    double devices, days;
  };
  constexpr Entry kMain{384, 30}, kAblations{192, 15}, kMidTraining{192, 10}, kRestart{384, 3},
      kDebugging{192, 4};
  double hours = 0;
  for (const Entry& e : {kMain, kAblations, kMidTraining, kRestart, kDebugging})
    hours += 24 * e.devices * e.days;
  constexpr double main_hours = 24 * kMain.devices * kMain.days, serial = 0.1;
  return {{"SmolLM3 in 28 days", "devices", std::ceil(flops / reached / seconds), 379, 1e-12},
          {"SmolLM3 ledger", "device hours", hours, 437760, 1e-12},
          {"SmolLM3 ledger beside its main run", "%", 100 * (hours / main_hours - 1), 58, 0.006},
          {"speed-up of any number of devices, a tenth serial", "", 1 / serial, 10, 1e-12}};
}

}  // namespace

std::vector<Row> all() {
  std::vector<Row> rows;
  for (const auto& part : {llama_405b(), deepseek_v3(), zaya1(), playbook(), smollm3()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

std::string to_text(const std::vector<Row>& rows) {
  Table table({words("quantity"), words("unit"), number("formula", 3), number("printed", 3),
               number("off by", 2, 100), words("%  ")});
  for (const Row& r : rows)
    table.add({r.what, r.unit, r.formula, r.printed, r.residual(), r.inferred ? "composition inferred" : ""});
  return table.text();
}

}  // namespace ingot::published
