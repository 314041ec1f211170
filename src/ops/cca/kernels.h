// cca's implementations, best first, and the order of its inputs (internal to the folder).
#pragma once
#include <vector>

#include "ops/cca/cca.h"
#include "tape/op.h"

namespace ingot {

namespace cca_input {
enum : uint32_t {
  kQkv,
  kPositions,
  kDepthwise,
  kDepthwiseBias,
  kGrouped = kCcaGroupedInput,
  kGroupedBias,
  kTemperature
};
}

inline constexpr double kCcaNormEps = 1e-12;

std::vector<Kernel> cca_kernels();
Kernel cca_reference();
int64_t cca_scratch_bytes(const OpCall& call);

}  // namespace ingot
