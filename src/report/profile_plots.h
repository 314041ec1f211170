// Where the time of a step went, as bars for the report: from what `ingot profile --json` wrote
// (measure/profile.h has the fields).
#pragma once
#include <string>

namespace ingot {

/// A section of the report: time of a step by purpose, by op and by segment. `json`: of a profile, "" for no
/// section; an Error naming `where` if it is none.
std::string profile_section(const std::string& json, const std::string& where);

}  // namespace ingot
