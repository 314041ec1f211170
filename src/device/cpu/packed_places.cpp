// See packed_places.h.
#include "device/cpu/packed_places.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/error.h"

namespace ingot {
namespace {

struct Places {
  std::atomic<int64_t> count{0};
  std::shared_mutex mutex;
  std::unordered_map<const void*, const PackedWeights*> by_address;  // guarded by mutex
};

Places& places() {
  static Places all;
  return all;
}

}  // namespace

const PackedWeights* packed_at(const void* address) {
  Places& p = places();
  if (p.count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock lock(p.mutex);
  const auto it = p.by_address.find(address);
  return it == p.by_address.end() ? nullptr : it->second;
}

PackedPlace::PackedPlace(const void* address, PackedWeights weights)
    : address_(address), weights_(std::make_unique<PackedWeights>(std::move(weights))) {
  Places& p = places();
  const std::unique_lock lock(p.mutex);
  INGOT_CHECK(address != nullptr && p.by_address.emplace(address, weights_.get()).second,
              "two weights of one name");
  ++p.count;
}

PackedPlace::~PackedPlace() {
  if (weights_ == nullptr) return;
  Places& p = places();
  const std::unique_lock lock(p.mutex);
  p.by_address.erase(address_);
  --p.count;
}

}  // namespace ingot
