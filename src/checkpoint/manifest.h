// manifest.json, which lists what a checkpoint holds. Format version 1; docs/checkpoints.md is the
// specification.
//
// Parsing is strict: any bytes give either a manifest with every property stated below, or an Error that
// names the file, the field or tensor, what was expected and what was found. Nothing here reads tensor data.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "base/error.h"
#include "checkpoint/region.h"
#include "tensor/tensor.h"

namespace ingot {

/// What a tensor is for. Whoever loads only weights ignores optimizer state.
enum class TensorKind : uint8_t { weight, optimizer, buffer };
constexpr auto enum_names(TensorKind) {
  return names_in_order<TensorKind>("weight", "optimizer", "buffer");
}

constexpr int64_t kManifestVersion = 1;
constexpr const char* kManifestFile = "manifest.json";

/// A box of a tensor, and where its elements are stored.
struct StoredPiece {
  Region region;
  std::string file;  ///< a plain file name inside the checkpoint's folder
  std::string key;   ///< the tensor's name in that safetensors file
  std::string hash;  ///< XXH3-128 of its bytes
};

/// A tensor of the checkpoint. Its pieces cover the shape exactly, without hole or overlap.
struct StoredTensor {
  TensorKind kind = TensorKind::weight;
  TensorMeta meta;
  std::vector<StoredPiece> pieces;
};

struct StoredFile {
  uint64_t bytes = 0;
  std::string header_hash;  ///< of everything before the data; the pieces' hashes cover the rest
};

struct Manifest {
  int64_t step = 0;
  /// Counts the saves of a run: the newest checkpoint has the highest number, even after a rewind to an
  /// earlier step.
  int64_t sequence = 0;
  std::string code_version;  ///< of the program that wrote it
  /// Why retention must keep it ("end of phase 'pretrain'"); empty: it may be deleted.
  std::string protection;
  std::map<std::string, StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> blobs;  ///< name -> JSON text: sampler, rng, schedule, config, ...
};

/// A checkpoint that a newer program wrote. It is never skipped in favour of an older checkpoint.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

/// Throws Error unless a blob's text is JSON that a manifest can hold.
void check_blob(const std::string& name, const std::string& text);

/// The file's text; its first line holds a checksum of the rest. Throws Error if a blob is not JSON.
std::string encode_manifest(const Manifest& manifest);
/// Parses the file's text. `path` is for messages only. `trusted_bytes` skips the checksum, for fuzzing.
Manifest parse_manifest(std::string_view text, const std::string& path, bool trusted_bytes = false);
/// Merges the manifests of several ranks, each a text of encode_manifest() whose tensors may have holes.
/// Step, blobs and the other fields are the first rank's. Throws Error if ranks disagree about a tensor or
/// name a file twice, and if the merged tensors have holes.
Manifest merge_manifests(const std::vector<std::string>& parts);

}  // namespace ingot
