// What this process has in memory.
#pragma once
#include <cstdint>

namespace ingot {

/// Resident memory now; 0 where the system does not say.
int64_t resident_bytes();
/// The most so far.
int64_t peak_resident_bytes();

}  // namespace ingot
