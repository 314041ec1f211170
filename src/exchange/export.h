// Our checkpoints for other programs: a folder in Hugging Face's layout, or a GGUF file for llama.cpp. Streamed: memory is
// that of the largest tensor. What was written is complete or absent. docs/exchange.md.
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
  int64_t bytes = 0;       ///< of tensor data
  std::string statistics;  ///< a table, for people
  std::vector<std::string>
      notes;  ///< what a person should know (a tokenizer that is missing, a type that was changed)
};

struct HuggingfaceExportOptions {
  std::optional<DType> dtype;  ///< f32 or bf16; nothing: as stored, no bit changed
  int64_t max_shard_bytes = int64_t{5} << 30;
  std::string tokenizer;  ///< folder; "": the model's own
};

/// Writes config.json (both dialects), generation_config.json, weights (with an index where there are several files) and
/// the tokenizer to the new folder `out`. Error where `out` exists, the family cannot express the model, or a weight is
/// not finite.
ExportReport export_huggingface(FileSystem& fs, const StoredModel& model, const std::string& out,
                                const HuggingfaceExportOptions& options = {});

enum class GgufType { f32, f16, bf16, q8_0 };
struct GgufExportOptions {
  GgufType type = GgufType::f16;  ///< of matrices; vectors and routers are always F32
  std::string tokenizer;
  std::string name;  ///< general.name; "": the folder's
};

/// Writes the GGUF v3 file `out` for llama.cpp (architectures: gguf_model.h). Error for families that it does not know, for
/// options that it would compute differently, for a tokenizer whose splitting it does not know, where `out` exists.
ExportReport export_gguf(FileSystem& fs, const StoredModel& model, const std::string& out,
                         const GgufExportOptions& options = {});

/// One external tensor out of a checkpoint, dense, with its adapter merged into it (W + scale B A, in double), in the given type (f32, bf16 or f64); reads only the rows that hold it.
std::vector<std::byte> read_external(const CheckpointReader& reader, const Decoder& decoder,
                                     const ExternalTensor& e, DType as);
/// The type in which a checkpoint stores it.
DType stored_type(const CheckpointReader& reader, const Decoder& decoder, const ExternalTensor& e);

}  // namespace ingot
