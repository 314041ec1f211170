// See read_rate.h.
#include "measure/read_rate.h"

#include "measure/machine.h"

namespace ingot {

ReadRate::ReadRate(int threads)
    : threads_(threads), bytes_(beyond_caches(cache_levels(), threads, threads)), bench_(threads, bytes_) {}

}  // namespace ingot
