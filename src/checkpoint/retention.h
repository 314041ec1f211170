// Which checkpoints to keep, and the deletion of the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace ingot {

/// Keeps the newest `keep_last` checkpoints, those whose step is a multiple of `keep_every`, protected ones,
/// and the newest from before the step `keep_before`.
struct RetentionPolicy {
  int keep_last = 0;        ///< 0: keep all
  int64_t keep_every = 0;   ///< steps; 0: none
  int64_t keep_before = 0;  ///< step at which a spike of the loss began; 0: none
};

/// Deletes the complete checkpoints that the policy does not keep, and returns their names. Damaged
/// checkpoints are neither counted nor deleted, so the last complete one always stays. A deletion that fails
/// is logged and tried again at the next call.
std::vector<std::string> apply_retention(FileSystem& fs, const std::string& folder,
                                         const RetentionPolicy& policy);

}  // namespace ingot
