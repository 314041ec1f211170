// A product of product_choices.h with operands of every type, in memory without gaps, its naive loop, and the
// product as gemm() makes it.
#pragma once
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "device/gemm/product_choices.h"
#include "support/product_chain.h"

namespace ingot::test {

/// Operands of a product and the C that sums start from.
class ProductOperands {
 public:
  ProductOperands(const ProductKey& key, bool bias)
      : key_(key), a_(key.m * key.k, 1), b_(key.k * key.n, 2), c_(key.m * key.n, 3), bias_(key.n, 4) {
    args_.m = key.m, args_.n = key.n, args_.k = key.k;
    args_.a_transposed = key.form == GemmForm::tn, args_.b_transposed = key.form == GemmForm::nt;
    args_.lda = args_.a_transposed ? key.m : key.k, args_.ldb = args_.b_transposed ? key.k : key.n;
    args_.ldc = key.n;
    args_.a_type = type_of(key.a), args_.b_type = type_of(key.b), args_.c_type = type_of(key.c);
    args_.a = a_.of(key.a), args_.b = b_.of(key.b);
    args_.round_b = key.b == ElementType::rounded, args_.accumulate = key.accumulate;
    if (bias) args_.bias = bias_.floats.data();
  }

  /// The bytes of C.
  std::vector<std::byte> product() {
    std::vector<std::byte> c(static_cast<size_t>(key_.m * key_.n * size_of(args_.c_type)));
    if (!c.empty()) std::memcpy(c.data(), c_.of(key_.c), c.size());
    args_.c = c.data();
    gemm(args_);
    return c;
  }

  std::vector<std::byte> naive_product() const {
    const bool tn = args_.a_transposed, nt = args_.b_transposed;
    const bool pairs = key_.a == ElementType::bf16 && key_.b != ElementType::f32;
    std::vector<std::byte> c;
    for (int64_t i = 0; i < key_.m; ++i)
      for (int64_t j = 0; j < key_.n; ++j) {
        float sum = chain(
            pairs, key_.k, key_.accumulate ? c_.value(i * key_.n + j, key_.c) : 0,
            [&](int64_t k) { return a_.value(tn ? k * key_.m + i : i * key_.k + k, key_.a); },
            [&](int64_t k) { return b_.value(nt ? j * key_.k + k : k * key_.n + j, key_.b); });
        if (args_.bias != nullptr) sum += bias_.value(j, ElementType::f32);
        const bf16 half = to_bf16(sum);
        const auto* bytes = key_.c == ElementType::bf16 ? reinterpret_cast<const std::byte*>(&half)
                                                        : reinterpret_cast<const std::byte*>(&sum);
        c.insert(c.end(), bytes, bytes + size_of(args_.c_type));
      }
    return c;
  }

  const GemmArgs& args() const { return args_; }

 private:
  static DType type_of(ElementType type) { return type == ElementType::bf16 ? DType::bf16 : DType::f32; }

  struct Values {
    Values(int64_t count, uint64_t seed) {
      const Random random(seed, RandomPurpose::test);
      for (int64_t i = 0; i < count; ++i) {
        floats.push_back(random.normal(static_cast<uint64_t>(i)));
        halves.push_back(to_bf16(floats.back()));
      }
    }
    const void* of(ElementType type) const {
      return type == ElementType::bf16 ? static_cast<const void*>(halves.data()) : floats.data();
    }
    float value(int64_t i, ElementType type) const {
      const auto at = static_cast<size_t>(i);
      return type == ElementType::f32 ? floats[at] : to_float(halves[at]);
    }
    std::vector<float> floats;
    std::vector<bf16> halves;
  };

  ProductKey key_;
  Values a_, b_, c_, bias_;
  GemmArgs args_;
};

}  // namespace ingot::test
