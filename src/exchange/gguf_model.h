// Describes a model to llama.cpp: its architecture, its GGUF keys, and its tensors as views of our
// parameters. Sources: llama.cpp's src/models/, gguf-py/gguf/constants.py and convert_hf_to_gguf.py.
// tools/oracle/check_gguf.py runs llama.cpp on the files.
#pragma once
#include <string>
#include <string_view>
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

/// What sets an architecture of llama.cpp apart from the others.
struct GgufArchitecture {
  std::string_view name;
  bool attention_bias = false, mlp_bias = false;  ///< it reads such biases
  bool llama3_rotation = false;                   ///< it reads divisors of the rotation's frequencies
  bool rotates_neighbours = false;                ///< channels 2 i and 2 i + 1, not i and i + half
  bool fixed_head_width = false;                  ///< the model's width by its heads
  bool fused = false;                             ///< q, k and v are one tensor, gate and up another
  bool ties = true;                               ///< a file without a head takes the embedding
  int64_t sliding_period = 0;  ///< some layers slide; every so many sees all, unless the file lists them
};

/// llama.cpp's architecture of a model's family. Throws Error for a family without one, and for an option
/// that llama.cpp would compute differently.
const GgufArchitecture& gguf_architecture(const ModelConfig& model);

/// Adds sizes, norms, rotation and experts under the keys of that architecture.
void add_gguf_model_keys(GgufWriter& writer, const ModelConfig& model, const GgufArchitecture& architecture);

/// All tensors, in the order of the file.
std::vector<GgufTensor> gguf_tensors(const Decoder& decoder, const GgufArchitecture& architecture);

}  // namespace ingot
