// What the memory of the simulated device holds, as messages say it, and the end of a program whose host code
// touches that memory.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

/// From now on these addresses hold `slot` of op `owner`, or something of category `slot` if `owner` is
/// nullptr. Literals. Callers take turns.
void name_sim_memory(const void* memory, int64_t bytes, const char* owner, const char* slot);

/// The newest name of the memory at an address: "byte 8 of 96, 'y' of op 'add'". "memory without a name" if
/// it has none.
std::string describe_sim_memory(const void* at);

/// Host memory whose values of category `what`, a literal, are on the device; nullptr: they are back. Callers
/// take turns.
void name_moved_memory(const void* host, int64_t bytes, const char* what);

/// Reports an access by host code to these addresses, or to moved memory, before it ends the program. Once in
/// a process.
void watch_sim_addresses(const void* first, int64_t bytes);

}  // namespace ingot
