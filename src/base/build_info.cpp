// See build_info.h. The generated header is written by cmake/IngotBuildInfo.cmake and included here only, so
// that a new commit recompiles one small file.
#include "base/build_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/control_group.h"
#include "ingot_build_info.h"

namespace ingot {
namespace {

std::string first_cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 || line.rfind("Model", 0) == 0) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

int64_t memory_limit() {
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE),
                limit = control_group().memory_bytes;
  return limit > 0 ? std::min(physical, limit) : physical;
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info{INGOT_BUILD_VERSION, INGOT_BUILD_COMMIT, INGOT_BUILD_COMPILER,
                              INGOT_BUILD_TYPE,    INGOT_BUILD_FLAGS,  INGOT_BUILD_LIBRARIES};
  return info;
}

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = first_cpu_name();
  utsname names{};
  if (uname(&names) == 0)
    info.system = std::string(names.sysname) + " " + names.release + " " + names.machine;
  cpu_set_t set;
  CPU_ZERO(&set);
  info.cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  info.memory_bytes = memory_limit();
  return info;
}

}  // namespace ingot
