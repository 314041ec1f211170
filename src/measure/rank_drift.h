// How ranks of one machine hold each other up: whether they share cores, and where they do not, how far those
// that do equal work drift apart. Whoever comes first to an exchange waits for the last. Caches, other
// programs and a host's other guests slow one rank now and another then; over a while that is a random walk,
// which grows with the root of the time.
#pragma once
#include "measure/profile.h"

namespace ingot {

/// Ranks that share each core of this one, by the part of it that each thread has while all are busy; 1: none
/// do, or it is not known.
double ranks_per_core(const RankProfile& rank);

/// Seconds by which a rank's time is spread after a second of work, as a standard deviation, from the ops of
/// neighbouring ranks in windows of 5 ms. 0: of one rank, of ranks that run different ops, and of those that
/// share cores, which lose nothing while one of them waits.
double rank_drift(const ProfileReport& profile);

/// Seconds that a mean rank waits for the last of `ranks` after so many seconds of work.
double expected_wait(double drift, int ranks, double seconds);

}  // namespace ingot
