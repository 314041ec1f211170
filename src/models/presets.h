// Named model configurations, from which recipes start.
#pragma once
#include <string>
#include <vector>

#include "nn/config.h"

namespace ingot {

/// Names of all presets.
std::vector<std::string> preset_names();
/// The preset, or an Error with the nearest name; for published models that a ModelConfig cannot say, with
/// the reason.
ModelConfig model_preset(const std::string& name);

}  // namespace ingot
