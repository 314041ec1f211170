// See hash.h.
#include "base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace ingot {
namespace {

std::string to_hex(XXH128_hash_t h) {
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace

uint64_t hash64(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}
std::string hash128_hex(const void* data, size_t size) {
  return to_hex(XXH3_128bits(data, size));
}

struct Hasher::State {
  XXH3_state_t* xx = XXH3_createState();
  ~State() { XXH3_freeState(xx); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(state_->xx);
}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
void Hasher::update(const void* data, size_t size) {
  XXH3_128bits_update(state_->xx, data, size);
}
std::string Hasher::hex() const {
  return to_hex(XXH3_128bits_digest(state_->xx));
}

}  // namespace ingot
