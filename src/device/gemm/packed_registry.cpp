// See packed_registry.h.
#include "device/gemm/packed_registry.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "base/error.h"

namespace ingot {
namespace {

struct Registry {
  std::atomic<int64_t> count{0};
  std::shared_mutex mutex;
  std::unordered_map<const void*, const PackedWeights*> by_address;  // guarded by mutex
};

Registry& registry() {
  static Registry registry;
  return registry;
}

}  // namespace

const PackedWeights* packed_at(const void* address) {
  Registry& r = registry();
  if (r.count.load(std::memory_order_acquire) == 0) return nullptr;
  const std::shared_lock lock(r.mutex);
  const auto it = r.by_address.find(address);
  return it == r.by_address.end() ? nullptr : it->second;
}

PackedRegistration::PackedRegistration(const void* address, PackedWeights weights)
    : address_(address), weights_(std::make_unique<PackedWeights>(std::move(weights))) {
  Registry& r = registry();
  const std::unique_lock lock(r.mutex);
  INGOT_CHECK(address != nullptr && r.by_address.emplace(address, weights_.get()).second,
              "weights registered twice");
  ++r.count;
}

PackedRegistration::~PackedRegistration() {
  if (weights_ == nullptr) return;
  Registry& r = registry();
  const std::unique_lock lock(r.mutex);
  r.by_address.erase(address_);
  --r.count;
}

}  // namespace ingot
