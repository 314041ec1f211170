// See sampling.h.
#include "infer/sampling.h"

#include <cmath>

#include "base/error.h"

namespace ingot {

void validate(const SamplingOptions& o) {
  if (!(o.temperature >= 0) || !std::isfinite(o.temperature))
    fail("temperature is {}, expected a number >= 0", o.temperature);
  if (o.top_k < 0) fail("top_k is {}, expected >= 0 (0: all tokens)", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) fail("top_p is {}, expected more than 0 and at most 1", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) fail("min_p is {}, expected between 0 and 1", o.min_p);
}

}  // namespace ingot
