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
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace ingot {

enum class Verify {
  structure,  ///< the manifest's checksum, files, sizes and headers, in milliseconds
  bytes,      ///< also all tensor data, in the time of reading it once
};

class CheckpointReader {
 public:
  /// `path` is a checkpoint or a folder of checkpoints, of which the newest complete one is opened;
  /// unfinished and damaged ones are skipped with a warning that says why. Throws Error if there is none,
  /// NewerFormat if a newer program wrote it.
  static CheckpointReader open(FileSystem& fs, const std::string& path, Verify verify = Verify::bytes);
  /// The newest complete checkpoint of a folder, or nothing if the folder is absent or holds none.
  static std::optional<CheckpointReader> open_newest(FileSystem& fs, const std::string& folder,
                                                     Verify verify = Verify::bytes);

  const std::string& path() const { return path_; }
  /// Another name for path() and messages: of a checkpoint that lies where no person knows it.
  void set_name(std::string name) { path_ = std::move(name); }
  const Manifest& manifest() const { return manifest_; }
  int64_t step() const { return manifest_.step; }
  const std::map<std::string, StoredTensor>& tensors() const { return manifest_.tensors; }
  /// The JSON text of a named state. Throws Error if there is none of that name.
  const std::string& blob(const std::string& name) const;

  /// Reads a region into `out` (dense, row-major over the region), converted to `as`. Throws Error if the
  /// tensor is missing, the region is not inside it, or the types do not convert (only f32, bf16 and f64 do).
  void read(const std::string& name, const Region& region, DType as, void* out) const;
  /// Reads the whole tensor into `out`, whose shape must be the stored one.
  void read(const std::string& name, const Tensor& out) const;

  /// Hashes every byte. Throws an Error that names the first damaged tensor or file.
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

struct CheckpointPlace {
  std::string path;
  int64_t step = 0;
};
/// The checkpoints of a folder that are complete by their manifests and sizes, newest first. None if the
/// folder does not exist.
std::vector<CheckpointPlace> list_checkpoints(FileSystem& fs, const std::string& folder);

/// A tensor that a model needs.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

/// Names listed for each kind of fault of a model's tensors; further ones are only counted.
inline constexpr size_t kListedFaults = 20;
/// Appends "N title:" and the first kListedFaults lines to an error message; nothing where there are none.
void append_list(std::string& message, const char* title, const std::vector<std::string>& lines);

/// Compares the tensors that a model needs with the checkpoint's tensors of these kinds. Throws one Error
/// that lists every missing, unexpected and wrongly shaped tensor, with the nearest name for each missing
/// one.
void require_tensors(const CheckpointReader& checkpoint, const std::vector<ExpectedTensor>& expected,
                     const std::vector<TensorKind>& kinds);

}  // namespace ingot
