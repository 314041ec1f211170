// The reads per second that loading a run's samples needs, by [ZAYA1-AMD] appendix B, equations 13 to 16,
// with the scatter factor sigma measured on the run's own samples.
//
//   N        = sigma ceil(G s b / P)   transfers per step; G sequences of s tokens of b bytes, pages of P
//   IOPS     = N / t                   that a step of t seconds needs
//   t_break  = N / I_max               shortest step that I_max transfers per second can feed
//   sigma    = 1 + m P / (s b)         m: pages beyond s b / P that a sample touches
#pragma once
#include <cstdint>
#include <string>

#include "train/prepare.h"
#include "train/recipe.h"

namespace ingot {

struct LoaderDemand {
  std::string of;           ///< recipe or run folder
  int64_t batch = 0;        ///< G
  int64_t sequence = 0;     ///< s
  double token_bytes = 0;   ///< b
  int64_t page = 4096;      ///< P
  int64_t samples = 0;      ///< sampled for m
  double extra_pages = 0;   ///< m
  double step_seconds = 0;  ///< t; 0: unknown
  double most_iops = 0;     ///< I_max; 0: not measured

  double scatter() const;
  double pages() const;  ///< ceil(G s b / P)
  double transfers() const { return scatter() * pages(); }
  double needed_iops() const { return step_seconds > 0 ? transfers() / step_seconds : 0; }
  double break_even_seconds() const { return most_iops > 0 ? transfers() / most_iops : 0; }
};

/// Counts the pages that hold the tokens of the first samples and their entries in the index of documents.
/// Assumes a cold page cache and no read-ahead. The caller sets step_seconds and most_iops.
LoaderDemand loader_demand(const Recipe& recipe, const PreparedData& data, int64_t samples = 256);

std::string to_text(const LoaderDemand& demand);

}  // namespace ingot
