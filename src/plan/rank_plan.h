// One rank of a run as a dry run: what any rank of any layout holds, computes and sends, to the byte. It is
// the run's own construction (train/engine.h) in a world of recording communicators and on the null device,
// so a plan cannot say anything else than the run does. Weights take no memory here; a rank of DeepSeek-V3
// among 256 takes about a second.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/recording.h"
#include "train/preflight.h"

namespace ingot {

/// What a plan is made for.
struct PlanFor {
  int ranks = 1;
  SupposedData supposed = {};
};

/// A rank's part of a run, without memory. Not for steps.
class PaperRank {
 public:
  /// The recipe names a vocabulary. Throws Error, with the arithmetic, where the layout cannot be.
  PaperRank(const Recipe& recipe, const PlanFor& what, int rank);
  const TrainEngine& engine() const { return *engine_; }
  const RankGroups& groups() const { return ranks_.groups(); }
  /// What became of batches that do not divide among the ranks, in words.
  const std::vector<std::string>& changes() const { return changes_; }

 private:
  RecordingWorld world_;
  RunRanks ranks_;
  std::vector<std::string> changes_;
  std::unique_ptr<TrainEngine> engine_;
};

/// Bytes that a rank holds, by what they are.
struct RankMemory {
  int64_t masters = 0;  ///< and weights that are read as they are
  int64_t copies = 0;   ///< in the type that products read
  int64_t gradients = 0;
  int64_t moments = 0;
  int64_t in_flight = 0;    ///< of other ranks: gathered weights, gradients before they are reduced
  int64_t checkpoint = 0;   ///< copy of what this rank saves
  int64_t activations = 0;  ///< the slab of a step
  int64_t state() const { return masters + copies + gradients + moments; }
  int64_t total() const { return state() + in_flight + checkpoint + activations; }
  /// What a device holds: there a checkpoint's copy lies in the host's memory.
  int64_t on_device() const { return total() - checkpoint; }
};

/// The parts and their sum by name, in the order in which they are shown.
struct MemoryPart {
  const char* name;
  int64_t bytes;
};
std::vector<MemoryPart> parts_of(const RankMemory& memory);

/// Work of one step on a rank.
struct RankWork {
  double products = 0, attention = 0, other = 0;  ///< FLOPs as the tape runs them, recomputation included
  double model_flops = 0;  ///< products, and attention's backward as twice its forward, nothing twice
  double optimizer = 0;    ///< FLOPs of Newton-Schulz
  std::map<std::string, double> wire_bytes;  ///< that ops send, by op
  double flops() const { return products + attention + other; }
};

/// One rank at the phase and batch size that take the most memory.
struct RankPlan {
  int rank = 0, stage = 0;
  std::string phase;
  int64_t tokens = 0;         ///< of a step of all ranks
  int64_t micro_batches = 1;  ///< of a step on this rank
  int64_t parameters = 0;     ///< held by this rank
  RankMemory memory;
  std::map<std::string, int64_t> slab_by_segment;  ///< live bytes at the slab's peak
  RankWork work;
};

/// Throws Error as PaperRank does, and where memory.limit cannot be met.
RankPlan plan_rank(const PaperRank& rank);

}  // namespace ingot
