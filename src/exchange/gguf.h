// Writes the GGUF container, version 3: typed keys and values, then tensors, little-endian. Strings are a u64
// length and bytes; a tensor's extents are stored innermost first; the data and every tensor in it begin at
// multiples of 32 bytes. Source: ggml docs/gguf.md and src/gguf.cpp.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/enum.h"
#include "base/file_system.h"
#include "tensor/tensor.h"

namespace ingot {

/// The numbers are those of the file format.
enum class GgmlType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
constexpr auto enum_names(GgmlType) {
  using enum GgmlType;
  return std::to_array<EnumName<GgmlType>>({{f32, "F32"}, {f16, "F16"}, {q8_0, "Q8_0"}, {bf16, "BF16"}});
}
/// The bytes of a tensor. Throws Error if its rows do not divide into blocks.
int64_t ggml_bytes(GgmlType type, const Shape& shape);
/// Converts values to the type. F16 and BF16 round to nearest even; Q8_0 has blocks of 32 with an F16 scale d
/// = max|x| / 127 and bytes round(x / d), halves away from zero, like ggml's reference quantisation. Throws
/// Error for a finite value that F16 cannot hold. `name` is for messages.
std::vector<std::byte> to_ggml(GgmlType type, const float* values, int64_t count, const std::string& name);

class GgufWriter {
 public:
  void add(const std::string& key, uint32_t value);
  void add(const std::string& key, float value);
  void add_flag(const std::string& key, bool value);
  void add(const std::string& key, const std::string& value);
  void add(const std::string& key, const std::vector<std::string>& values);
  void add(const std::string& key, const std::vector<int32_t>& values);
  void add(const std::string& key, const std::vector<float>& values);
  void add_flags(const std::string& key, const std::vector<bool>& values);
  /// Adds a tensor: at most four extents, outermost first; a name of at most 63 bytes.
  void add_tensor(const std::string& name, const Shape& shape, GgmlType type);
  /// Writes the file, which is complete or absent. `data(i)` returns the bytes of tensor i; it is called once
  /// for each, in order.
  void write(FileSystem& fs, const std::string& path,
             const std::function<std::vector<std::byte>(size_t)>& data) const;

 private:
  struct Entry {
    std::string name;
    Shape shape;
    GgmlType type;
  };
  void key(const std::string& key, uint32_t type);
  void array(const std::string& key, uint32_t type, size_t size);
  std::string pairs_;
  int64_t count_ = 0;
  std::vector<Entry> tensors_;
};

}  // namespace ingot
