// What this process's control group (container, job) allows: processor time and memory. Both generations of the kernel's
// interface are read, from the process's own group up to the root: the tightest limit counts.
#pragma once
#include <cstdint>
#include <string>

namespace ingot {

struct ControlGroup {
  double cores = 0;          ///< processor time that it may use, in cores; 0: no limit
  int64_t memory_bytes = 0;  ///< limit; 0: none
  int64_t used_bytes = 0;    ///< of the group with that limit
};

/// `root` stands for "/": tests plant files elsewhere. What cannot be read limits nothing.
ControlGroup control_group(const std::string& root = "/");

}  // namespace ingot
