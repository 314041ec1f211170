// A run of post-training as the report reads it: three phases with tasks, the last of kind rl.
#pragma once
#include <fmt/core.h>

#include "report/report.h"

namespace ingot::test {

inline ReasonResult reason_result(const std::string& problems, const std::string& name, double right) {
  ReasonResult r{.name = name, .problems = problems, .count = 200};
  r.population = 16, r.candidates = 4, r.budget = 128, r.tail = 32, r.prompt_bound = 200;
  for (int t = 0; t < 3; ++t) {
    ReasonRound& round = r.rounds.emplace_back();
    round.right = right + 0.05 * t, round.majority = round.right + 0.1, round.any = 0.9;
    round.right_error = 0.015, round.majority_error = 0.02;
    if (t > 0) round.picked = 0.7;
    round.tokens = 640.0 * (t + 1), round.longest_prompt = t == 0 ? 40 : 180;
  }
  return r;
}

inline ReportData post_run() {
  ReportData data;
  data.record = RunRecord::of_this_machine("reasoner", 1.8e9);
  data.record.set("plan", "steps", int64_t{60});
  data.record.set_config(
      parse_toml("[[phases]]\nname = \"pretrain\"\nsteps = 20\n[[phases]]\nname = \"sft\"\nsteps = 20\n"
                 "[[phases]]\nname = \"reason <rl>\"\nsteps = 20\n",
                 "t"));
  for (int64_t step = 1; step <= 60; ++step) {
    MetricRow& row = data.rows.emplace_back();
    row.step = step, row.wall = 1.8e9 + static_cast<double>(step);
    row.set("loss", 3.0 / static_cast<double>(step));
    row.set("step_seconds", 1.0);
    if (step > 40) {
      const double t = static_cast<double>(step - 40) / 20;
      row.set("rl/reward", 0.3 + 0.4 * t);
      for (const char* name : {"sort", "chain", "a_rather_long_name_of_an_environment"}) {
        row.set(fmt::format("rl/reward/{}", name), 0.2 + 0.5 * t);
        row.set(fmt::format("rl/difficulty/{}", name), 3 + std::floor(4 * t));
      }
      row.set("rl/length", 60 - 20 * t), row.set("rl/length/p90", 90 - 20 * t);
      row.set("rl/entropy", 0.5 - 0.2 * t), row.set("rl/signal", 0.6), row.set("rl/kl", 0.0);
      row.set("rl/aggregation/picked", 0.5 + 0.3 * t), row.set("rl/aggregation/right", 0.4);
      row.set("rl/compared", 1000.0), row.set("rl/unequal", 0.0), row.set("rl/fill", 0.95);
      row.set("rl/truncated", 0.02);
    }
    const auto task = [&](const char* name, double value, double error) {
      row.set(fmt::format("task/{}/reward", name), value);
      row.set(fmt::format("task/{}/reward_stderr", name), error);
    };
    if (step == 20) task("sort@3-8", 0.1, 0.01), task("chain@2-8", 0.02, 0.005);
    if (step == 40) task("sort@3-8", 0.35, 0.02), task("chain@2-8", 0.3, 0.02);
    if (step == 50) task("sort@3-8", 0.61, 0.025);
    if (step == 60) task("sort@3-8", 0.625, 0.025), task("chain@2-8", 0.8, 0.02);
  }
  for (const char* name : {"single checkpoint before aggregation", "trained"})
    data.reasoning.push_back(reason_result("sort:6-8", name, 0.4));
  return data;
}

}  // namespace ingot::test
