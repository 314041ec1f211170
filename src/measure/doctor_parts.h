// The parts of doctor.h, each a look at one thing. Internal to measure/.
#pragma once
#include <string>
#include <vector>

#include "measure/doctor.h"

namespace ingot::doctor {

using Findings = std::vector<Finding>;

// A finding is a note (or problem) if it has a remedy.
Finding fact(std::string topic, std::string text, std::string remedy = "");
Finding problem(std::string topic, std::string text, std::string remedy);

/// The first line of a small file below `root`, "" where it cannot be read. `path` begins with '/'.
std::string line_of(const std::string& root, const std::string& path);
/// The value of "key: value" in a file of such lines, "" where it is absent: /proc/meminfo, /proc/cpuinfo, /proc/self/status.
std::string field_of(const std::string& root, const std::string& path, const std::string& key);

void look_at_processor(const DoctorOptions& o,
                       Findings& out);                       ///< model, instruction set, cores, caches, clock
void look_at_memory(const DoctorOptions& o, Findings& out);  ///< limits, huge pages, shared memory
void look_at_disk(const DoctorOptions& o, Findings& out);
void look_at_libraries(Findings& out);  ///< build, MPI, variables that mean nothing to Ingot
void look_at_sandbox(const DoctorOptions& o, Findings& out);

}  // namespace ingot::doctor
