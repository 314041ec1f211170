// See world.h: flight records, and the world of one rank.
#include "comm/world.h"

#include "base/file_system.h"
#include "base/log.h"

namespace ingot {
namespace {

class SelfWorld final : public World {
 public:
  SelfWorld() : World(0, 1) {}
  std::unique_ptr<Communicator> group(std::string name, const std::vector<int>& members) override {
    INGOT_CHECK(members == std::vector<int>{0}, "group '{}' of {} ranks in a world of one", name,
                members.size());
    return self_communicator(std::move(name));
  }
};

}  // namespace

void World::set_flight_folder(std::string folder) {
  const std::lock_guard lock(folder_mutex_);
  flight_folder_ = std::move(folder);
}

/// Without fsync: the process has about a second after SIGTERM, and a failed run is no power failure.
void World::write_flight(const std::string& reason) const {
  const std::lock_guard lock(folder_mutex_);
  if (flight_folder_.empty()) return;
  const std::string path = fmt::format("{}/flight-{}.json", flight_folder_, rank_),
                    text = flight_.json(rank_, ranks_, step_, reason);
  try {
    FileSystem& fs = real_file_system();
    fs.create_folders(flight_folder_);
    const auto file = fs.create(path + ".new");
    file->append(text.data(), text.size());
    file->close();
    fs.rename(path + ".new", path);
  } catch (const Error& e) {
    log::warn("rank {}: no flight record: {}", rank_, e.what());
  }
}

std::unique_ptr<World> self_world() {
  return std::make_unique<SelfWorld>();
}

}  // namespace ingot
