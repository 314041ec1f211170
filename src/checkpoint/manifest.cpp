// See manifest.h.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "base/hash.h"
#include "checkpoint/json_text.h"
#include "checkpoint/safetensors.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

// The first line, `{"checksum": "<32 hex digits>",`, is the same in every version; the checksum covers what
// follows.
constexpr std::string_view kChecksumBegin = "{\"checksum\": \"";
constexpr std::string_view kChecksumEnd = "\",";
constexpr size_t kHashDigits = 32;
constexpr size_t kBodyAt = kChecksumBegin.size() + kHashDigits + kChecksumEnd.size();
constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr int kMaxDepth = 64;

/// Parses JSON; duplicate keys and deep nesting are errors (the library would keep the last, or recurse).
Json parse_json(std::string_view text, const std::string& what, int max_depth) {
  if (text.find('\0') != text.npos) fail("{} has a zero byte", what);
  std::vector<std::unordered_set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > max_depth) fail("{} is nested deeper than {}", what, max_depth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      fail("{} has the key {} twice", what, value.dump());
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& error) {
    fail("{} is not valid JSON: {}", what, error.what());
  }
}

/// The fields of one JSON object: each is taken once, and finish() refuses those that nobody asked for.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("{} is {}, expected an object", where_, object.type_name());
  }
  const Json& take(const char* name, bool right_type(const Json&), const char* type) {
    const auto it = object_.find(name);
    if (it == object_.end()) fail("{} lacks '{}'", where_, name);
    if (!right_type(*it)) fail("{}: '{}' is {}, expected {}", where_, name, it->type_name(), type);
    taken_.insert(name);
    return *it;
  }
  std::string text(const char* name) {
    return take(
               name, [](const Json& j) { return j.is_string(); }, "a text")
        .get<std::string>();
  }
  std::string hash(const char* name) {
    std::string digits = text(name);
    if (digits.size() != kHashDigits || digits.find_first_not_of("0123456789abcdef") != digits.npos)
      fail("{}: '{}' is not a checksum of {} hex digits", where_, name, kHashDigits);
    return digits;
  }
  int64_t count(const char* name) {
    const Json& number = take(
        name, [](const Json& j) { return j.is_number_unsigned(); }, "a whole number");
    return to_count(number, name);
  }
  std::vector<int64_t> counts(const char* name) {
    std::vector<int64_t> result;
    for (const Json& number : take(
             name, [](const Json& j) { return j.is_array(); }, "a list")) {
      if (!number.is_number_unsigned()) fail("{}: '{}' holds {}", where_, name, number.type_name());
      result.push_back(to_count(number, name));
    }
    return result;
  }
  const Json& object(const char* name) {
    return take(
        name, [](const Json& j) { return j.is_object(); }, "an object");
  }
  const Json& list(const char* name) {
    return take(
        name, [](const Json& j) { return j.is_array(); }, "a list");
  }
  void finish() const {
    for (const auto& [name, value] : object_.items())
      if (!taken_.contains(name)) fail("{} has an unknown field '{}'", where_, name);
  }

 private:
  int64_t to_count(const Json& number, const char* name) const {
    const auto value = number.get<uint64_t>();
    if (value > uint64_t{1} << 62) fail("{}: '{}' is {}, at most 2^62 is allowed", where_, name, value);
    return static_cast<int64_t>(value);
  }
  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> taken_;
};

template <class Enum, size_t N>
Enum parse_enum(const std::string& name, const Enum (&values)[N], const std::string& where) {
  for (const Enum value : values)
    if (name == name_of(value)) return value;
  fail("{}: '{}' is unknown to this program", where, name);
}

/// A shape or offset whose products are safe in every order (see checked_numel).
Shape to_shape(const std::vector<int64_t>& extents, const std::string& where) {
  if (extents.size() > Shape::kMaxRank)
    fail("{} has {} dimensions, at most {} are allowed", where, extents.size(), Shape::kMaxRank);
  Shape shape;
  for (const int64_t e : extents) shape.push_back(e);
  return shape;
}

void check_file_name(const std::string& name, const std::string& where) {
  const bool plain =
      !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return (c < 128 && std::isalnum(c)) || c == '.' || c == '-' || c == '_';
      });
  if (!plain)
    fail("{}: {} is not a plain file name", where,
         Json(name).dump(-1, ' ', true, Json::error_handler_t::replace));
}

