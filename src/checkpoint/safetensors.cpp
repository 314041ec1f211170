// See safetensors.h.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/hash.h"
#include "checkpoint/json_text.h"

namespace ingot {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeInfo {
  const char* name;
  int64_t bits;
  std::optional<DType> ours;
};
// The reference implementation's enum order: the writer sorts by it, falling.
constexpr DTypeInfo kDTypes[] = {
    {"BOOL", 8, {}},         {"F4", 4, {}},           {"F6_E2M3", 6, {}},        {"F6_E3M2", 6, {}},
    {"U8", 8, DType::u8},    {"I8", 8, {}},           {"F8_E5M2", 8, {}},        {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},      {"F8_E4M3FNUZ", 8, {}},  {"F8_E5M2FNUZ", 8, {}},    {"I16", 16, {}},
    {"U16", 16, DType::u16}, {"F16", 16, {}},         {"BF16", 16, DType::bf16}, {"I32", 32, DType::i32},
    {"U32", 32, {}},         {"F32", 32, DType::f32}, {"C64", 64, {}},           {"F64", 64, DType::f64},
    {"I64", 64, DType::i64}, {"U64", 64, {}},
};

const DTypeInfo* find_dtype(std::string_view name) {
  for (const DTypeInfo& info : kDTypes)
    if (name == info.name) return &info;
  return nullptr;
}

/// Walks the header's JSON event by event; there is no document in memory, so a hostile header costs what it
/// weighs.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& path) : header_(header), path_(path) {}

  bool key(string_t& name) override {
    if (place_ == Place::top) {
      if (!names_.insert(name).second) fail("'{}': tensor '{}' appears twice", path_, name);
      name_ = name;
      seen_ = 0;
    } else if (place_ == Place::metadata) {
      metadata_key_ = name;
      if (header_.metadata.contains(name)) fail("'{}': __metadata__ has '{}' twice", path_, name);
    } else {
      const unsigned bit = name == "dtype" ? kDTypeField : name == "shape" ? kShapeField : kOffsetsField;
      if (bit == kOffsetsField && name != "data_offsets") bad("has an unknown field '{}'", name);
      if (seen_ & bit) bad("has '{}' twice", name);
      seen_ |= bit;
      field_ = bit;
    }
    return true;
  }
  bool start_object(size_t) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = name_ == "__metadata__" ? Place::metadata : Place::tensor;
      entry_ = {};
      entry_.name = name_;
      offsets_.clear();
    } else {
      wrong("an object");
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) {
      if (seen_ != (kDTypeField | kShapeField | kOffsetsField)) bad("lacks dtype, shape or data_offsets");
      if (offsets_.size() != 2) bad("has {} data_offsets, expected 2", offsets_.size());
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::start : Place::top;
    return true;
  }
  bool start_array(size_t) override {
    if (place_ != Place::tensor || field_ == kDTypeField) wrong("an array");
    place_ = Place::array;
    return true;
  }
  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::metadata)
      header_.metadata.emplace(metadata_key_, text);
    else if (place_ == Place::tensor && field_ == kDTypeField)
      entry_.dtype = text;
    else
      wrong("a string");
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::array) wrong("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      bad("has a number {} beyond 2^63", value);
    if (field_ == kShapeField)
      entry_.shape.push_back(static_cast<int64_t>(value));
    else if (offsets_.size() < 2)
      offsets_.push_back(value);
    else
      bad("has more than 2 data_offsets");
    return true;
  }
  bool number_integer(number_integer_t value) override { return wrong("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return wrong("a fraction or a number beyond 2^64");
  }
  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool binary(binary_t&) override { return wrong("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("'{}': the header is not valid JSON in UTF-8 at byte {}", path_, position);
  }

 private:
  enum class Place { start, top, metadata, tensor, array };
  static constexpr unsigned kDTypeField = 1, kShapeField = 2, kOffsetsField = 4;

  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail("'{}': tensor '{}' {}", path_, name_, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] bool wrong(const char* what) const {
    if (place_ == Place::start) fail("'{}': the header is {}, expected an object", path_, what);
    if (place_ == Place::metadata)
      fail("'{}': __metadata__ '{}' is {}, expected a string", path_, metadata_key_, what);
    bad("has {} where its description does not allow one", what);
  }

  SafetensorsHeader& header_;
  const std::string& path_;
  std::unordered_set<std::string> names_;
  Place place_ = Place::start;
  std::string name_, metadata_key_;
  unsigned seen_ = 0, field_ = 0;
  SafetensorsEntry entry_;
  std::vector<uint64_t> offsets_;
};

void check_entry(const SafetensorsEntry& entry, const std::string& path) {
  const DTypeInfo* dtype = find_dtype(entry.dtype);
  if (dtype == nullptr) fail("'{}': tensor '{}' has the unknown dtype '{}'", path, entry.name, entry.dtype);
  const std::optional<int64_t> count = checked_numel(entry.shape);
  int64_t bits = 0;
  if (!count || __builtin_mul_overflow(*count, dtype->bits, &bits))
    fail("'{}': tensor '{}': the size of {} overflows", path, entry.name, entry.str());
  if (bits % 8 != 0)
    fail("'{}': tensor '{}': {} is not a whole number of bytes", path, entry.name, entry.str());
  if (entry.end < entry.begin || entry.end - entry.begin != static_cast<uint64_t>(bits / 8))
    fail("'{}': tensor '{}': {} needs {} bytes, but data_offsets are [{}, {}]", path, entry.name, entry.str(),
         bits / 8, entry.begin, entry.end);
}

void check_tiling(const SafetensorsHeader& header, uint64_t buffer_bytes, const std::string& path) {
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != expected)
      fail("'{}': tensor '{}' begins at byte {} of the data, expected {} ({})", path, entry.name, entry.begin,
           expected, entry.begin < expected ? "it overlaps the tensor before it" : "a hole before it");
    expected = entry.end;
  }
  if (expected != buffer_bytes)
    fail("'{}': the tensors take {} bytes, but the file holds {} bytes of data ({})", path, expected,
         buffer_bytes, expected > buffer_bytes ? "truncated" : "bytes after the last tensor");
}

