// Measures a world's communication: time and bandwidth of every collective by size, the size from which
// larger transfers are no faster per byte, messages between pairs of ranks, and which ranks are slow.
// measure/comm_report.h prints them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/measure_messages.h"
#include "comm/world.h"

namespace ingot {

struct CommMeasurement {
  CommKind kind = CommKind::all_reduce;
  int ranks = 0;
  /// The larger one of input and output on a rank: the output of all_gather, the input of reduce_scatter.
  int64_t bytes = 0;
  double seconds = 0;  ///< median over batches of the slowest rank's mean
  /// Bytes per second over the link that limits an ideal algorithm, so that kinds and rank counts compare:
  /// bytes / seconds times 2 (n - 1) / n for all_reduce, (n - 1) / n for reduce_scatter, all_gather and
  /// all_to_all, 1 else.
  double bus_bandwidth = 0;
};

struct RankSpeed {
  int rank = 0;
  double bandwidth = 0;  ///< bytes per second to and from a partner, mean over all partners
};

struct CommReport {
  std::vector<CommMeasurement> measurements;
  std::vector<PairMessages> pairs;  ///< of the whole world
  std::vector<RankSpeed> speeds;    ///< slowest first; of the whole world
};

/// The partner of a rank in a round-robin of pairs, which has ranks - 1 (even) or ranks (odd) rounds; -1:
/// none.
int partner_of(int rank, int ranks, int round);
/// The number of those rounds.
int partner_rounds(int ranks);

struct CommMeasureOptions {
  std::vector<int> ranks;      ///< sizes of groups to measure, each at most the world's; ascending
  std::vector<int64_t> bytes;  ///< ascending; rounded down to whole elements of every rank
  double seconds = 0.05;       ///< for each measurement, about
  bool messages = true;        ///< pairs too
  /// Every call moves other memory than the calls before, as in training, so that no cache has it.
  bool cold = false;
};

/// Called by all ranks with the same options; every rank gets the same report.
CommReport measure_comm(World& world, const CommMeasureOptions& options);

/// The smallest size with 90 % of the best bandwidth of reduce_scatter among this many ranks: gradient
/// buckets of this size are large enough. 0 where it was not measured.
int64_t suggested_bucket(const CommReport& report, int ranks);

/// The same, measured here on this group, from 64 KiB to 64 MiB in about `seconds`; 0 for one rank. Called
/// by all of its ranks, which get the same.
int64_t measure_bucket(Communicator& group, double seconds = 0.5);

}  // namespace ingot
