// The grid of ranks: one numbering with two views. The dense view (pp, dp, cp, tp) places attention and
// everything else that all tokens pass; the expert view (pp, edp, ep, etp) places experts over the same
// ranks. Within a view the last axis varies fastest. The only constraint between the views is that they have
// the same pipeline stages. This is MoE Parallel Folding, [Megatron-MoE].
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "base/enum.h"

namespace ingot {

enum class GridAxis { pp, dp, cp, tp, edp, ep, etp };
constexpr auto enum_names(GridAxis) {
  return names_in_order<GridAxis>("pp", "dp", "cp", "tp", "edp", "ep", "etp");
}

/// Sizes of the axes; edp follows from the others.
struct GridShape {
  int pp = 1, dp = 1, cp = 1, tp = 1;
  int ep = 1;
  int etp = 0;  ///< 0: as tp
};

class Grid {
 public:
  /// Throws Error for sizes below 1, and where the expert view does not divide the ranks of a stage.
  explicit Grid(const GridShape& shape);

  int ranks() const { return pp_ * stage_; }
  int size(GridAxis axis) const;
  /// The coordinate of a rank on an axis.
  int index(GridAxis axis, int rank) const;
  /// The ranks that differ from this one only on the given axes of one view, ascending. No axes: the rank
  /// alone.
  std::vector<int> group(std::initializer_list<GridAxis> axes, int rank) const;
  std::string str() const;  ///< "pp1 dp2 cp1 tp1 | pp1 edp1 ep2 etp1"

 private:
  struct Extent {
    int stride, size;
  };
  Extent extent(GridAxis axis) const;
  int pp_, dp_, cp_, tp_, edp_, ep_, etp_, stage_;
};

}  // namespace ingot
