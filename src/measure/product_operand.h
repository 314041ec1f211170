// Operands and results of the products that benchmarks make, shared by products of all sizes. Not
// thread-safe.
#pragma once
#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/philox.h"
#include "tensor/buffer.h"

namespace ingot {

/// Memory as in training: aligned, in huge pages where offered. Growing the buffer discards its contents.
template <class T>
T* grown_product_memory(Buffer& buffer, int64_t count) {
  const auto bytes = count * static_cast<int64_t>(sizeof(T));
  if (buffer.bytes() < bytes) buffer = Buffer(bytes);
  return static_cast<T*>(buffer.data());
}

/// Random values in [-1, 1) in both types, shared by all products.
class ProductOperand {
 public:
  explicit ProductOperand(uint64_t stream) {
    const Random random(1, RandomPurpose::test, stream);
    for (size_t i = 0; i < period_.size(); ++i) period_[i] = 2 * random.uniform(i) - 1;
  }
  const void* get(DType type, int64_t count) {
    if (type == DType::bf16) return fill<bf16>(halves_, count, [](float x) { return to_bf16(x); });
    return fill<float>(floats_, count, [](float x) { return x; });
  }

 private:
  template <class T, class Round>
  const void* fill(Buffer& values, int64_t count, Round round) {
    const int64_t before = values.bytes();
    T* to = grown_product_memory<T>(values, count);
    const auto capacity = static_cast<size_t>(values.bytes()) / sizeof(T);
    if (values.bytes() != before)
      for (size_t i = 0; i < capacity; ++i) to[i] = round(period_[i % period_.size()]);
    return to;
  }
  std::array<float, 4093> period_;
  Buffer floats_, halves_;
};

}  // namespace ingot
