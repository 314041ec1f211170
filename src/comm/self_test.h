// Finds slow ranks before a run begins: each exchanges data with some others, and is compared with the
// median.
#pragma once
#include <string>
#include <vector>

#include "comm/measure.h"

namespace ingot {

/// Each rank exchanges `bytes` with up to eight others, three times. Its speed is the best exchange, so that
/// a busy moment or a slow partner does not count. Called by all ranks of the group; every rank gets the same
/// result, slowest first.
std::vector<RankSpeed> exchange_speeds(Communicator& group, int64_t bytes);

struct SelfTest {
  std::string text;     ///< one line
  std::string warning;  ///< names a rank below half of the median; empty: none
};

/// Throws Error that names the slowest rank and its host where its speed is below `least` times the median.
/// Two ranks always pass, because their exchanges are the same. hosts: by rank.
SelfTest judge_speeds(const std::vector<RankSpeed>& speeds, const std::vector<std::string>& hosts,
                      int64_t bytes, double least);

/// Both, for all ranks of the world. Repeats the exchange twice before it refuses a rank, in case the machine
/// was busy.
SelfTest self_test(World& world, int64_t bytes, double least);

}  // namespace ingot