StoredTensor parse_tensor(const Json& json, const std::map<std::string, StoredFile>& files,
                          const std::string& where, bool whole) {
  constexpr TensorKind kKinds[] = {TensorKind::weight, TensorKind::optimizer, TensorKind::buffer};
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i32,
                              DType::i64, DType::u8,   DType::u16};
  Fields fields(json, where);
  StoredTensor tensor;
  tensor.kind = parse_enum(fields.text("kind"), kKinds, where + ": kind");
  tensor.meta.dtype = parse_enum(fields.text("dtype"), kTypes, where + ": dtype");
  const std::vector<int64_t> extents = fields.counts("shape");
  tensor.meta.shape = to_shape(extents, where);
  const auto numel = checked_numel(extents);
  int64_t bytes = 0;
  if (!numel || __builtin_mul_overflow(*numel, size_of(tensor.meta.dtype), &bytes))
    fail("{}: its size overflows", where);
  std::vector<Region> regions;
  for (const Json& item : fields.list("pieces")) {
    Fields piece(item, where + ": a piece");
    StoredPiece stored;
    stored.region = {to_shape(piece.counts("offset"), where), to_shape(piece.counts("shape"), where)};
    stored.file = piece.text("file");
    stored.key = piece.text("key");
    stored.hash = piece.hash("hash");
    piece.finish();
    if (!files.contains(stored.file))
      fail("{}: a piece lies in '{}', which is not in the list of files", where, stored.file);
    if (stored.region.offset.rank() != stored.region.shape.rank() ||
        !inside(stored.region, tensor.meta.shape))
      fail("{}: a piece at offset {} of shape {} is not inside {}", where, stored.region.offset.str(),
           stored.region.shape.str(), tensor.meta.shape.str());
    regions.push_back(stored.region);
    tensor.pieces.push_back(std::move(stored));
  }
  fields.finish();
  if (whole)
    if (const auto fault = coverage_fault(tensor.meta.shape, regions)) fail("{}: {}", where, *fault);
  return tensor;
}

void check_checksum(std::string_view text, const std::string& path) {
  if (text.size() < kBodyAt || !text.starts_with(kChecksumBegin) ||
      text.substr(kBodyAt - kChecksumEnd.size(), kChecksumEnd.size()) != kChecksumEnd)
    fail("'{}' does not start with a checksum line (truncated, or not a checkpoint's manifest)", path);
  const std::string_view expected = text.substr(kChecksumBegin.size(), kHashDigits),
                         body = text.substr(kBodyAt);
  const std::string found = hash128_hex(body.data(), body.size());
  if (found != expected) fail("'{}' is damaged: its checksum is {}, expected {}", path, found, expected);
}

std::string shape_json(const Shape& shape) {
  std::string text;
  for (int d = 0; d < shape.rank(); ++d) text += fmt::format("{}{}", d ? "," : "", shape[d]);
  return fmt::format("[{}]", text);
}

std::string tensor_json(const StoredTensor& tensor) {
  std::string pieces;
  for (const StoredPiece& p : tensor.pieces)
    pieces += fmt::format("{}{{\"offset\":{},\"shape\":{},\"file\":{},\"key\":{},\"hash\":\"{}\"}}",
                          pieces.empty() ? "" : ",", shape_json(p.region.offset), shape_json(p.region.shape),
                          quoted_json(p.file), quoted_json(p.key), p.hash);
  return fmt::format("{{\"kind\":\"{}\",\"dtype\":\"{}\",\"shape\":{},\"pieces\":[{}]}}",
                     name_of(tensor.kind), name_of(tensor.meta.dtype), shape_json(tensor.meta.shape), pieces);
}

/// One object with a line per entry: a person can read it, and a diff of two manifests is short.
template <class Map, class ToJson>
std::string lines(const Map& map, ToJson to_json) {
  std::string text = "{";
  for (const auto& [name, value] : map)
    text += fmt::format("{}\n{}: {}", text.size() > 1 ? "," : "", quoted_json(name), to_json(value));
  return text + "\n}";
}

}  // namespace

void check_blob(const std::string& name, const std::string& text) {
  parse_json(text, fmt::format("the state '{}'", name), kMaxDepth - 2);
}

