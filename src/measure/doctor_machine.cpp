// See doctor_parts.h: processor and memory.
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/control_group.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "comm/cores.h"
#include "device/machine/peak.h"
#include "device/simd/isa.h"
#include "measure/doctor_parts.h"

namespace ingot::doctor {
namespace {

constexpr const char* kFeatures[] = {"avx2",        "fma",         "avx512f",  "avx512bw", "avx512_vnni",
                                     "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"};

std::string processor_text(const std::string& root) {
  const auto field = [&](const char* key) { return field_of(root, "/proc/cpuinfo", key); };
  std::string name = field("model name");
  if (name.empty()) name = machine_info().cpu;
  std::string text = name;
  if (const std::string family = field("cpu family"); !family.empty())
    text += fmt::format(" (family {}, model {})", family, field("model"));
  const std::string flags = " " + field("flags") + " ";
  text += "; has";
  bool any = false;
  for (const char* feature : kFeatures)
    if (flags.find(fmt::format(" {} ", feature)) != flags.npos)
      text += std::string(" ") + feature, any = true;
  return text + (any ? "" : " none of the vector instructions that Ingot uses");
}

Finding instruction_set(bool rates) {
  const Isa isa = active_isa();
  Isa best = Isa::generic;
  for (const Isa each : kEveryIsa)
    if (isa_available(each)) best = each;
  const std::string name = isa_name(isa);
  if (isa < best)
    return fact("instruction set",
                fmt::format("{} by INGOT_ISA; this processor has {}", name, isa_name(best)),
                "unset INGOT_ISA");
  if (isa == Isa::generic)
    return fact("instruction set", "generic kernels, several times slower than AVX2's",
                "run on a processor with AVX2 and FMA");
  if (isa != Isa::avx512bf16 || !rates) return fact("instruction set", name + " kernels");
  double ratios[3];
  for (double& r : ratios) r = dot_peak_gflops(1) / fma_peak_gflops(1);
  std::sort(ratios, ratios + 3);
  const std::string text =
      fmt::format("{} kernels; the bf16 dot product has {:.2g} times the rate of fp32", name, ratios[1]);
  return fact("instruction set", text,
              ratios[1] > 0.9 ? ""
                              : "compare with INGOT_ISA=avx512, which widens bf16 operands to fp32, with the "
                                "same bits");
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (size_t core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(static_cast<int>(core));
  return cores;
}

std::string core_path(int core, const char* file) {
  return fmt::format("/sys/devices/system/cpu/cpu{}/{}", core, file);
}

Finding cores_and_threads(const std::string& root) {
  const std::vector<int> cores = allowed_cores();
  std::set<std::string> physical;
  for (const int core : cores)
    if (const std::string siblings = line_of(root, core_path(core, "topology/thread_siblings_list"));
        !siblings.empty())
      physical.insert(siblings);
  const double quota = control_group(root).cores;
  const auto allowed = static_cast<int>(cores.size());
  const int threads = num_threads(),
            distinct = physical.empty() ? allowed : static_cast<int>(physical.size());
  std::string text = fmt::format("{} (numbers {}); Ingot uses {} thread{}", allowed, cores_text(cores),
                                 threads, threads == 1 ? "" : "s");
  if (quota > 0) text += fmt::format("; the control group allows {:.2f} cores", quota);
  if (distinct < allowed) text += fmt::format("; {} hyper-threads share {} cores", allowed, distinct);
  if (quota > 0 && threads > std::ceil(quota))
    return fact("cores", text,
                fmt::format("set INGOT_THREADS={}: more threads than cores wait for each other",
                            std::max(1, static_cast<int>(quota))));
  if (threads > allowed)
    return fact("cores", text, "lower INGOT_THREADS: more threads than cores wait for each other");
  if (threads < std::min(allowed, quota > 0 ? std::max(1, static_cast<int>(quota)) : allowed) &&
      threads < distinct)
    return fact("cores", text, "unset INGOT_THREADS to use all");
  if (threads > distinct)
    return fact("cores", text,
                fmt::format("compare with INGOT_THREADS={}: matrix products gain nothing from hyper-threads",
                            distinct));
  return fact("cores", text);
}

void numa(const std::string& root, Findings& out) {
  const std::string online = line_of(root, "/sys/devices/system/node/online");
  if (online.empty() || online == "0") return;
  out.push_back(fact("memory domains", fmt::format("NUMA nodes {}", online),
                     "start one rank per node: ingot launch --topology (docs/parallel.md)"));
}

Finding load(const std::string& root) {
  const std::string text = line_of(root, "/proc/loadavg");
  const double running = std::atof(text.c_str());
  const double share = running / static_cast<double>(std::max<size_t>(1, allowed_cores().size()));
  return fact("load", fmt::format("{:.2f} runnable threads in the last minute", running),
              share < 0.3 ? "" : "measure on an idle machine: runs are slower now, and times vary");
}

Finding caches(const std::string& root) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    const std::string folder = fmt::format("cache/index{}/", i);
    const auto entry = [&](const char* name) { return line_of(root, core_path(0, (folder + name).c_str())); };
    const std::string level = entry("level"), type = entry("type"), size = entry("size");
    if (level.empty() || type == "Instruction") continue;
    text += fmt::format("{}L{}{} {} for cores {}", text.empty() ? "" : ", ", level, type == "Data" ? "d" : "",
                        size, entry("shared_cpu_list"));
  }
  return fact("caches", text.empty() ? "unknown: the system does not report them" : text);
}

Finding clock_source(const std::string& root) {
  const std::string source =
      line_of(root, "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  constexpr int kCalls = 20000;
  const double begin = monotonic_seconds();
  for (int i = 0; i < kCalls; ++i) monotonic_seconds();
  const double each = (monotonic_seconds() - begin) / kCalls;
  return fact(
      "clock",
      fmt::format("{}, {:.0f} ns per reading", source.empty() ? "source unknown" : source, each * 1e9),
      each < 2e-6 ? ""
                  : "times of single ops include reading the clock; the system has no faster "
                    "source");
}

Finding memory_size(const std::string& root) {
  const auto kib = [&](const char* key) {
    return 1024 * std::atof(field_of(root, "/proc/meminfo", key).c_str());
  };
  const ControlGroup group = control_group(root);
  const double total = kib("MemTotal");
  double free = kib("MemAvailable");
  std::string text = fmt::format("{} of {} are free", format_bytes(free), format_bytes(total));
  if (group.memory_bytes > 0) {
    const auto limit = static_cast<double>(group.memory_bytes),
               left = limit - static_cast<double>(group.used_bytes);
    text += fmt::format("; the control group allows {}, {} left (page cache counts as used)",
                        format_bytes(limit), format_bytes(left));
    free = std::min(free, limit);
  }
  if (rlimit space{}; ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    return fact("memory",
                text + fmt::format("; address space is limited to {}",
                                   format_bytes(static_cast<double>(space.rlim_cur))),
                "ulimit -v unlimited: mapped files and planned buffers need address space, not memory");
  if (free < 512e6)
    return fact("memory", text,
                "free some, or choose small models: ingot run RECIPE --plan says what a run needs");
  return fact("memory", text);
}

Finding huge_pages(const std::string& root) {
  const std::string modes = line_of(root, "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = modes.find('['), close = modes.find(']');
  const std::string mode =
      open == modes.npos || close == modes.npos ? "" : modes.substr(open + 1, close - open - 1);
  std::string text = mode.empty() ? "no transparent huge pages" : "transparent: " + mode;
  if (const std::string free = field_of(root, "/proc/meminfo", "HugePages_Free"); !free.empty())
    text += fmt::format("; hugetlb: {} free (Ingot needs none)", free);
  if (mode == "always" || mode == "madvise") return fact("huge pages", text);
  return fact("huge pages", text,
              "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: faster reads of large buffers");
}

/// Bytes that /dev/shm was mounted with: "size=65536k" among the last options of its mount. 0: not said.
double mounted_size(const std::string& root) {
  std::ifstream mounts(root + "/proc/self/mountinfo");
  double size = 0;
  for (std::string line; std::getline(mounts, line);) {
    const size_t option = line.find("size=", std::min(line.find(" - "), line.size()));
    if (line.find(" /dev/shm ") == line.npos || option == line.npos) continue;
    size = std::atof(line.c_str() + option + 5);
    const size_t unit = line.find_first_not_of("0123456789", option + 5);
    const char letter = unit == line.npos ? ' ' : line[unit];
    size *= letter == 'k' ? 1024 : letter == 'm' ? 1 << 20 : letter == 'g' ? 1 << 30 : 1;
  }
  return size;
}

Finding shared_memory(const DoctorOptions& o) {
  struct statvfs info {};
  if (::statvfs((o.root + "/dev/shm").c_str(), &info) != 0)
    return fact("shared memory", "there is no /dev/shm",
                "mount a tmpfs there: MPI's ranks on one machine exchange data through it");
  double bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (const double size = mounted_size(o.root); size > 0) bytes = std::min(bytes, size);
  const std::string text = fmt::format("{} free in /dev/shm", format_bytes(bytes));
  if (has_accelerators(o) && bytes < 1e9)
    return fact("shared memory", text,
                "enlarge it (containers: --shm-size=1g): collective libraries take up to 1 GB of it");
  return fact("shared memory", text,
              bytes >= 128e6 ? ""
                             : "for many ranks enlarge it (containers: --shm-size=1g): MPI's ranks on one "
                               "machine exchange data through it");
}

}  // namespace

void examine_processor(const DoctorOptions& o, Findings& out) {
  out.push_back(fact("processor", processor_text(o.root)));
  out.push_back(instruction_set(o.rates));
  out.push_back(cores_and_threads(o.root));
  numa(o.root, out);
  out.push_back(load(o.root));
  out.push_back(caches(o.root));
  out.push_back(clock_source(o.root));
}

void examine_memory(const DoctorOptions& o, Findings& out) {
  out.push_back(memory_size(o.root));
  out.push_back(huge_pages(o.root));
  out.push_back(shared_memory(o));
}

}  // namespace ingot::doctor
