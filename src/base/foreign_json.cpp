// See foreign_json.h.
#include "base/foreign_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_system.h"

namespace ingot {

std::string read_small(const std::string& path) {
  try {
    if (!real_file_system().exists(path)) return "";
    return read_at_most(real_file_system(), path, 1 << 20);
  } catch (const Error&) {
    return "";
  }
}

nlohmann::json object_in(const std::string& text) {
  nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  return j.is_object() ? j : nlohmann::json::object();
}

nlohmann::json read_object(const std::string& path) {
  return object_in(read_small(path));
}

double real(const nlohmann::json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return otherwise;
  const double value = found->get<double>();
  return std::isfinite(value) ? value : otherwise;
}

int64_t whole(const nlohmann::json& object, const char* key, int64_t otherwise) {
  const double value = real(object, key, std::nan(""));
  return std::abs(value) <= 0x1p53 && value == std::floor(value) ? static_cast<int64_t>(value) : otherwise;
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>().substr(0, 4000) : "";
}

}  // namespace ingot
