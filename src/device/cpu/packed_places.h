// Weights that lie packed and nowhere else, by the address that names them. A model opened for inference keeps the addresses of
// its parameters, without memory behind them; ops that multiply by a matrix, or look up its rows, find its panels here.
//
// Thread-safe. Programs without such weights pay one load for each look-up.
#pragma once
#include <memory>

#include "device/cpu/gemm.h"

namespace ingot {

/// The weights whose name `address` is, or nullptr: the tensor's data lies at the address.
const PackedWeights* packed_at(const void* address);

/// Names packed weights while it lives.
class PackedPlace {
 public:
  /// Nothing else may have the name.
  PackedPlace(const void* address, PackedWeights weights);
  ~PackedPlace();
  PackedPlace(const PackedPlace&) = delete;
  PackedPlace& operator=(const PackedPlace&) = delete;
  PackedPlace(PackedPlace&&) = default;
  PackedPlace& operator=(PackedPlace&&) = delete;
  const PackedWeights& weights() const { return *weights_; }

 private:
  const void* address_;
  std::unique_ptr<PackedWeights> weights_;
};

}  // namespace ingot
