// See world.h: the world of one rank.
#include "comm/world.h"

namespace ingot {
namespace {

class SelfWorld final : public World {
 public:
  SelfWorld() : World(0, 1) {}
  std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) override {
    INGOT_CHECK(members == std::vector<int>{0}, "group '{}' of {} ranks in a world of one", name, members.size());
    return self_communicator(std::move(name));
  }
};

}  // namespace

std::unique_ptr<World> self_world() { return std::make_unique<SelfWorld>(); }

}  // namespace ingot
