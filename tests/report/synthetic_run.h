// A run as the report reads it, with every kind of metric: what the tests of the page draw.
#pragma once
#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/philox.h"
#include "report/report.h"

namespace ingot::test {

inline MetricRow synthetic_row(int64_t step, int64_t steps) {
  const Random random(5, RandomPurpose::test, static_cast<uint64_t>(step));
  uint64_t at = 0;
  const auto noise = [&] { return random.normal(at++); };
  const double t = static_cast<double>(step) / static_cast<double>(steps);
  MetricRow row;
  row.step = step;
  row.wall = 1.8e9 + 0.12 * static_cast<double>(step);
  row.set("loss", 1.9 + 6.1 * std::exp(-t * 14) + 0.9 * std::exp(-t * 2) + 0.06 * noise());
  row.set("lr", 0.003 * std::min(1.0, t / 0.05) * (t < 0.8 ? 1 : (1 - t) / 0.2));
  row.set("grad_norm", 0.5 + 3 * std::exp(-t * 20) + 0.08 * std::abs(noise()) + (step == 1200 ? 4 : 0));
  row.set("tokens", 8192.0 * static_cast<double>(step));
  row.set("tokens_per_second", 42000 + 900 * noise());
  row.set("percent_of_roofline", 46 + noise());
  row.set("step_seconds", 0.195);
  for (int layer = 0; layer < 4; ++layer) {
    std::vector<double> load(16);
    double sum = 0, entropy = 0;
    for (int expert = 0; expert < 16; ++expert) {
      const double skew = std::sin(expert * 2.4 + layer) * 1.6 * std::exp(-t * 9) + 0.07 * noise();
      sum += load[static_cast<size_t>(expert)] = std::exp(skew);
    }
    for (double& value : load) value /= sum, entropy -= value * std::log(value) / std::log(16.0);
    row.set(fmt::format("router/{}/load", layer), load);
    row.set(fmt::format("router/{}/entropy", layer), entropy);
  }
  const std::pair<const char*, double> times[] = {
      {"grouped linear", 0.071}, {"linear", 0.042}, {"attention", 0.028},
      {"head", 0.021},           {"muon", 0.014},   {"cca", 0.009},
      {"rms norm", 0.004},       {"router", 0.003}, {"adamw", 0.002}};
  for (const auto& [name, seconds] : times) row.set(std::string("time/") + name, seconds);
  if (step % 200 == 0) {
    for (const auto& [source, offset] : {std::pair{"fiction", 0.0}, std::pair{"manuals", -0.35}}) {
      const double loss = 2.02 + offset + 5.5 * std::exp(-t * 13) + 0.8 * std::exp(-t * 2);
      row.set(fmt::format("val/{}/loss", source), loss);
      row.set(fmt::format("val/{}/bits_per_byte", source), loss / std::log(2.0) / 3.9 * 1.6);
      row.set(fmt::format("val/{}/tokens", source), step == steps ? 21328.0 : 16384.0);
    }
    if (step % 500 == 0 || step == steps) {
      row.set("checkpoint/seconds", 0.084);
    }
  }
  return row;
}

inline ReportData synthetic_run(int64_t steps) {
  ReportData data;
  data.record = RunRecord::of_this_machine("quickstart", 1.8e9);
  data.record.set("run", "status", "finished");
  data.record.set("model", "preset", "zaya1-small");
  data.record.set("model", "parameters", int64_t{17731584});
  data.record.set("plan", "steps", steps);
  data.record.set("model", "active parameters", int64_t{4218880});
  data.record.set("model", "weights_bytes", int64_t{70926336});
  data.record.set("model", "layers", int64_t{8});
  data.record.set_config(parse_toml("seed = 1\nname = \"quickstart\"\n[optimizer]\nlr = 0.003\n", "t"));
  for (int64_t step = 1; step <= steps; ++step) data.rows.push_back(synthetic_row(step, steps));
  for (int64_t step : {200, 1000, 1500, 2000})
    data.samples.push_back(
        {step, "The old man", " went down to the harbour, where the boats lay\nquiet in the rain."});
  return data;
}

}  // namespace ingot::test
