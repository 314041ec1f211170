// How our parameters appear in Hugging Face checkpoints: names, shapes and element order, and config.json,
// for the families below. One table per model serves import, export and the comparison with reference
// gradients; the conversion is a strided copy, so both directions are exact.
#pragma once
#include <string>
#include <vector>

#include "models/decoder.h"

namespace ingot {

/// `model_type` of every family, in the order of the alphabet.
const std::vector<std::string>& huggingface_families();
/// "families: gpt2, llama, ...": the hint of messages.
std::string huggingface_families_hint();

/// A family, and the choice between its published layouts where it has two.
struct HuggingfaceLayout {
  std::string family;
  bool gpt2_prefix =
      true;  ///< "transformer.h.0.ln_1.weight"; the first published files have "h.0.ln_1.weight"
  bool zaya_sublayers = false;  ///< ZAYA1-base and "-legacy": two sublayers per layer, experts one by one
};

/// The family whose tensors a model has; Error that names the options which stand in the way where there is
/// none. What only a config can tell apart (a rotation that a family cannot have) is for huggingface_config()
/// to refuse.
HuggingfaceLayout huggingface_layout(const ModelConfig& model);

/// One external tensor: element (i, j, k) of it is element `offset + i stride[0] + j stride[1] + k stride[2]`
/// of the parameter. parameter -1: the selection bias of MoE layer `layer` (a buffer, not trained).
struct ExternalTensor {
  std::string name;
  Shape shape;
  int parameter = -1;
  int64_t layer = -1;
  int64_t offset = 0;
  std::vector<int64_t> stride;
};

/// All tensors of a layout. Error that names the parameters which have none, or for a model of no family.
std::vector<ExternalTensor> huggingface_tensors(const Decoder& decoder, const HuggingfaceLayout& layout);
std::vector<ExternalTensor> huggingface_tensors(const Decoder& decoder);

/// Moves elements between an external tensor (dense bytes, any alignment) and its parameter, bit for bit:
/// runs of contiguous elements at once, transposed ones in blocks. `parameter` holds elements [first, ...) of
/// the whole parameter.
void scatter_external(const ExternalTensor& e, const void* external, void* parameter, int64_t first,
                      int64_t element_bytes);
void gather_external(const ExternalTensor& e, void* external, const void* parameter, int64_t first,
                     int64_t element_bytes);

/// The same between whole tensors; floating types that differ are converted with one rounding.
void copy_from_external(const ExternalTensor& e, const Tensor& external, const Tensor& parameter);
void copy_to_external(const ExternalTensor& e, const Tensor& parameter, const Tensor& external);

/// The model that a config.json (its text) describes, in either dialect, with the family's own defaults.
/// Error that names file and field for anything we would compute differently, for fields that the family is
/// not known to have, for another model_type, for absurd sizes. `zaya_sublayers`: how many sublayers the
/// checkpoint's names count, 0 where they are not of that layout (configs of that layout count either way).
ModelConfig model_from_huggingface(const std::string& config_json, const std::string& path,
                                   int64_t zaya_sublayers = 0);

/// What config.json says beside the architecture.
struct HuggingfaceNotes {
  DType dtype = DType::f32;
  int64_t bos = -1, eos = -1, pad = -1;  ///< token ids; -1: none
  /// config.json that the model came with, whose other fields are kept. May be empty.
  std::string original;
};

/// config.json of a model in both dialects. It is read back as the family reads it and compared: Error that
/// lists every option which the family cannot express.
std::string huggingface_config(const ModelConfig& model, const HuggingfaceLayout& layout,
                               const HuggingfaceNotes& notes);

/// What would make two models compute differently, as lines "field: left, right"; initialisation and losses
/// do not count.
std::vector<std::string> architecture_differences(const ModelConfig& left, const ModelConfig& right);

}  // namespace ingot
