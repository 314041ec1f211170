// How our parameters appear in Hugging Face checkpoints: names, shapes and element order, for the families gpt2, llama,
// mistral, qwen3 (dense and moe), smollm3 and zaya. One table per model serves import, export and the comparison with reference gradients;
// the conversion is a strided copy, so both directions are exact.
#pragma once
#include <string>
#include <vector>

#include "models/decoder.h"

namespace ingot {

/// One external tensor: element (i, j, k) of it is element `offset + i stride[0] + j stride[1] + k stride[2]` of the
/// parameter. parameter -1: the selection bias of MoE layer `layer` (a buffer, not trained).
struct ExternalTensor {
  std::string name;
  Shape shape;
  int parameter = -1;
  int64_t layer = -1;
  int64_t offset = 0;
  std::vector<int64_t> stride;
};

/// All tensors of the model's family, covering every parameter exactly once. Error for a model that no family describes.
std::vector<ExternalTensor> huggingface_tensors(const Decoder& decoder);

/// Copies between a parameter (whole, unsharded) and its external tensor; floating types are converted as they are.
void copy_from_external(const ExternalTensor& e, const Tensor& external, const Tensor& parameter);
void copy_to_external(const ExternalTensor& e, const Tensor& parameter, const Tensor& external);

/// The model that a Hugging Face config.json (its text) describes; Error that names the field for anything we would
/// compute differently.
ModelConfig model_from_huggingface(const std::string& config_json, const std::string& path);

}  // namespace ingot
