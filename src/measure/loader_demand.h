// What reading a run's samples asks of the storage, by the formulas of "Training Foundation Models on a Full-Stack AMD
// Platform" (appendix B, equations 13 to 16) with the scatter factor of the run's own samples.
//
//   N        = sigma ceil(G s b / P)     transfers of a step: G sequences of s tokens of b bytes, in pages of P bytes
//   IOPS     = N / t                     that a step of t seconds needs
//   t_break  = N / I_max                 below this step time a storage of I_max transfers per second is too slow
//   sigma    = 1 + m P / (s b)           m: pages beyond s b / P that a sample touches
#pragma once
#include <cstdint>
#include <string>

#include "train/prepare.h"
#include "train/recipe.h"

namespace ingot {

struct LoaderDemand {
  std::string of;           ///< the recipe or run
  int64_t batch = 0;        ///< G
  int64_t sequence = 0;     ///< s
  double token_bytes = 0;   ///< b
  int64_t page = 4096;      ///< P
  int64_t samples = 0;      ///< looked at for m
  double extra_pages = 0;   ///< m
  double step_seconds = 0;  ///< t; 0: not known
  double most_iops = 0;     ///< I_max; 0: not measured

  double scatter() const;
  double pages() const;  ///< ceil(G s b / P)
  double transfers() const { return scatter() * pages(); }
  double needed_iops() const { return step_seconds > 0 ? transfers() / step_seconds : 0; }
  double break_even_seconds() const { return most_iops > 0 ? transfers() / most_iops : 0; }
};

/// Counts the pages of the first phase's first samples: those that hold their tokens, and those of the index of documents.
/// The page cache is taken for cold, and read-ahead for nothing. Leaves step_seconds and most_iops to the caller.
LoaderDemand loader_demand(const Recipe& recipe, const PreparedData& data, int64_t samples = 256);

/// "sigma 1.24 ..." in three lines.
std::string to_text(const LoaderDemand& demand);

}  // namespace ingot