std::string encode_manifest(const Manifest& m) {
  std::string body = fmt::format(
      "\n\"format\": \"ingot-checkpoint\",\n\"version\": {},\n\"step\": {},\n\"sequence\": "
      "{},\n\"code_version\": {},\n"
      "\"protection\": {},\n",
      kManifestVersion, m.step, m.sequence, quoted_json(m.code_version), quoted_json(m.protection));
  body += fmt::format("\"files\": {},\n", lines(m.files, [](const StoredFile& f) {
                        return fmt::format("{{\"bytes\":{},\"header_hash\":\"{}\"}}", f.bytes, f.header_hash);
                      }));
  body += fmt::format("\"tensors\": {},\n", lines(m.tensors, tensor_json));
  for (const auto& [name, text] : m.blobs) check_blob(name, text);
  body += fmt::format("\"blobs\": {}\n}}\n", lines(m.blobs, [](const std::string& text) { return text; }));
  return fmt::format("{}{}{}{}", kChecksumBegin, hash128_hex(body.data(), body.size()), kChecksumEnd, body);
}

namespace {

/// `whole`: every tensor must be covered by its pieces.
Manifest parse(std::string_view text, const std::string& path, bool trusted_bytes, bool whole) {
  if (text.size() > kMaxBytes)
    fail("'{}' has {} bytes, at most {} are allowed", path, text.size(), kMaxBytes);
  if (!trusted_bytes) check_checksum(text, path);
  const std::string where = fmt::format("'{}'", path);
  const Json json = parse_json(text, where, kMaxDepth);
  Fields fields(json, where);
  if (fields.text("format") != "ingot-checkpoint") fail("{}: 'format' is not 'ingot-checkpoint'", where);
  const int64_t version = fields.count("version");
  if (version > kManifestVersion)
    throw NewerFormat(fmt::format("{} has format version {}, this program reads up to {}", where, version,
                                  kManifestVersion),
                      "use the program version that wrote it, or a newer one");
  if (version < 1) fail("{} has format version {}, expected {}", where, version, kManifestVersion);
  Manifest m;
  fields.text("checksum");
  m.step = fields.count("step");
  m.sequence = fields.count("sequence");
  m.code_version = fields.text("code_version");
  m.protection = fields.text("protection");
  for (const auto& [name, value] : fields.object("files").items()) {
    check_file_name(name, where);
    Fields file(value, fmt::format("{}: file '{}'", where, name));
    m.files[name] = {static_cast<uint64_t>(file.count("bytes")), file.hash("header_hash")};
    file.finish();
  }
  std::set<std::pair<std::string, std::string>> used;
  for (const auto& [name, value] : fields.object("tensors").items()) {
    StoredTensor tensor = parse_tensor(value, m.files, fmt::format("{}: tensor '{}'", where, name), whole);
    for (const StoredPiece& piece : tensor.pieces)
      if (!used.emplace(piece.file, piece.key).second)
        fail("{}: tensor '{}' shares '{}' of '{}' with another piece", where, name, piece.key, piece.file);
    m.tensors.emplace(name, std::move(tensor));
  }
  for (const auto& [name, value] : fields.object("blobs").items()) m.blobs[name] = value.dump();
  fields.finish();
  return m;
}

void merge_tensor(const std::string& name, StoredTensor part, std::map<std::string, StoredTensor>& tensors) {
  const auto [it, first] = tensors.try_emplace(name, part);
  if (first) return;
  StoredTensor& all = it->second;
  if (all.kind != part.kind || !(all.meta.shape == part.meta.shape) || all.meta.dtype != part.meta.dtype)
    fail("tensor '{}': the ranks disagree: {} {} and {} {}", name, name_of(all.kind), all.meta.str(),
         name_of(part.kind), part.meta.str());
  std::move(part.pieces.begin(), part.pieces.end(), std::back_inserter(all.pieces));
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path, bool trusted_bytes) {
  return parse(text, path, trusted_bytes, true);
}

Manifest merge_manifests(const std::vector<std::string>& parts) {
  Manifest merged;
  for (size_t r = 0; r < parts.size(); ++r) {
    Manifest part = parse(parts[r], fmt::format("manifest of rank {}", r), false, false);
    if (r == 0) {
      merged = std::move(part);
      continue;
    }
    for (const auto& [name, file] : part.files)
      if (!merged.files.emplace(name, file).second) fail("two ranks write the file '{}'", name);
    for (auto& [name, tensor] : part.tensors) merge_tensor(name, std::move(tensor), merged.tensors);
  }
  for (const auto& [name, tensor] : merged.tensors) {
    std::vector<Region> regions;
    for (const StoredPiece& piece : tensor.pieces) regions.push_back(piece.region);
    if (const auto fault = coverage_fault(tensor.meta.shape, regions)) fail("tensor '{}': {}", name, *fault);
  }
  return merged;
}

}  // namespace ingot
