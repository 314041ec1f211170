// A model in llama.cpp's words: its name of the architecture, the keys that describe it, its tensors as views of ours.
// Sources: llama.cpp's src/models/, gguf-py/gguf/constants.py and convert_hf_to_gguf.py; tested by running it on the files
// (tools/oracle/check_gguf.py).
#pragma once
#include <string>
#include <vector>

#include "exchange/gguf.h"
#include "models/huggingface.h"

namespace ingot {

/// One tensor of the file: `values`, or else the elements of `parts` one after the other.
struct GgufTensor {
  std::string name;
  Shape shape;
  std::vector<ExternalTensor> parts;
  std::vector<float> values;
  bool exact = false;  ///< always F32: vectors, position tables and routers
};

/// gpt2, llama, qwen3, qwen3moe, smollm3, dots1 or deepseek2. Error for a family that llama.cpp does not know here, and for
/// an option that it would compute differently.
std::string gguf_architecture(const ModelConfig& model);

/// Sizes, norms, rotation and experts, under the keys of that architecture.
void add_gguf_model_keys(GgufWriter& writer, const ModelConfig& model, const std::string& architecture);

/// All tensors, in the order of the file.
std::vector<GgufTensor> gguf_tensors(const Decoder& decoder, const std::string& architecture);

}  // namespace ingot
