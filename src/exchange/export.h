// Exports checkpoints for other programs: a folder in Hugging Face's layout, or a GGUF file for llama.cpp.
// Tensors are streamed, so an export takes the memory of the largest one; its output is complete or absent.
// See docs/exchange.md.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "exchange/stored_model.h"

namespace ingot {

struct ExportReport {
  std::string family;
  std::vector<std::string> files;  ///< names of weight files
  size_t tensors = 0;
  int64_t bytes = 0;               ///< of tensor data
  std::string statistics;          ///< a table, for people
  std::vector<std::string> notes;  ///< for people: a tokenizer that is missing, a type that was changed
};

struct HuggingfaceExportOptions {
  std::optional<DType> dtype;  ///< f32 or bf16; if absent, tensors are exported bit for bit as stored
  int64_t max_shard_bytes = int64_t{5} << 30;
  std::string tokenizer;  ///< folder; "": the model's own
};

/// Writes config.json (with the keys of old and new versions of transformers), generation_config.json,
/// weights (with an index if there are several files) and the tokenizer to the new folder `out`. Throws Error
/// if `out` exists, the family cannot express the model, or a weight is not finite.
ExportReport export_huggingface(FileSystem& fs, const StoredModel& model, const std::string& out,
                                const HuggingfaceExportOptions& options = {});

enum class GgufType { f32, f16, bf16, q8_0 };
struct GgufExportOptions {
  GgufType type = GgufType::f16;  ///< of matrices; vectors and routers are always f32
  std::string tokenizer;
  std::string name;  ///< general.name; "": the folder's name
};

/// Writes the GGUF v3 file `out` for llama.cpp (see gguf_model.h for its architectures). Throws Error for a
/// family or a pre-tokenizer that llama.cpp does not know, for options that it would compute differently, and
/// if `out` exists.
ExportReport export_gguf(FileSystem& fs, const StoredModel& model, const std::string& out,
                         const GgufExportOptions& options = {});

/// Reads one external tensor from a checkpoint: dense, in type `as` (f32, bf16 or f64), with its adapter
/// merged into it (W + scale B A, in double). Reads only the rows of the parameter that it needs.
std::vector<std::byte> read_external(const CheckpointReader& reader, const Decoder& decoder,
                                     const ExternalTensor& e, DType as);
/// The type in which the checkpoint stores that tensor.
DType stored_type(const CheckpointReader& reader, const Decoder& decoder, const ExternalTensor& e);

}  // namespace ingot
