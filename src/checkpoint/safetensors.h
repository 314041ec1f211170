// The safetensors file format: a strict reader over a mapped file, and a writer.
//
// Source: huggingface/safetensors, README and safetensors/src/tensor.rs. A file is an 8-byte little-endian
// length N, N bytes of JSON (tensor name -> dtype, shape, data_offsets; optional "__metadata__" of strings),
// then one buffer that the tensors tile exactly, row-major and little-endian. The reader rejects, with an
// Error that names the file, the tensor, what was expected and what was found: N > 100,000,000; N beyond the
// file; invalid UTF-8 or JSON; duplicate names; unknown dtypes or fields; shapes whose element, byte or bit
// count overflows; a range that differs from shape x dtype; holes, overlaps and bytes that belong to no
// tensor. It never allocates more than a small multiple of the header. Thread-safe once opened.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file_system.h"
#include "tensor/tensor.h"

namespace ingot {

using SafetensorsMetadata = std::map<std::string, std::string>;

/// One tensor of a file. `dtype` is the format's name ("F32"): foreign files hold more types than ours.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  ///< bytes from the start of the buffer
  uint64_t end = 0;
  std::string str() const;  ///< "F32[4, 128]"
};

/// Our type for a format name, or nothing where we have none ("F16", "BOOL", ...).
std::optional<DType> dtype_of_safetensors(std::string_view name);
const char* safetensors_name(DType dtype);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their data
  SafetensorsMetadata metadata;
  uint64_t bytes = 0;  ///< 8 + N: where the buffer starts
};

/// Checks a whole file's bytes and returns its header. `path` is for messages only.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path);

/// A file mapped and checked. Spans stay valid while the object lives. The file must not shrink meanwhile
/// (our writer never truncates a file that exists: it makes a new one and renames it).
class SafetensorsFile {
 public:
  SafetensorsFile(FileSystem& fs, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  /// Null where the file has no such tensor.
  const SafetensorsEntry* find(const std::string& name) const;
  /// The elements; not aligned in every foreign file, so copy before reading them as numbers.
  std::span<const std::byte> data(const SafetensorsEntry& entry) const;
  /// XXH3-128 of the elements, read piece by piece so that a large tensor does not stay in memory.
  std::string hash(const SafetensorsEntry& entry) const;
  /// These elements were read and will not soon be again: they need not stay in memory.
  void done_with(const SafetensorsEntry& entry) const { map_->done_with(data(entry)); }
  /// Length field and JSON: everything before the buffer.
  std::span<const std::byte> header_bytes() const;

 private:
  std::string path_;
  std::unique_ptr<MappedFile> map_;
  SafetensorsHeader header_;
  std::unordered_map<std::string, size_t> index_;
};

struct SafetensorsItem {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  const void* data = nullptr;
};

/// The bytes before the buffer, and the order in which the items' data follow. Header padded with spaces to a
/// multiple of 8; items by falling dtype (so that all are aligned), then by name, as the reference writer
/// does.
struct SafetensorsLayout {
  std::string header;
  std::vector<size_t> order;
};
/// Error on an empty or duplicate name, on "__metadata__", on text that is not UTF-8.
SafetensorsLayout layout_safetensors(std::span<const SafetensorsItem> items,
                                     const SafetensorsMetadata& metadata);

/// Writes a file so that `path` is always the complete old or the complete new one.
void write_safetensors(FileSystem& fs, const std::string& path, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata = {});

/// Number of elements of a shape, or nothing where a product of its extents leaves int64 (zero extents count
/// as one for that purpose, so every partial product is safe) or an extent is negative.
std::optional<int64_t> checked_numel(std::span<const int64_t> shape);

}  // namespace ingot
