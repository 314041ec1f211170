// See grid.h.
#include "comm/grid.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {
namespace {

bool is_expert_axis(GridAxis a) {
  return a == GridAxis::edp || a == GridAxis::ep || a == GridAxis::etp;
}

}  // namespace

Grid::Grid(const GridShape& s)
    : pp_(s.pp),
      dp_(s.dp),
      cp_(s.cp),
      tp_(s.tp),
      edp_(1),
      ep_(s.ep),
      etp_(s.etp > 0 ? s.etp : s.tp),
      stage_(s.dp * s.cp * s.tp) {
  if (std::min({s.pp, s.dp, s.cp, s.tp, s.ep}) < 1 || s.etp < 0)
    fail("grid pp{} dp{} cp{} tp{} ep{} etp{}: every axis needs at least one rank", s.pp, s.dp, s.cp, s.tp,
         s.ep, s.etp);
  if (stage_ % (ep_ * etp_) != 0)
    throw Error(
        fmt::format(
            "a pipeline stage has dp{} x cp{} x tp{} = {} ranks; experts over ep{} x etp{} = {} do not "
            "tile them",
            dp_, cp_, tp_, stage_, ep_, etp_, ep_ * etp_),
        "choose ep and etp so that their product divides dp * cp * tp");
  edp_ = stage_ / (ep_ * etp_);
}

Grid::Extent Grid::extent(GridAxis axis) const {
  switch (axis) {
    case GridAxis::pp:
      return {stage_, pp_};
    case GridAxis::dp:
      return {cp_ * tp_, dp_};
    case GridAxis::cp:
      return {tp_, cp_};
    case GridAxis::tp:
      return {1, tp_};
    case GridAxis::edp:
      return {ep_ * etp_, edp_};
    case GridAxis::ep:
      return {etp_, ep_};
    case GridAxis::etp:
      return {1, etp_};
  }
  return {1, 1};
}

int Grid::size(GridAxis axis) const {
  return extent(axis).size;
}

int Grid::index(GridAxis axis, int rank) const {
  INGOT_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  const Extent p = extent(axis);
  return rank / p.stride % p.size;
}

std::vector<int> Grid::group(std::initializer_list<GridAxis> axes, int rank) const {
  bool dense = false, expert = false;
  for (const GridAxis a : axes) {
    expert |= is_expert_axis(a);
    dense |= !is_expert_axis(a) && a != GridAxis::pp;
  }
  INGOT_CHECK(!(dense && expert), "a group lies in one view of the grid");
  std::vector<int> group{rank};
  for (const GridAxis a : axes) {
    const Extent p = extent(a);
    std::vector<int> grown;
    for (const int r : group)
      for (int i = 0; i < p.size; ++i) grown.push_back(r + (i - index(a, r)) * p.stride);
    group = std::move(grown);
  }
  std::sort(group.begin(), group.end());
  return group;
}

std::string Grid::str() const {
  return fmt::format("pp{} dp{} cp{} tp{} | pp{} edp{} ep{} etp{}", pp_, dp_, cp_, tp_, pp_, edp_, ep_, etp_);
}

}  // namespace ingot
