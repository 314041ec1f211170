// Describes a model to llama.cpp: the name of its architecture, its GGUF keys, and its tensors as views of
// our parameters. Sources: llama.cpp's src/models/, gguf-py/gguf/constants.py and convert_hf_to_gguf.py.
// tools/oracle/check_gguf.py runs llama.cpp on the files.
#pragma once
#include <string>
#include <vector>

#include "exchange/gguf.h"
#include "models/huggingface.h"

namespace ingot {

/// One tensor of the file: `values` if there are any, else the elements of `parts` one after the other,
/// each plus `offset`.
struct GgufTensor {
  std::string name;
  Shape shape;
  std::vector<ExternalTensor> parts;
  std::vector<float> values;
  bool exact = false;  ///< always F32: vectors, position tables and routers
  float offset = 0;
};

/// llama.cpp's architecture of a model's family. Throws Error for a family without one, and for an option
/// that llama.cpp would compute differently.
std::string gguf_architecture(const ModelConfig& model);

/// Adds sizes, norms, rotation and experts under the keys of that architecture.
void add_gguf_model_keys(GgufWriter& writer, const ModelConfig& model, const std::string& architecture);

/// All tensors, in the order of the file.
std::vector<GgufTensor> gguf_tensors(const Decoder& decoder, const std::string& architecture);

}  // namespace ingot
