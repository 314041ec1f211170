// Full sharding's weights: brings the units of a part of the model together when an op is about to read them, the next
// part's ahead of need, and gives those of parts that are done back.
//
// Parts follow each other in the order of the model going forward and in reverse going backward; whatever order comes, what
// is read is there, since an op asks (ParameterKeeper) and a unit that has gone is brought again. At most three parts are in
// memory: that of the op which runs, the one before it, and one on its way. Tapes of all ranks are alike, so all ask for
// the same units in the same order. Belongs to the thread that runs the tapes.
#pragma once
#include <map>
#include <set>
#include <vector>

#include "parallel/shards.h"

namespace ingot {

class UnitKeeper final : public ParameterKeeper {
 public:
  /// Attaches itself to the weights. Both must outlive this.
  UnitKeeper(const RankGroups& groups, WeightSet& weights);
  ~UnitKeeper() override;
  UnitKeeper(const UnitKeeper&) = delete;
  UnitKeeper& operator=(const UnitKeeper&) = delete;

  void use(int parameter) override;
  /// Before weights change: all units are released. Waits for what is on its way.
  void release_all();

  int64_t gathers() const { return gathers_; }        ///< units brought so far
  int64_t prefetched() const { return prefetched_; }  ///< of those, ahead of need

 private:
  enum class State : uint8_t { away, coming, here };
  void bring(size_t unit);
  void finish(size_t unit);
  void release(size_t unit);
  void enter(int64_t part);

  const RankGroups& groups_;
  WeightSet& weights_;
  std::map<int64_t, std::vector<size_t>> units_;  ///< by depth
  std::vector<int64_t> part_;                     ///< by unit: its depth
  std::vector<State> states_;
  std::vector<Pending> coming_;
  bool inside_ = false;  ///< a part is being read
  int64_t now_ = 0, before_ = 0;
  int64_t gathers_ = 0, prefetched_ = 0;
};

}  // namespace ingot
