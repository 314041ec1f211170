// What the system says of a process's memory.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "support/support.h"

namespace ingot::test {

/// A line of /proc/<process>/status in bytes, such as VmRSS (resident now) or VmHWM (at most so far); 0 where
/// the process has ended.
inline int64_t status_bytes(const std::string& name, const std::string& process = "self") {
  const std::string path = "/proc/" + process + "/status";
  if (!std::filesystem::exists(path)) return 0;
  std::istringstream status(read_text(path));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  return 0;
}

}  // namespace ingot::test
