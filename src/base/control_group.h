// The processor time and memory that this process's control group (container, job) allows. Both versions of
// the kernel's interface are read, from the process's own group up to the root; the tightest limit counts.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

struct ControlGroup {
  double cores = 0;          ///< allowed processor time in cores; 0: no limit
  int64_t memory_bytes = 0;  ///< limit; 0: none
  int64_t used_bytes = 0;    ///< memory in use by the group that has this limit
};

/// `root` stands for "/": tests put files elsewhere. A limit that cannot be read does not count.
ControlGroup control_group(const std::string& root = "/");

}  // namespace ingot
