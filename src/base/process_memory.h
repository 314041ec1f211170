// What this process has in memory.
#pragma once
#include <cstdint>

namespace ingot {

/// Resident memory now; 0 where the system does not say.
int64_t resident_bytes();
/// The most so far, or since restart_peak_resident_bytes().
int64_t peak_resident_bytes();
/// False where the system (Linux can) or its permissions do not allow it: then nothing changes.
bool restart_peak_resident_bytes();
/// Gives memory that the allocator keeps, but nothing uses, back to the system where it can.
void return_unused_memory();

}  // namespace ingot
