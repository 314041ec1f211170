// Small JSON objects in files that anything may have written, or that are being written: what is torn,
// foreign or huge is as good as none, and what is missing or has another type as good as not said. Nothing
// here throws.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

/// The content of a file of at most 1 MiB; empty where it cannot be read.
std::string read_small(const std::string& path);
/// The object that a text is; an empty one where it is none.
nlohmann::json object_in(const std::string& text);
/// The object in such a file.
nlohmann::json read_object(const std::string& path);
/// A finite number of an object; `otherwise` where there is none.
double real(const nlohmann::json& object, const char* key, double otherwise);
/// A whole number of an object; `otherwise` where there is none, or one beyond 2^53.
int64_t whole(const nlohmann::json& object, const char* key, int64_t otherwise);
/// A text of an object, cut to 4,000 bytes; empty where there is none.
std::string text_in(const nlohmann::json& object, const char* key);

}  // namespace ingot
