// What this program was built from and what it runs on. Every run records it; `ingot --version` prints it.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ingot {

struct BuildInfo {
  std::string version;   ///< "0.1.0"
  std::string commit;    ///< git commit; "+changes" follows for a changed working tree; "unknown" without git
  std::string compiler;  ///< "GNU 12.2.0"
  std::string build_type;
  std::string flags;
  std::vector<std::pair<std::string, std::string>> libraries;  ///< name, version
};
const BuildInfo& build_info();

struct MachineInfo {
  std::string cpu;     ///< model name as the system gives it
  std::string system;  ///< "Linux 6.1.0 x86_64"
  int64_t cores = 0;   ///< logical cores that this process may use
  /// The smaller of the machine's memory and the limit of this process's control group.
  int64_t memory_bytes = 0;
};
MachineInfo machine_info();

}  // namespace ingot
