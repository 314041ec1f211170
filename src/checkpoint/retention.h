// Which checkpoints to keep, and the deletion of the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace ingot {

/// Kept are: the newest `keep_last`, those whose step is a multiple of `keep_every`, and the protected ones.
struct RetentionPolicy {
  int keep_last = 0;       ///< 0: keep all
  int64_t keep_every = 0;  ///< steps; 0: none
};

/// Deletes complete checkpoints that the policy does not keep and returns their names. Damaged ones neither
/// count nor go, so the last complete one always stays. A crash leaves each whole or as a leftover, never
/// damaged; a deletion that fails is logged and tried again next time.
std::vector<std::string> apply_retention(FileSystem& fs, const std::string& folder,
                                         const RetentionPolicy& policy);

}  // namespace ingot
