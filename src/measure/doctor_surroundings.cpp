// See doctor_parts.h: disk, libraries, sandbox.
#include <linux/perf_event.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/build_info.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/folder_lock.h"
#include "base/progress.h"
#include "base/spread.h"
#include "comm/launch.h"
#include "measure/doctor_parts.h"
#include "measure/scratch_file.h"

namespace ingot::doctor {
namespace {

std::string existing_parent(const std::string& folder) {
  std::error_code failed;
  std::filesystem::path at = std::filesystem::absolute(folder, failed);
  while (!std::filesystem::is_directory(at, failed)) {
    if (at == at.parent_path())
      throw Error(fmt::format("'{}' is not a folder, and has no existing parent", folder), "name a folder");
    at = at.parent_path();
  }
  return std::filesystem::canonical(at, failed).string();
}

/// The type of the file system of a folder: that of the mount with the longest path above it, the last if
/// several are equal.
std::string file_system_of(const std::string& root, const std::string& folder) {
  std::ifstream mounts(root + "/proc/self/mountinfo");
  std::string best = "unknown";
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);  // "36 35 98:0 /a /mnt rw,noatime master:1 - ext4 /dev/sda1 rw"
    std::string skipped, at, type;
    for (int i = 0; i < 4; ++i) words >> skipped;
    words >> at;
    while (words >> skipped && skipped != "-") {
    }
    if (!(words >> type)) continue;
    const bool above = at == "/" || folder == at || folder.starts_with(at + "/");
    if (above && at.size() >= longest) longest = at.size(), best = type;
  }
  return best;
}

/// "writes 1.2 GB/s with sync, a small write is durable after 2 ms".
std::string disk_speed(const std::string& folder, int64_t bytes) {
  const int64_t piece = std::min<int64_t>(bytes, int64_t{4} << 20);
  const auto data = transfer_buffer(piece);
  const ScratchFile file(folder, false);
  std::vector<double> rates, latencies;
  for (int trial = 0; trial < 3; ++trial) {
    const double begin = monotonic_seconds();
    for (int64_t at = 0; at < bytes; at += piece) file.write(data.get(), std::min(piece, bytes - at), at);
    file.sync();
    rates.push_back(static_cast<double>(bytes) / (monotonic_seconds() - begin));
  }
  const int64_t small = std::min<int64_t>(bytes, 4096);
  for (int i = 0; i < 9; ++i) {
    const double begin = monotonic_seconds();
    file.write(data.get(), small, 0);
    file.sync();
    latencies.push_back(monotonic_seconds() - begin);
  }
  return fmt::format("writes {}/s with fsync ({}, median of 3); a small write is durable after {}",
                     format_bytes(spread_of(rates).median), format_bytes(static_cast<double>(bytes)),
                     format_seconds(spread_of(latencies).median));
}

/// Tries what a run folder needs: a lock, a rename, a memory mapping. Throws Error if one fails.
void try_run_folder(const std::string& folder) {
  std::string name = folder + "/.ingot-doctor-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    throw Error(fmt::format("cannot make a folder in '{}': {}", folder, std::strerror(errno)),
                "name a folder that can be written");
  FileSystem& fs = real_file_system();
  try {
    const FolderLock lock(name, "run");
    write_file_atomically(fs, name + "/file", "content");
    if (fs.map(name + "/file")->bytes().size() != 7)
      throw Error(fmt::format("a file mapped in '{}' has the wrong size", folder));
    fs.remove_all(name);
  } catch (...) {
    fs.remove_all(name);
    throw;
  }
}

/// Runs `attempt` in a child, which a sandbox may kill. Returns 0, an errno, or minus the signal that killed
/// the child.
template <class Attempt>
int probe(Attempt&& attempt) {
  const pid_t pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) ::_exit(attempt());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string refusal(int result) {
  return result < 0 ? fmt::format("the sandbox kills a process that tries (signal {})", -result)
                    : std::strerror(result);
}

int try_perf_events() {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_HARDWARE;
  attr.config = PERF_COUNT_HW_CPU_CYCLES;
  attr.exclude_kernel = attr.exclude_hv = 1;
  return ::syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0 ? 0 : errno;
}

/// Reads a child's memory, as MPI's ranks read each other's.
int try_reading_a_child() {
  static int word = 7;
  int ends[2];
  if (::pipe(ends) != 0) return errno;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char end;
    while (::read(ends[0], &end, 1) < 0 && errno == EINTR) {  // until the parent closes its end
    }
    ::_exit(0);
  }
  int copy = 0;
  iovec here{&copy, sizeof copy}, there{&word, sizeof word};
  const int result =
      ::process_vm_readv(child, &here, 1, &there, 1, 0) == sizeof copy && copy == 7 ? 0 : errno;
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  return result;
}

/// Bytes that this process may lock; infinity: any number.
double lockable(const std::string& root) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  std::ifstream limits(root + "/proc/self/limits");
  constexpr std::string_view kName = "Max locked memory";
  for (std::string line; std::getline(limits, line);) {
    if (!line.starts_with(kName)) continue;
    std::istringstream words(line.substr(kName.size()));
    std::string soft;
    words >> soft;
    return soft == "unlimited" ? kAny : std::atof(soft.c_str());
  }
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  return locked.rlim_cur == RLIM_INFINITY ? kAny : static_cast<double>(locked.rlim_cur);
}

