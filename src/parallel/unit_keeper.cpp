// See unit_keeper.h.
#include "parallel/unit_keeper.h"

namespace ingot {

UnitKeeper::UnitKeeper(const RankGroups& groups, WeightSet& weights) : groups_(groups), weights_(weights) {
  const std::vector<FlatUnit>& units = weights.layout().units;
  for (size_t u = 0; u < units.size(); ++u) {
    part_.push_back(depth_of_part(units[u].parameters.empty() ? kHeadPart : weights.table()[units[u].parameters[0]].parts.front()));
    units_[part_.back()].push_back(u);
  }
  states_.assign(units.size(), State::away);
  coming_.resize(units.size());
  weights.set_keeper(this);
}

UnitKeeper::~UnitKeeper() { weights_.set_keeper(nullptr); }

void UnitKeeper::use(int parameter) {
  const auto unit = static_cast<size_t>(weights_.layout().unit_of[static_cast<size_t>(parameter)]);
  if (!inside_ || part_[unit] != now_) enter(part_[unit]);
  finish(unit);
}

/// An op of another part reads: that part comes, the next one in the same direction starts, and older ones go.
void UnitKeeper::enter(int64_t part) {
  const bool forward = !inside_ || part > now_;
  before_ = inside_ ? now_ : part;
  now_ = part;
  inside_ = true;
  const auto here = units_.find(part);
  auto next = units_.end();
  if (forward) next = std::next(here);
  else if (here != units_.begin()) next = std::prev(here);
  for (size_t u = 0; u < states_.size(); ++u)
    if (part_[u] != now_ && part_[u] != before_ && (next == units_.end() || part_[u] != next->first)) release(u);
  for (const size_t u : here->second) bring(u);
  if (next == units_.end()) return;
  for (const size_t u : next->second)
    if (states_[u] == State::away) bring(u), ++prefetched_;
}

void UnitKeeper::bring(size_t unit) {
  if (states_[unit] != State::away) return;
  coming_[unit] = gather_unit(groups_, weights_, static_cast<int>(unit));
  states_[unit] = State::coming;
  ++gathers_;
}

void UnitKeeper::finish(size_t unit) {
  if (states_[unit] == State::away) bring(unit);
  if (states_[unit] == State::here) return;
  coming_[unit].wait();
  weights_.arrived(static_cast<int>(unit));
  states_[unit] = State::here;
}

void UnitKeeper::release(size_t unit) {
  if (states_[unit] == State::away) return;
  finish(unit);  // an operation that has begun ends on all ranks
  weights_.release(static_cast<int>(unit));
  states_[unit] = State::away;
}

void UnitKeeper::release_all() {
  for (size_t u = 0; u < states_.size(); ++u) release(u);
  inside_ = false;
}

}  // namespace ingot
