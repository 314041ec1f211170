// See recording.h.
#include "comm/recording.h"

#include <algorithm>

namespace ingot {

class RecordingWorld::Group final : public Communicator {
 public:
  Group(RecordingWorld& world, std::string name, const std::vector<int>& members, int rank)
      : Communicator(std::move(name), rank, static_cast<int>(members.size())),
        members_(members),
        world_(world) {}
  const std::vector<int> members_;

 private:
  Pending start(CommRequest r) override {
    world_.operations_.push_back({this, r.kind, r.in, r.out});
    return {};
  }
  Pending start_message(const Tensor& t, int, bool) override {
    world_.operations_.push_back({this, CommKind::send_recv, t, t});
    return {};
  }
  RecordingWorld& world_;
};

std::unique_ptr<Communicator> RecordingWorld::group(std::string name, const std::vector<int>& members) {
  const auto me = std::find(members.begin(), members.end(), rank());
  INGOT_CHECK(me != members.end(), "rank {} asks for group '{}' of others", rank(), name);
  return std::make_unique<Group>(*this, std::move(name), members, static_cast<int>(me - members.begin()));
}

const std::vector<int>& RecordingWorld::members(const Communicator& group) {
  return dynamic_cast<const Group&>(group).members_;
}

}  // namespace ingot
