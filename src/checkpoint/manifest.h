// manifest.json: what a checkpoint holds. Format version 1; docs/checkpoints.md is the specification.
//
// Parsing is strict and total: any bytes give either a manifest that keeps every promise below or an Error
// that names the file, the field or tensor, what was expected and what was found. Nothing here touches tensor
// data.
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

/// What a tensor is for: a loader of weights alone ignores the optimizer's.
enum class TensorKind : uint8_t { weight, optimizer, buffer };
constexpr auto enum_names(TensorKind) {
  return names_in_order<TensorKind>("weight", "optimizer", "buffer");
}

constexpr int64_t kManifestVersion = 1;
constexpr const char* kManifestFile = "manifest.json";

/// A box of a tensor and where its elements lie.
struct StoredPiece {
  Region region;
  std::string file;  ///< a plain file name inside the checkpoint's folder
  std::string key;   ///< the tensor's name in that safetensors file
  std::string hash;  ///< XXH3-128 of its bytes
};

/// Its pieces cover the shape exactly: no hole, no overlap.
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
  int64_t sequence =
      0;  ///< counts the saves of a run: the newest checkpoint has the highest, also after a rewind
  std::string code_version;  ///< of the program that wrote it
  std::string protection;    ///< why retention must keep it ("end of phase 'pretrain'"); empty: it may go
  std::map<std::string, StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> blobs;  ///< name -> JSON text: sampler, rng, schedule, config, ...
};

/// A checkpoint that a newer program wrote: never skipped in favour of an older checkpoint.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

/// The file's text; its first line carries a checksum of the rest. Error where a blob is not JSON.
std::string encode_manifest(const Manifest& manifest);
/// `path` is for messages only. Checks the checksum unless `trusted_bytes` (a fuzzer's way in).
Manifest parse_manifest(std::string_view text, const std::string& path, bool trusted_bytes = false);
/// One manifest of what several ranks wrote, each a text of encode_manifest() whose tensors may have holes; step, blobs and
/// all else are the first one's. Error where they disagree about a tensor, name a file twice, or leave holes together.
Manifest merge_manifests(const std::vector<std::string>& parts);

}  // namespace ingot
