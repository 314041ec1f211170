// The numbers of a plan as JSON. See preflight.h.
#include <nlohmann/json.hpp>

#include "train/preflight.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

Json level_json(const LevelPlan& level) {
  Json categories = Json::object();
  for (const auto& [name, bytes] : level.micro.categories)
    if (bytes > 0) categories[name] = bytes;
  return {{"batch", level.batch},
          {"micro_batch", level.micro_batch},
          {"steps", level.steps},
          {"step_flops", level.step_flops},
          {"roofline_seconds", level.roofline_seconds},
          {"activation_peak_bytes", level.micro.peak_bytes},
          {"activation_bytes_at_peak", std::move(categories)}};
}

Json phase_json(const PhasePlan& phase) {
  Json levels = Json::array();
  for (const LevelPlan& level : phase.levels) levels.push_back(level_json(level));
  return {{"name", phase.name}, {"tokens", phase.tokens}, {"levels", std::move(levels)}};
}

}  // namespace

std::string to_json(const Preflight& plan) {
  Json phases = Json::array();
  for (const PhasePlan& phase : plan.phases) phases.push_back(phase_json(phase));
  Json memory{{"total_bytes", plan.total_bytes()},
              {"process_bytes", plan.process_bytes},
              {"predicted_bytes", plan.predicted_bytes},
              {"weight_bytes", plan.weight_bytes},
              {"gradient_bytes", plan.gradient_bytes},
              {"transient_bytes", plan.transient_bytes},
              {"optimizer_bytes", plan.optimizer_bytes},
              {"scratch_bytes", plan.scratch_bytes},
              {"checkpoint_copy_bytes", plan.snapshot_bytes},
              {"sampling_bytes", plan.source_bytes},
              {"evaluation_task_bytes", plan.task_bytes},
              {"mapped_token_bytes", plan.data_bytes}};
  if (plan.gpu)
    memory["gpu"] = {{"needed_bytes", plan.gpu->needed()},
                     {"weight_bytes", plan.gpu->weights},
                     {"gradient_bytes", plan.gpu->gradients},
                     {"optimizer_bytes", plan.gpu->optimizer},
                     {"rounded_bytes", plan.gpu->rounded},
                     {"scratch_bytes", plan.gpu->scratch},
                     {"activation_bytes", plan.gpu->activations},
                     {"free_bytes", plan.gpu->free},
                     {"all_bytes", plan.gpu->all}};
  return Json{{"tokens", plan.tokens},
              {"roofline_seconds", plan.roofline_seconds},
              {"last_validation_seconds", plan.validation_seconds},
              {"machine_gflops", plan.peak_gflops},
              {"machine_read_gbs", plan.read_gbs},
              {"memory", memory},
              {"checkpoint_bytes", plan.snapshot_bytes},
              {"recompute", plan.recompute},
              {"offload", plan.offload},
              {"fp8", plan.fp8},
              {"fits", plan.shortfall.empty()},
              {"shortfall", plan.shortfall},
              {"remedy", plan.remedy},
              {"missing", plan.missing},
              {"warnings", plan.warnings},
              {"phases", phases}}
      .dump(2);
}

}  // namespace ingot
