// Loads checkpoints: any region of any tensor, assembled from whatever pieces were saved, in the stored type
// or converted on request. A reader exists only for a complete checkpoint: its manifest, every file, every
// header and the place of every piece have been checked, and (by default) every byte against its checksum.
//
// Thread-safe: all methods are const and read mapped files.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace ingot {

enum class Verify {
  structure,  ///< manifest checksum, files, sizes, headers: milliseconds
  bytes,      ///< and all tensor data: as long as reading it once
};

class CheckpointReader {
 public:
  /// `path` is a checkpoint's folder or a folder of checkpoints. Of the latter the newest complete checkpoint
  /// is opened; unfinished and damaged ones are skipped with a warning that says why. Throws Error where
  /// there is none, NewerFormat where a newer program wrote it.
  static CheckpointReader open(FileSystem& fs, const std::string& path, Verify verify = Verify::bytes);
  /// The same, or nothing where the folder of checkpoints is absent or holds no complete one.
  static std::optional<CheckpointReader> open_newest(FileSystem& fs, const std::string& folder,
                                                     Verify verify = Verify::bytes);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  int64_t step() const { return manifest_.step; }
  const std::map<std::string, StoredTensor>& tensors() const { return manifest_.tensors; }
  /// JSON text of a named state; Error where it is missing.
  const std::string& blob(const std::string& name) const;

  /// Reads a region into `out` (dense, row-major over the region), converted to `as`. Error where the tensor
  /// is missing, the region is not inside it, or the types do not convert (only f32, bf16 and f64 do).
  void read(const std::string& name, const Region& region, DType as, void* out) const;
  /// The whole tensor into `out`, whose shape must be the stored one.
  void read(const std::string& name, const Tensor& out) const;

  /// Hashes every byte; Error names the first tensor or file that is damaged.
  void verify() const;

 private:
  CheckpointReader() = default;
  static CheckpointReader open_one(FileSystem& fs, const std::string& path, Verify verify);
  const StoredTensor& tensor(const std::string& name) const;
  std::span<const std::byte> data(const StoredPiece& piece) const;

  std::string path_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> files_;
};

/// A tensor that a model wants to load.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

/// Compares what a model wants with what a checkpoint holds of these kinds, and throws one Error that lists
/// every missing, unexpected and wrongly shaped tensor, with the nearest name for each missing one.
void require_tensors(const CheckpointReader& checkpoint, const std::vector<ExpectedTensor>& expected,
                     const std::vector<TensorKind>& kinds);

}  // namespace ingot
