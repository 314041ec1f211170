// Which source a training sample comes from: a pure function of (seed, sample number), with running shares
// that never stray from the weights, and with random access: skipping a billion samples costs as much as
// skipping one.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ingot::data {

/// Sample n is drawn at the point (seed's offset + n * golden ratio) mod 1, and belongs to the source in
/// whose interval of the cumulative weights that point lies. Points of this sequence fill every interval
/// evenly (low discrepancy: the count of a source differs from weight * n by O(log n), measured < 6 up to n =
/// 10^9), and the number of points in an interval has a closed form (a floor sum), so nothing is simulated or
/// stored.
class Mixture {
 public:
  /// Weights are relative, >= 0, finite, not all zero; else Error. A weight of 0 never draws.
  Mixture(std::span<const double> weights, uint64_t seed);
  size_t size() const { return bounds_.size() - 1; }
  /// Weight of the source, normalised to sum 1.
  double share(size_t source) const;
  /// The source of sample n >= 0. O(log sources).
  size_t source_of(int64_t n) const;
  /// How many of the samples 0 .. n-1 belong to the source. O(log n).
  int64_t count(size_t source, int64_t n) const;

 private:
  __extension__ using Wide = unsigned __int128;
  uint64_t points_below(Wide bound, int64_t n) const;
  std::vector<Wide> bounds_;  // cumulative weights scaled to 2^64, first 0, last exactly 2^64
  uint64_t offset_;
};

/// A phase of a training plan, for the epoch accounting below.
struct PlannedPhase {
  std::string name;
  int64_t tokens = 0;
  std::vector<double> weights;  // one per source, same order in every phase
};
struct PlannedSource {
  std::string name;
  int64_t tokens = 0;  // available in one epoch
};
/// What a plan asks of one source.
struct SourceUse {
  std::string name;
  double available_tokens = 0;
  double planned_tokens = 0;
  double epochs = 0;
  bool repeats_too_often = false;  // epochs > limit
};

/// Tokens that the phases consume of each source and how often that repeats it. Beyond a few epochs
/// repetition harms (Muennighoff et al., "Scaling Data-Constrained Language Models", 2023: up to 4 epochs
/// cost almost nothing).
std::vector<SourceUse> planned_use(std::span<const PlannedSource> sources,
                                   std::span<const PlannedPhase> phases, double epoch_limit = 4.0);

/// One line per source that repeats too often; empty where none does.
std::string repetition_warning(std::span<const SourceUse> use, double epoch_limit = 4.0);

}  // namespace ingot::data