/// The reference writer puts types of larger alignment first: falling order of this number.
ptrdiff_t enum_place(DType dtype) {
  return std::find_if(std::begin(kDTypes), std::end(kDTypes),
                      [&](const DTypeInfo& info) { return info.ours == dtype; }) -
         std::begin(kDTypes);
}

std::string metadata_json(const SafetensorsMetadata& metadata) {
  std::string json;
  for (const auto& [key, value] : metadata)
    json += fmt::format("{}{}:{}", json.empty() ? "" : ",", quoted_json(key), quoted_json(value));
  return fmt::format("\"__metadata__\":{{{}}}", json);
}

}  // namespace

std::optional<int64_t> checked_numel(std::span<const int64_t> shape) {
  int64_t product = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty |= extent == 0;
    if (__builtin_mul_overflow(product, std::max<int64_t>(extent, 1), &product)) return std::nullopt;
  }
  return empty ? 0 : product;
}

std::string SafetensorsEntry::str() const {
  std::string text;
  for (const int64_t extent : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return fmt::format("{}[{}]", dtype, text);
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  const DTypeInfo* info = find_dtype(name);
  return info ? info->ours : std::nullopt;
}

const char* safetensors_name(DType dtype) {
  for (const DTypeInfo& info : kDTypes)
    if (info.ours == dtype) return info.name;
  INGOT_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "the format is little-endian");
  if (file.size() < 8) fail("'{}' has {} bytes, a safetensors file has at least 8", path, file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxHeaderBytes)
    fail("'{}': the header claims {} bytes, at most {} are allowed (not a safetensors file?)", path, length,
         kMaxHeaderBytes);
  if (length > file.size() - 8)
    fail("'{}': the header claims {} bytes, but only {} follow (truncated?)", path, length, file.size() - 8);
  const std::string_view json(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (json.empty() || json[0] != '{') fail("'{}': the header does not start with '{{'", path);
  // The JSON library takes a zero byte for the end of its input.
  if (json.find('\0') != json.npos) fail("'{}': the header has a zero byte at {}", path, json.find('\0'));

  SafetensorsHeader header;
  header.bytes = 8 + length;
  HeaderReader reader(header, path);
  nlohmann::json::sax_parse(json, &reader);
  for (const SafetensorsEntry& entry : header.entries) check_entry(entry, path);
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(header, file.size() - header.bytes, path);
  return header;
}

SafetensorsFile::SafetensorsFile(FileSystem& fs, const std::string& path)
    : path_(path), map_(fs.map(path)), header_(parse_safetensors(map_->bytes(), path)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) index_.emplace(header_.entries[i].name, i);
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.entries[it->second];
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsEntry& entry) const {
  return map_->bytes().subspan(header_.bytes + entry.begin, entry.end - entry.begin);
}

std::string SafetensorsFile::hash(const SafetensorsEntry& entry) const {
  constexpr size_t kPiece = 4 << 20;
  const auto all = data(entry);
  Hasher hasher;
  for (size_t at = 0; at < all.size(); at += kPiece) {
    const auto part = all.subspan(at, std::min(kPiece, all.size() - at));
    hasher.update(part.data(), part.size());
    map_->done_with(part);
  }
  return hasher.hex();
}

std::span<const std::byte> SafetensorsFile::header_bytes() const {
  return map_->bytes().first(header_.bytes);
}

SafetensorsLayout layout_safetensors(std::span<const SafetensorsItem> items,
                                     const SafetensorsMetadata& metadata) {
  SafetensorsLayout layout;
  for (size_t i = 0; i < items.size(); ++i) layout.order.push_back(i);
  std::sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    const ptrdiff_t place_a = enum_place(items[a].dtype), place_b = enum_place(items[b].dtype);
    return place_a != place_b ? place_a > place_b : items[a].name < items[b].name;
  });
  std::string json = "{";
  if (!metadata.empty()) json += metadata_json(metadata);
  std::unordered_set<std::string_view> names;
  int64_t offset = 0;
  for (const size_t i : layout.order) {
    const SafetensorsItem& item = items[i];
    if (item.name.empty() || item.name == "__metadata__")
      fail("'{}' cannot be the name of a tensor", item.name);
    if (!names.insert(item.name).second) fail("the tensor '{}' is given twice", item.name);
    std::string shape;
    for (int d = 0; d < item.shape.rank(); ++d) shape += fmt::format("{}{}", d ? "," : "", item.shape[d]);
    const int64_t end = offset + item.shape.numel() * size_of(item.dtype);
    if (json.size() > 1) json += ",";
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        quoted_json(item.name), safetensors_name(item.dtype), shape, offset, end);
    offset = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  layout.header.resize(8);
  std::memcpy(layout.header.data(), &length, 8);
  layout.header += json;
  return layout;
}

void write_safetensors(FileSystem& fs, const std::string& path, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata) {
  const SafetensorsLayout layout = layout_safetensors(items, metadata);
  const std::string temporary = path + ".tmp";
  const auto file = fs.create(temporary);
  file->append(layout.header.data(), layout.header.size());
  for (const size_t i : layout.order)
    file->append(items[i].data, static_cast<size_t>(items[i].shape.numel() * size_of(items[i].dtype)));
  file->sync();
  file->close();
  fs.rename(temporary, path);
  const size_t slash = path.rfind('/');
  fs.sync_folder(slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1)));
}

}  // namespace ingot
