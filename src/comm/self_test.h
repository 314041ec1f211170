// Finds slow ranks before a run begins: each exchanges data with some others, and the median says what is slow.
#pragma once
#include <string>
#include <vector>

#include "comm/measure.h"

namespace ingot {

/// Each rank exchanges `bytes` with up to eight others, three times. Its speed is the best of all, so that a busy moment or a slow
/// partner does not count. Called by all ranks of the group; every rank gets the same, slowest first.
std::vector<RankSpeed> exchange_speeds(Communicator& group, int64_t bytes);

struct SelfTest {
  std::string text;     ///< one line for people
  std::string warning;  ///< names a rank below half of the median; empty: none
};

/// Throws Error that names the slowest rank and its host where its speed is below `least` times the median. Of two ranks neither is
/// refused: their exchanges are the same. hosts: by rank.
SelfTest judge_speeds(const std::vector<RankSpeed>& speeds, const std::vector<std::string>& hosts,
                      int64_t bytes, double least);

/// Both, for all ranks of the world. Before a rank is refused the exchange is repeated twice: a busy machine is not a slow one.
SelfTest self_test(World& world, int64_t bytes, double least);

}  // namespace ingot
