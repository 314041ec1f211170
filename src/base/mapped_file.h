// Files mapped for reading, and what happens when one shrinks meanwhile: reading beyond its end raises
// SIGBUS, which ends the program with exit code 1 and a message that names the file. Other causes of that
// signal (a disk that cannot read a page) end alike.
#pragma once
#include <memory>
#include <string>

#include "base/file_system.h"

namespace ingot {

/// Maps the first `size` bytes of an open file; `path` is for the message. nullptr, with errno set, where the
/// system refuses.
std::unique_ptr<MappedFile> map_file(int fd, size_t size, const std::string& path);

}  // namespace ingot
