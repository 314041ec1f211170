// The examinations of doctor.h by subject. Internal to measure/.
#pragma once
#include <string>
#include <vector>

#include "measure/doctor.h"

namespace ingot::doctor {

using Findings = std::vector<Finding>;

/// `fact` is a note if it has a remedy, else ok.
Finding fact(std::string topic, std::string text, std::string remedy = "");
Finding problem(std::string topic, std::string text, std::string remedy);

/// The first line of a small file below `root`, "" if it cannot be read. `path` begins with '/'.
std::string line_of(const std::string& root, const std::string& path);
/// The value of a "key: value" line, "" if absent: /proc/meminfo, /proc/cpuinfo, /proc/self/status.
std::string field_of(const std::string& root, const std::string& path, const std::string& key);

// Each appends its findings.
void examine_processor(const DoctorOptions& o,
                       Findings& out);                       ///< model, instruction set, cores, caches, clock
void examine_memory(const DoctorOptions& o, Findings& out);  ///< limits, huge pages, shared memory
void examine_devices(const DoctorOptions& o, Findings& out);  ///< device tree, logs of collective libraries
void examine_disk(const DoctorOptions& o, Findings& out);
void examine_libraries(Findings& out);  ///< build, MPI, variables that have no effect on Ingot
/// Accelerators in the device tree.
bool has_accelerators(const DoctorOptions& o);
void examine_sandbox(const DoctorOptions& o, Findings& out);

}  // namespace ingot::doctor
