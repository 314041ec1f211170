// Operands, groups and results of products on tensor cores, and the chain of fused multiply-adds that each
// output is where they are emulated.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "device/gemm/gpu_product.h"

namespace ingot::test {

inline float rounded(float x) {
  return to_float(to_bf16(x));
}

/// An operand in memory, row after row along k, or k after k along the rows, `beyond` elements apart.
class MmaTestOperand {
 public:
  MmaTestOperand(MmaOperand is, int64_t rows, int64_t depth, bool along_k, int64_t beyond, uint64_t stream)
      : is_(is), row(along_k ? depth + beyond : 1), along(along_k ? 1 : rows + beyond) {
    const Random random(11, RandomPurpose::test, stream);
    const auto count = static_cast<size_t>(along_k ? rows * row : depth * along);
    for (size_t i = 0; i < count; ++i) set(i, static_cast<float>(random.normal(i)));
  }
  void set(size_t i, float x) {
    if (i >= floats_.size()) floats_.resize(i + 1), halves_.resize(i + 1);
    floats_[i] = is_ == MmaOperand::bf16 ? rounded(x) : x;
    halves_[i] = to_bf16(x);
  }
  void set(int64_t i, int64_t k, float x) { set(static_cast<size_t>(i * row + k * along), x); }
  const void* data() const {
    return is_ == MmaOperand::bf16 ? static_cast<const void*>(halves_.data()) : floats_.data();
  }
  int64_t bytes() const {
    return static_cast<int64_t>(floats_.size() * (is_ == MmaOperand::bf16 ? sizeof(bf16) : sizeof(float)));
  }
  float upper(int64_t i, int64_t k) const {
    return rounded(floats_[static_cast<size_t>(i * row + k * along)]);
  }
  /// What is left of it where it is split.
  float lower(int64_t i, int64_t k) const {
    return rounded(floats_[static_cast<size_t>(i * row + k * along)] - upper(i, k));
  }
  MmaOperand is() const { return is_; }

 private:
  MmaOperand is_;
  std::vector<float> floats_;
  std::vector<bf16> halves_;

 public:
  const int64_t row, along;
};

/// Output (i, j) over [begin, end) of k, 16 after 16.
inline float chain(const MmaTestOperand& a, const MmaTestOperand& b, int64_t i, int64_t j, int64_t begin,
                   int64_t end) {
  float sum = 0;
  for (int64_t first = begin; first < end; first += 16) {
    const int64_t last = std::min(first + 16, end);
    for (int64_t k = first; k < last; ++k) sum = std::fma(a.upper(i, k), b.upper(j, k), sum);
    for (int64_t k = first; k < last && a.is() == MmaOperand::split; ++k)
      sum = std::fma(a.lower(i, k), b.upper(j, k), sum);
  }
  return sum;
}

inline GpuMmaProduct product_of(const MmaTestOperand& a, const MmaTestOperand& b, int64_t m, int64_t n,
                                int64_t k) {
  GpuMmaProduct p;
  p.m = m, p.n = n, p.k = k;
  p.a = a.data(), p.a_is = a.is(), p.a_row = a.row, p.a_k = a.along;
  p.b = b.data(), p.b_is = b.is(), p.b_column = b.row, p.b_k = b.along;
  p.c_row = n;
  return p;
}

/// The result of a product, of f32 or bf16, which begins as 0.5; what stands behind it stays.
class MmaTestResult {
 public:
  MmaTestResult(int64_t count, DType type) : type_(type) {
    floats_.assign(static_cast<size_t>(count) + kBehind, 0.5f);
    halves_.assign(floats_.size(), to_bf16(0.5f));
  }
  void* data() { return type_ == DType::bf16 ? static_cast<void*>(halves_.data()) : floats_.data(); }
  float at(int64_t i) const {
    return type_ == DType::bf16 ? to_float(halves_[static_cast<size_t>(i)]) : floats_[static_cast<size_t>(i)];
  }
  float of(float x) const { return type_ == DType::bf16 ? rounded(x) : x; }
  bool ends_where_it_should() const {
    const auto count = static_cast<int64_t>(floats_.size());
    for (int64_t i = count - kBehind; i < count; ++i)
      if (at(i) != 0.5f) return false;
    return true;
  }

 private:
  static constexpr int64_t kBehind = 300;
  DType type_;
  std::vector<float> floats_;
  std::vector<bf16> halves_;
};

/// Bits of rows [begin, begin + count) of A by B, by a launch.
template <class Launch>
std::vector<float> mma_rows_of(Launch&& multiply, const MmaTestOperand& a, const MmaTestOperand& b,
                               int64_t begin, int64_t count, int64_t n, int64_t k) {
  std::vector<float> c(static_cast<size_t>(count * n));
  GpuMmaProduct p = product_of(a, b, count, n, k);
  advance(p, begin * a.row, 0, 0);
  p.c = c.data();
  multiply(p);
  return c;
}

/// Where groups of rows end: without rows, of several tiles, of few. The last rows are of none.
inline const std::vector<int32_t> kMmaOffsets = {0, 0, 131, 134, 134, 203};
constexpr int64_t kMmaGroupedRows = 207;

}  // namespace ingot::test
