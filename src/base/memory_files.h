// A file system in memory, for files that are needed while the process lives and are to leave no trace.
#pragma once
#include <memory>

#include "base/file_system.h"

namespace ingot {

/// An empty one. Files that are mapped stay valid when it is gone. Thread-safe for different files. Error
/// where memory runs out, or where the system has no anonymous files.
std::unique_ptr<FileSystem> memory_file_system();

}  // namespace ingot
