// Memory of the operating system, below arenas and buffers: allocation with huge pages, address space without
// memory, and giving memory back while its addresses stay. Thread-safe.
#pragma once
#include <cstdint>

namespace ingot {

/// Large blocks are mappings of their own, which the system zeroes and backs with huge pages where it can.
bool is_mapped(int64_t bytes);
/// 64-byte aligned memory; nullptr for no bytes. Zeroed if is_mapped(bytes), else not initialised. Error: out
/// of memory.
void* system_allocate(int64_t bytes);
/// Frees memory of system_allocate() with the same size.
void system_release(void* memory, int64_t bytes);

/// Address space that gets zeroed memory, in small pages, when it is first written; !writable: never, any
/// access crashes.
void* reserve_addresses(int64_t bytes, bool writable);
void release_addresses(void* memory, int64_t bytes);

/// Gives back the whole pages within these bytes. Their contents are undefined. For reserved addresses only.
void give_back_pages(void* data, int64_t bytes);
/// Gives back whole reserved addresses: any access crashes until they are opened, as zeros.
void close_addresses(void* data, int64_t bytes);
void open_addresses(void* data, int64_t bytes);
/// Asks for those huge pages that lie within these bytes, for values that are written whole and given back
/// whole.
void ask_huge_pages(void* data, int64_t bytes);

}  // namespace ingot
