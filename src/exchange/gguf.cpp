// See gguf.h.
#include "exchange/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exchange/half.h"

namespace ingot {
namespace {

constexpr size_t kAlignment = 32;
constexpr int64_t kBlock = 32, kBlockBytes = 34;
enum ValueType : uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}
size_t padded(size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

void quantize_block(const float* x, std::byte* out) {
  float largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  const float d = largest / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  const uint16_t scale = to_half(d);
  std::memcpy(out, &scale, 2);
  for (int64_t i = 0; i < kBlock; ++i)
    out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(x[i] * inverse)));
}

}  // namespace

int64_t ggml_bytes(GgmlType type, const Shape& shape) {
  if (type != GgmlType::q8_0) return shape.numel() * (type == GgmlType::f32 ? 4 : 2);
  if (shape[-1] % kBlock != 0) fail("Q8_0 needs rows of a multiple of {}, found {}", kBlock, shape.str());
  return shape.numel() / kBlock * kBlockBytes;
}

std::vector<std::byte> to_ggml(GgmlType type, const float* values, int64_t count, const std::string& name) {
  std::vector<std::byte> out(static_cast<size_t>(ggml_bytes(type, Shape{count})));
  if (type == GgmlType::f32) {
    std::memcpy(out.data(), values, out.size());
    return out;
  }
  if (type == GgmlType::q8_0) {
    for (int64_t b = 0; b < count / kBlock; ++b)
      quantize_block(values + b * kBlock, out.data() + b * kBlockBytes);
    return out;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = type == GgmlType::bf16 ? to_bf16(values[i]).bits : to_half(values[i]);
    if (type == GgmlType::f16 && (bits & 0x7FFFu) == 0x7C00u)
      throw Error(fmt::format("tensor '{}' holds {}, which F16 cannot", name, values[i]),
                  "use --dtype=bf16 or f32");
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
  return out;
}

void GgufWriter::key(const std::string& key, uint32_t type) {
  put_text(pairs_, key);
  put(pairs_, type);
  ++count_;
}
void GgufWriter::add(const std::string& name, uint32_t value) {
  key(name, kU32);
  put(pairs_, value);
}
void GgufWriter::add(const std::string& name, float value) {
  key(name, kF32);
  put(pairs_, value);
}
void GgufWriter::add_flag(const std::string& name, bool value) {
  key(name, kBool);
  put(pairs_, static_cast<uint8_t>(value));
}
void GgufWriter::add(const std::string& name, const std::string& value) {
  key(name, kString);
  put_text(pairs_, value);
}
void GgufWriter::array(const std::string& name, uint32_t type, size_t size) {
  key(name, kArray);
  put(pairs_, type);
  put(pairs_, static_cast<uint64_t>(size));
}
void GgufWriter::add(const std::string& name, const std::vector<std::string>& values) {
  array(name, kString, values.size());
  for (const std::string& v : values) put_text(pairs_, v);
}
void GgufWriter::add(const std::string& name, const std::vector<int32_t>& values) {
  array(name, kI32, values.size());
  for (const int32_t v : values) put(pairs_, v);
}
void GgufWriter::add(const std::string& name, const std::vector<float>& values) {
  array(name, kF32, values.size());
  for (const float v : values) put(pairs_, v);
}
void GgufWriter::add_flags(const std::string& name, const std::vector<bool>& values) {
  array(name, kBool, values.size());
  for (const bool v : values) put(pairs_, static_cast<uint8_t>(v));
}

void GgufWriter::add_tensor(const std::string& name, const Shape& shape, GgmlType type) {
  INGOT_CHECK(name.size() < 64 && shape.rank() >= 1 && shape.rank() <= 4, "tensor '{}' {}", name,
              shape.str());
  tensors_.push_back({name, shape, type});
}

void GgufWriter::write(FileSystem& fs, const std::string& path,
                       const std::function<std::vector<std::byte>(size_t)>& data) const {
  std::string head = "GGUF";
  put(head, uint32_t{3});
  put(head, static_cast<int64_t>(tensors_.size()));
  put(head, count_);
  head += pairs_;
  uint64_t offset = 0;
  for (const Entry& t : tensors_) {
    put_text(head, t.name);
    put(head, static_cast<uint32_t>(t.shape.rank()));
    for (int d = t.shape.rank() - 1; d >= 0; --d) put(head, static_cast<uint64_t>(t.shape[d]));
    put(head, static_cast<uint32_t>(t.type));
    put(head, offset);
    offset += padded(static_cast<size_t>(ggml_bytes(t.type, t.shape)));
  }
  head.resize(padded(head.size()), '\0');
  const std::string temporary = path + ".partial";
  Unfinished unfinished(fs, temporary);
  const auto file = fs.create(temporary);
  file->append(head.data(), head.size());
  const std::string zeros(kAlignment, '\0');
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::vector<std::byte> bytes = data(i);
    INGOT_CHECK(static_cast<int64_t>(bytes.size()) == ggml_bytes(tensors_[i].type, tensors_[i].shape), "'{}'",
                tensors_[i].name);
    file->append(bytes.data(), bytes.size());
    file->append(zeros.data(), padded(bytes.size()) - bytes.size());
  }
  file->sync();
  file->close();
  fs.rename(temporary, path);
  unfinished.keep();
}

}  // namespace ingot
