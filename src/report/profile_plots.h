// Bars of the time of a step for the report, from the JSON of `ingot profile` (fields: docs/measuring.md).
#pragma once
#include <string>

namespace ingot {

/// A section of the report: time of a step by purpose, by op and by segment. Empty if `json` is empty; throws
/// Error naming the file `where` if it is not a profile.
std::string profile_section(const std::string& json, const std::string& where);

}  // namespace ingot
