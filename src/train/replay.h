// Steps of a run made again, to compare their digests (digest_lines.h) with those that the run recorded: bits
// that differ are of a machine that computed wrongly, then or now.
#pragma once
#include <optional>
#include <string>

#include "comm/world.h"
#include "train/digest_lines.h"

namespace ingot {

struct ReplayRequest {
  std::string run;     ///< folder; nothing in it is written
  int64_t from = 0;    ///< step of a checkpoint of it, 0: its start
  int64_t steps = 0;   ///< that follow
  std::string folder;  ///< of the replay; must not hold a run
};

struct ReplayReport {
  int64_t compared = 0;  ///< steps that were equal before one differed
  int64_t copies = 0;    ///< those of them that had digests of copies
  int64_t different_step = 0;
  std::optional<DigestDifference> difference;  ///< at different_step; nothing: all steps are equal
};

/// Called by all ranks, which must be as many as the run had; all return the same. Throws Error where the run
/// has no digests of these steps, or made them with other kernels, another layout or another recipe than its
/// folder, this program and these ranks have; the message names each difference.
ReplayReport replay_run(FileSystem& fs, const ReplayRequest& request, World& world);

}  // namespace ingot
