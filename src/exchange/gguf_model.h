// Describes a model to llama.cpp: the name of its architecture, its GGUF keys, and its tensors as views of
// our parameters. Sources: llama.cpp's src/models/, gguf-py/gguf/constants.py and convert_hf_to_gguf.py.
// tools/oracle/check_gguf.py runs llama.cpp on the files.
#pragma once
#include <string>
#include <vector>

#include "exchange/gguf.h"
#include "models/huggingface.h"

namespace ingot {

/// One tensor of the file: `values` if there are any, else the elements of `parts` one after the other.
struct GgufTensor {
  std::string name;
  Shape shape;
  std::vector<ExternalTensor> parts;
  std::vector<float> values;
  bool exact = false;  ///< always F32: vectors, position tables and routers
};

/// The architecture: gpt2, llama, qwen3, qwen3moe, smollm3, dots1 or deepseek2. Throws Error for another
/// family, and for an option that llama.cpp would compute differently.
std::string gguf_architecture(const ModelConfig& model);

/// Adds sizes, norms, rotation and experts under the keys of that architecture.
void add_gguf_model_keys(GgufWriter& writer, const ModelConfig& model, const std::string& architecture);

/// All tensors, in the order of the file.
std::vector<GgufTensor> gguf_tensors(const Decoder& decoder, const std::string& architecture);

}  // namespace ingot
