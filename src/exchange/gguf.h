// The GGUF container, version 3: typed keys and values, then tensors, little-endian. Writing only.
// Source: ggml docs/gguf.md and src/gguf.cpp. Strings are u64 length and bytes; a tensor's extents are stored fastest
// first; data starts at a multiple of 32 and so does every tensor, offsets in file order.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "tensor/tensor.h"

namespace ingot {

/// Values are those of the file format.
enum class GgmlType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
const char* name_of(GgmlType type);
/// Bytes of a tensor; Error where its rows do not divide into blocks.
int64_t ggml_bytes(GgmlType type, const Shape& shape);
/// Values in the type: F16 and BF16 round to nearest even; Q8_0 has blocks of 32 with a half scale d = max|x| / 127 and
/// bytes round(x / d), halves away from zero, as ggml's reference quantisation. Error for a finite value that F16 cannot hold.
std::vector<std::byte> to_ggml(GgmlType type, const float* values, int64_t count, const std::string& name);

class GgufWriter {
 public:
  void add(const std::string& key, uint32_t value);
  void add(const std::string& key, float value);
  void add_flag(const std::string& key, bool value);
  void add(const std::string& key, const std::string& value);
  void add(const std::string& key, const std::vector<std::string>& values);
  void add(const std::string& key, const std::vector<int32_t>& values);
  /// A tensor, extents outermost first as everywhere here (at most four); name of at most 63 bytes.
  void add_tensor(const std::string& name, const Shape& shape, GgmlType type);
  /// Writes all; `data(i)` gives the bytes of tensor i, asked once each, in order. `path` is the complete file or absent.
  void write(FileSystem& fs, const std::string& path,
             const std::function<std::vector<std::byte>(size_t)>& data) const;

 private:
  struct Entry {
    std::string name;
    Shape shape;
    GgmlType type;
  };
  void key(const std::string& key, uint32_t type);
  std::string pairs_;
  int64_t count_ = 0;
  std::vector<Entry> tensors_;
};

}  // namespace ingot
