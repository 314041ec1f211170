// Strict reading of JSON objects for this folder's files: every key is wanted, known and of its type.
// Internal: included by .cpp files only (it includes the JSON library).
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ingot::data {

/// One object; `where` names it in errors ("'d/manifest.json': splits[0]").
class JsonFields {
 public:
  JsonFields(const nlohmann::json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail("{}: expected an object, found {}", where_, value.type_name());
  }
  const nlohmann::json& get(const char* key) {
    used_.insert(key);
    const auto it = value_.find(key);
    if (it == value_.end()) fail("{}: the key '{}' is missing", where_, key);
    return *it;
  }
  std::string text(const char* key) {
    const nlohmann::json& v = get(key);
    if (!v.is_string()) fail("{}: '{}' is {}, expected a string", where_, key, v.type_name());
    return v.get<std::string>();
  }
  int64_t integer(const char* key, int64_t lowest, int64_t highest) {
    const nlohmann::json& v = get(key);
    if (!v.is_number_integer()) fail("{}: '{}' is {}, expected an integer", where_, key, v.type_name());
    const bool huge = v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (huge || v.get<int64_t>() < lowest || v.get<int64_t>() > highest)
      fail("{}: '{}' is {}, expected {} to {}", where_, key, v.dump(), lowest, highest);
    return v.get<int64_t>();
  }
  double number(const char* key) {
    const nlohmann::json& v = get(key);
    if (!v.is_number()) fail("{}: '{}' is {}, expected a number", where_, key, v.type_name());
    return v.get<double>();
  }
  const nlohmann::json& list(const char* key) {
    const nlohmann::json& v = get(key);
    if (!v.is_array()) fail("{}: '{}' is {}, expected a list", where_, key, v.type_name());
    return v;
  }
  /// Call last: refuses keys that nobody asked for.
  void refuse_others() const {
    for (const auto& item : value_.items())
      if (!used_.contains(item.key())) fail("{}: unknown key '{}'", where_, item.key());
  }
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json& value_;
  std::string where_;
  std::set<std::string> used_;
};

inline nlohmann::json parse_json(std::string_view text, const std::string& origin) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw Error(fmt::format("'{}' is not valid JSON: {}", origin, e.what()),
                "the file is damaged or no such file");
  }
}

/// Checks {"format": format, "version": v <= newest}.
inline void check_format(JsonFields& fields, const std::string& format, int64_t newest) {
  const std::string found = fields.text("format");
  if (found != format) fail("{}: format is '{}', expected '{}'", fields.where(), found, format);
  const int64_t version = fields.integer("version", 1, INT64_MAX);
  if (version > newest)
    throw Error(fmt::format("{}: version {} is newer than the {} this program reads", fields.where(), version,
                            newest),
                "use a newer program");
}

}  // namespace ingot::data
