// Content hashes by XXH3 (fast, not cryptographic: it detects damage, not malice): 64 bits for names and
// keys, 128 bits (32 hex digits) for files and tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ingot {

uint64_t hash64(std::string_view bytes);
std::string hash128_hex(const void* data, size_t size);

/// A 128-bit hash over pieces that arrive one after another.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, size_t size);
  /// Hash of all pieces so far, 32 hex digits; more pieces may follow.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot
