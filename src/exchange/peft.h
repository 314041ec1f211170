// Imports and exports adapters in the layout of PEFT, without the base model: adapter_config.json and
// adapter_model.safetensors. What is one matrix here (qkv) is several modules there (q_proj, k_proj, v_proj),
// each with the adapter of its block of rows, so both directions are exact. See docs/exchange.md.
#pragma once
#include <string>

#include "exchange/export.h"

namespace ingot {

/// Parses an adapter_config.json; `path` is for messages. Throws Error for a variant that would be computed
/// differently.
LoraConfig lora_from_peft(const std::string& adapter_config, const std::string& path);

/// Writes the model's adapters to the new folder `out`, in f32. Throws Error for a model without adapters,
/// and for one whose matrices PEFT divides into other modules (gpt2).
ExportReport export_peft(FileSystem& fs, const StoredModel& model, const std::string& out);

/// Writes a base model with the adapters of a PEFT folder to the new folder `out`, and returns the
/// checkpoint's path. The adapter of a block that has none there (k_proj beside q_proj) is zero, and stays
/// zero in training. Throws Error for a variant that would be computed differently (DoRA, rsLoRA, biases,
/// ranks or alphas by module, kinds other than LoRA), for modules that the model does not have, and for
/// missing, unexpected or misshapen tensors.
std::string import_peft(FileSystem& fs, const std::string& adapters, const std::string& base,
                        const std::string& out);

}  // namespace ingot
