// The name of the machine that this process runs on.
#pragma once
#include <string>

namespace ingot {

/// Slurm's name for the node, if it has one, since its commands know no other; else the system's, without
/// which it is "localhost".
std::string host_name();

}  // namespace ingot
