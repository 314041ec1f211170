// See process_memory.h.
#include "base/process_memory.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace ingot {

int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long all = 0, resident = 0;
  const bool read = std::fscanf(file, "%lld %lld", &all, &resident) == 2;
  std::fclose(file);
  return read ? int64_t{resident} * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

bool restart_peak_resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return false;
  const bool written = std::fputs("5", file) >= 0;  // proc(5): resets the peak to what is resident
  return std::fclose(file) == 0 && written;
}

void return_unused_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace ingot
