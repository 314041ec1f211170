// How the ranks of a run spend their time: adds up the steps of this rank, gathers those of all where a
// window ends, and writes them to ranks.jsonl (rank_lines.h). A slow rank shows as one that is busy while the
// others wait.
#pragma once
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "train/rank_lines.h"

namespace ingot {

class RankLog {
 public:
  /// Called by all ranks of `world`, which must outlive this. Rank 0 writes `folder`/ranks.jsonl, of which
  /// the lines up to `step`, from which this start continues, stay.
  RankLog(FileSystem& fs, Communicator& world, const std::string& folder, int64_t step);

  /// A step of this rank: its seconds by what they went to.
  void add(double busy, double waited, double data_wait);
  /// The window ends with `step`. Called by all ranks, between the same steps; one message.
  void end_window(int64_t step);
  /// Makes all lines durable.
  void sync();

 private:
  Communicator& world_;
  std::unique_ptr<WritableFile> file_;  ///< of rank 0
  double sums_[3] = {};                 ///< busy, waited, data_wait of the window so far
  int64_t steps_ = 0;
};

}  // namespace ingot
