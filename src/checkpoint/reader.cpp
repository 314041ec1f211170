// See reader.h.
#include "checkpoint/reader.h"

#include <algorithm>

#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "checkpoint/layout.h"

namespace ingot {

namespace layout = checkpoint_layout;

namespace {

/// Checks that every piece is in its file as the manifest says, and that the files hold nothing else. The
/// checksums of headers and pieces then cover every byte.
void check_pieces(const Manifest& manifest, const std::map<std::string, SafetensorsFile>& files) {
  std::map<std::string, size_t> used;
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const StoredPiece& piece : tensor.pieces) {
      const SafetensorsFile& file = files.at(piece.file);
      const SafetensorsEntry* entry = file.find(piece.key);
      if (entry == nullptr) fail("'{}' does not hold '{}' of tensor '{}'", file.path(), piece.key, name);
      bool same = entry->dtype == safetensors_name(tensor.meta.dtype) &&
                  entry->shape.size() == static_cast<size_t>(piece.region.shape.rank());
      for (size_t d = 0; same && d < entry->shape.size(); ++d)
        same = entry->shape[d] == piece.region.shape[static_cast<int>(d)];
      if (!same)
        fail("'{}': '{}' is {}, the manifest expects {}", file.path(), piece.key, entry->str(),
             TensorMeta{piece.region.shape, tensor.meta.dtype}.str());
      ++used[piece.file];
    }
  }
  for (const auto& [name, file] : files)
    if (used[name] != file.entries().size())
      fail("'{}' holds {} tensors, the manifest lists {} of them", file.path(), file.entries().size(),
           used[name]);
}

}  // namespace

CheckpointReader CheckpointReader::open_one(FileSystem& fs, const std::string& path, Verify verify) {
  CheckpointReader reader;
  reader.path_ = path;
  reader.manifest_ = layout::inspect(fs, path);
  for (const auto& [name, file] : reader.manifest_.files)
    reader.files_.emplace(name, SafetensorsFile(fs, path + "/" + name));
  check_pieces(reader.manifest_, reader.files_);
  if (verify == Verify::bytes) reader.verify();
  return reader;
}

std::optional<CheckpointReader> CheckpointReader::open_newest(FileSystem& fs, const std::string& folder,
                                                              Verify verify) {
  for (const layout::Found& found : layout::complete_checkpoints(fs, folder)) {
    try {
      return open_one(fs, folder + "/" + found.name, verify);
    } catch (const NewerFormat&) {
      throw;
    } catch (const Error& error) {
      log::warn("skipping a damaged checkpoint: {}", error.what());
    }
  }
  return std::nullopt;
}

std::vector<CheckpointPlace> list_checkpoints(FileSystem& fs, const std::string& folder) {
  std::vector<CheckpointPlace> places;
  for (const layout::Found& found : layout::complete_checkpoints(fs, folder, false))
    places.push_back({folder + "/" + found.name, found.manifest.step});
  return places;
}

CheckpointReader CheckpointReader::open(FileSystem& fs, const std::string& path, Verify verify) {
  if (!fs.exists(path)) fail("there is no checkpoint '{}'", path);
  const std::string name = path.substr(path.find_last_of('/') + 1);
  if (layout::is_checkpoint_name(name) || fs.exists(path + "/" + kManifestFile))
    return open_one(fs, path, verify);
  std::optional<CheckpointReader> newest = open_newest(fs, path, verify);
  if (!newest)
    throw Error(fmt::format("there is no complete checkpoint in '{}'", path),
                "give a run's folder of checkpoints, or one of them");
  return std::move(*newest);
}

const std::string& CheckpointReader::blob(const std::string& name) const {
  const auto it = manifest_.blobs.find(name);
  if (it == manifest_.blobs.end()) fail("checkpoint '{}' has no state '{}'", path_, name);
  return it->second;
}

const StoredTensor& CheckpointReader::tensor(const std::string& name) const {
  const auto it = manifest_.tensors.find(name);
  if (it == manifest_.tensors.end()) fail("checkpoint '{}' has no tensor '{}'", path_, name);
  return it->second;
}

std::span<const std::byte> CheckpointReader::data(const StoredPiece& piece) const {
  const SafetensorsFile& file = files_.at(piece.file);
  return file.data(*file.find(piece.key));
}

void CheckpointReader::read(const std::string& name, const Region& region, DType as, void* out) const {
  const StoredTensor& stored = tensor(name);
  if (!inside(region, stored.meta.shape))
    fail("checkpoint '{}': the region at offset {} of shape {} is not inside tensor '{}' of {}", path_,
         region.offset.str(), region.shape.str(), name, stored.meta.str());
  if (!convertible(stored.meta.dtype, as))
    fail("checkpoint '{}': tensor '{}' is {}, which does not convert to {}", path_, name, stored.meta.str(),
         name_of(as));
  if (region.shape.numel() == 0) return;
  constexpr size_t kLarge = size_t{1} << 20;
  for (const StoredPiece& piece : stored.pieces) {
    copy_common(out, region, as, data(piece).data(), piece.region, stored.meta.dtype);
    if (data(piece).size() < kLarge) continue;  // large pieces need not stay in the page cache once copied
    const SafetensorsFile& file = files_.at(piece.file);
    file.done_with(*file.find(piece.key));
  }
}

void CheckpointReader::read(const std::string& name, const Tensor& out) const {
  const StoredTensor& stored = tensor(name);
  if (!(stored.meta.shape == out.shape()))
    fail("checkpoint '{}': tensor '{}' has shape {}, expected {}", path_, name, stored.meta.shape.str(),
         out.shape().str());
  read(name, Region::whole(out.shape()), out.dtype(), out.data);
}

void CheckpointReader::verify() const {
  for (const auto& [name, file] : files_) {
    const auto header = file.header_bytes();
    const std::string found = hash128_hex(header.data(), header.size());
    const std::string& expected = manifest_.files.at(name).header_hash;
    if (found != expected)
      fail("'{}' is damaged: the checksum of its header is {}, expected {}", file.path(), found, expected);
  }
  struct Part {
    const std::string* tensor;
    const StoredPiece* piece;
    std::string found;
  };
  std::vector<Part> parts;
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const StoredPiece& piece : tensor.pieces) parts.push_back({&name, &piece, {}});
  parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Part& part = parts[static_cast<size_t>(i)];
      const SafetensorsFile& file = files_.at(part.piece->file);
      part.found = file.hash(*file.find(part.piece->key));
    }
  });
  for (const Part& part : parts)
    if (const StoredPiece& piece = *part.piece; part.found != piece.hash)
      fail("tensor '{}' is damaged in '{}/{}': the checksum of {} is {}, expected {}", *part.tensor, path_,
           piece.file, piece.region.str(), part.found, piece.hash);
}

}  // namespace ingot