void limits(const std::string& root, Findings& out) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  out.push_back(fact(
      "open files", fmt::format("at most {}", files.rlim_cur),
      files.rlim_cur >= 1024 ? "" : "ulimit -n 4096: token shards and checkpoint pieces are open files"));
  const bool network = std::filesystem::exists(root + "/sys/class/infiniband");
  const double locked = lockable(root);
  const std::string most = std::isinf(locked) ? "unlimited" : "at most " + format_bytes(locked);
  out.push_back(fact("locked memory", most + (network ? "" : " (only MPI over InfiniBand locks any)"),
                     network && !std::isinf(locked)
                         ? "ulimit -l unlimited (containers: --ulimit memlock=-1): transfers over InfiniBand "
                           "lock their buffers"
                         : ""));
}

Finding message_passing() {
  const std::string library = mpi_name(), mpirun = default_mpirun();
  if (library.empty())
    return fact("MPI", "built without MPI: one process, ranks are threads",
                "for ranks as processes build with -DINGOT_MPI=ON");
  const std::string version = mpirun_version(mpirun);
  if (version.empty())
    return fact("MPI", fmt::format("built with {}, but '{}' cannot be started", library, mpirun),
                "install the launcher of this library, or name it with ingot launch --mpirun");
  if (is_open_mpi(version) != is_open_mpi(library))
    return problem("MPI",
                   fmt::format("built with {}, but '{}' belongs to another: {}", library, mpirun,
                               version.substr(0, version.find('\n'))),
                   "name the launcher of the same library with ingot launch --mpirun, or rebuild");
  const std::string text = fmt::format("built with {}, launched by {}", library, mpirun);
  if (is_open_mpi(library) && ::geteuid() == 0 && std::getenv("OMPI_ALLOW_RUN_AS_ROOT") == nullptr)
    return fact("MPI", text + ", which refuses root",
                "set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, or be another user");
  return fact("MPI", text);
}

}  // namespace

void examine_libraries(Findings& out) {
  const BuildInfo& b = build_info();
  const bool fast = b.build_type == "Release" || b.build_type == "RelWithDebInfo";
  out.push_back(fact("build",
                     fmt::format("ingot {} ({}), {}, {}", b.version, b.commit, b.compiler, b.build_type),
                     fast ? "" : "build with cmake --preset release: this one is many times slower"));
  std::string text = "own kernels and threads: no BLAS, oneDNN or OpenMP whose settings could be wrong",
              ignored;
  for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "MKL_NUM_THREADS",
                           "BLIS_NUM_THREADS", "BLIS_ARCH_TYPE", "DNNL_MAX_CPU_ISA", "GOMP_CPU_AFFINITY"})
    if (std::getenv(name) != nullptr) ignored += (ignored.empty() ? "" : ", ") + std::string(name);
  if (!ignored.empty()) text += fmt::format("; {} set, without effect on Ingot", ignored);
  out.push_back(
      fact("libraries", text,
           ignored.empty() ? "" : "INGOT_THREADS sets threads, INGOT_ISA limits the instruction set"));
  out.push_back(message_passing());
}

void examine_disk(const DoctorOptions& o, Findings& out) {
  const std::string folder = existing_parent(o.folder), type = file_system_of(o.root, folder);
  struct statvfs info {};
  ::statvfs(folder.c_str(), &info);
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  const std::string where = fmt::format("'{}' ({}), {} free", folder, type, format_bytes(free));
  try {
    try_run_folder(folder);
  } catch (const Error& e) {
    out.push_back(problem("disk", fmt::format("{}; runs cannot be there: {}", where, e.what()),
                          e.hint().empty() ? "name another folder" : e.hint()));
    return;
  }
  if (type == "tmpfs" || type == "ramfs")
    out.push_back(
        fact("disk", where, "this file system is memory: runs there use RAM and are lost at shutdown"));
  else if (free < 1e9)
    out.push_back(fact("disk", where,
                       "free some space: a checkpoint takes 12 bytes per parameter, and three are kept"));
  else
    out.push_back(fact("disk", where));
  if (o.disk_bytes <= 0) return;
  if (free < 4 * static_cast<double>(o.disk_bytes)) {
    out.push_back(fact("disk speed", "not measured: too little free space",
                       "free some space, or measure with a smaller file"));
    return;
  }
  try {
    out.push_back(fact("disk speed", disk_speed(folder, o.disk_bytes)));
  } catch (const Error& e) {
    out.push_back(problem("disk speed", e.what(), e.hint()));
  }
}

void examine_sandbox(const DoctorOptions& o, Findings& out) {
  const std::string mode = field_of(o.root, "/proc/self/status", "Seccomp");
  out.push_back(fact("seccomp", mode == "2"                   ? "system calls are filtered"
                                : mode == "0" || mode.empty() ? "no filter of system calls"
                                                              : "strict"));
  const int perf = probe(try_perf_events);
  const std::string paranoid = line_of(o.root, "/proc/sys/kernel/perf_event_paranoid");
  out.push_back(fact("perf events",
                     perf == 0 ? "allowed"
                               : fmt::format("refused: {} (paranoid level {})", refusal(perf),
                                             paranoid.empty() ? "unknown" : paranoid),
                     perf == 0 ? ""
                               : "Ingot does not need them; `perf` needs perf_event_open and hardware "
                                 "counters"));
  const int reading = probe(try_reading_a_child);
  const std::string scope = line_of(o.root, "/proc/sys/kernel/yama/ptrace_scope");
  out.push_back(fact(
      "process_vm_readv",
      (reading == 0 ? "allowed" : "refused: " + refusal(reading)) +
          (scope.empty() ? "" : fmt::format(" (ptrace scope {})", scope)),
      reading == 0
          ? ""
          : "MPI's ranks on one machine copy twice; Open MPI: --mca btl_vader_single_copy_mechanism none"));
  limits(o.root, out);
}

}  // namespace ingot::doctor
