// Reads the fields of a JSON object from a client, each with its type and range; what is not read is
// refused by name, so that no field is dropped silently. null counts as absent. Throws ApiError (400) that
// names the field.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/range.h"

namespace ingot::serve {

/// The body of a request as JSON. Refuses what is not JSON, nests deeper than 64, or has over 2^20 values
/// (which would take fifty times its bytes in memory).
nlohmann::json parse_body(std::string_view body);

class JsonFields {
 public:
  /// `where`: the path of the object for messages, "" or "stream_options.". `object` must outlive the reader.
  JsonFields(const nlohmann::json& object, std::string where = "");

  std::optional<int64_t> integer(const char* name, const Range& range);
  std::optional<double> number(const char* name, const Range& range);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string> text(const char* name);
  /// A value of any type; nullptr where absent or null.
  const nlohmann::json* value(const char* name);
  /// A field that may only have one of these values (JSON texts), which change nothing. `why` ends the
  /// message.
  void only(const char* name, std::initializer_list<const char*> allowed, const char* why);
  /// Fields that say nothing about the answer, of any value.
  void ignore(std::initializer_list<const char*> names);
  /// Refuses the first field that was not read.
  void done() const;

  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string, std::less<>> read_;
};

/// A JSON value in a message: at most 40 bytes of it.
std::string shown(const nlohmann::json& value);

}  // namespace ingot::serve
