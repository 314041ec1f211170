// Lists of processor cores as text ("0-3,8"), and binding a process to some of them.
#pragma once
#include <string>
#include <vector>

namespace ingot {

/// "0-3,8" -> 0 1 2 3 8. Throws Error, which names `where`, for anything that is not such a list.
std::vector<int> parse_cores(const std::string& text, const std::string& where);
std::string cores_text(const std::vector<int>& cores);

/// The calling thread and those that it makes later run on these cores only. Throws Error where the machine
/// lacks one.
void bind_to_cores(const std::vector<int>& cores);

}  // namespace ingot
