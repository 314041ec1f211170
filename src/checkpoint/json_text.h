// Quoting of texts for the JSON of manifests and safetensors headers.
#pragma once
#include <string>

namespace ingot {

/// The text as a JSON string, quotes included. Error where it is not valid UTF-8.
std::string quoted_json(const std::string& text);

}  // namespace ingot
