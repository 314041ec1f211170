// Finds packed weights by address. A model opened for inference keeps an address for each parameter without
// memory behind it; ops that multiply by a matrix, or look up its rows, find its packed panels here.
//
// Thread-safe. A program without packed weights pays one atomic load for each look-up.
#pragma once
#include <memory>

#include "device/gemm/gemm.h"

namespace ingot {

/// The weights registered at `address` (the data pointer of the parameter's tensor), or nullptr.
const PackedWeights* packed_at(const void* address);

/// Owns packed weights and registers them while it exists.
class PackedRegistration {
 public:
  /// InternalError where the address is null or registered already.
  PackedRegistration(const void* address, PackedWeights weights);
  ~PackedRegistration();
  PackedRegistration(const PackedRegistration&) = delete;
  PackedRegistration& operator=(const PackedRegistration&) = delete;
  PackedRegistration(PackedRegistration&&) = default;
  PackedRegistration& operator=(PackedRegistration&&) = delete;
  const PackedWeights& weights() const { return *weights_; }

 private:
  const void* address_;
  std::unique_ptr<PackedWeights> weights_;
};

}  // namespace ingot
