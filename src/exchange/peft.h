// Adapters in the layout of PEFT, without the base model: adapter_config.json and adapter_model.safetensors. A packed
// matrix of ours is several modules there (q_proj, k_proj, v_proj), each with the pair of its block of rows, so both ways
// are exact. docs/exchange.md.
#pragma once
#include <string>

#include "exchange/export.h"

namespace ingot {

/// What an adapter_config.json says; `path` names it in errors. Error for a variant that would be computed differently.
LoraConfig lora_from_peft(const std::string& adapter_config, const std::string& path);

/// Writes the model's adapters to the new folder `out`, in f32. Error for a model without adapters, and for one whose
/// matrices PEFT's modules do not divide as ours (gpt2).
ExportReport export_peft(FileSystem& fs, const StoredModel& model, const std::string& out);

/// A base model and a folder of PEFT's adapters become a model with adapters, in the new folder `out`; returns its
/// checkpoint's path. A block that has no pair there (k_proj beside q_proj) gets zeros, and keeps them in training. Error for
/// a variant that would be computed differently (DoRA, rsLoRA, biases, ranks or alphas by module, other kinds than LoRA), for
/// modules the model does not have, and for missing, unexpected or misshapen tensors.
std::string import_peft(FileSystem& fs, const std::string& adapters, const std::string& base,
                        const std::string& out);

}  // namespace ingot
