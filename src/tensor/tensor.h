// Shape and Tensor: a plain, trivially copyable view of contiguous row-major elements. A Tensor never owns
// memory (see buffer.h); on the null device it has a shape and no data.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace ingot {

enum class DeviceKind : uint8_t { cpu = 0, null = 1, cuda = 2, hip = 3 };

/// Up to five extents, outermost first. Rank 0 is a scalar (one element).
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    INGOT_CHECK(extents.size() <= kMaxRank);
    for (const int64_t e : extents) push_back(e);
  }
  void push_back(int64_t extent) {
    INGOT_CHECK(rank_ < kMaxRank && extent >= 0, "extent {} at dimension {}", extent, rank_);
    extent_[static_cast<size_t>(rank_++)] = extent;
  }
  int rank() const { return rank_; }
  /// Extent of a dimension; negative counts from the last.
  int64_t operator[](int dim) const { return extent_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extent_[static_cast<size_t>(i)];
    return n;
  }
  /// Product of all extents but the last; 1 for rank 0.
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank_; ++i) n *= extent_[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape& o) const {
    if (rank_ != o.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if ((*this)[i] != o[i]) return false;
    return true;
  }
  std::string str() const;  ///< "[4, 128]"

 private:
  std::array<int64_t, kMaxRank> extent_{};
  int rank_ = 0;
};

/// What a tensor is, without where it is.
struct TensorMeta {
  Shape shape;
  DType dtype = DType::f32;
  int64_t bytes() const { return shape.numel() * size_of(dtype); }
  std::string str() const;  ///< "f32[4, 128]"
};

struct Tensor {
  void* data = nullptr;
  TensorMeta meta;
  DeviceKind device = DeviceKind::cpu;

  Tensor() = default;
  Tensor(void* data_, Shape shape, DType dtype, DeviceKind device_ = DeviceKind::cpu)
      : data(data_), meta{shape, dtype}, device(device_) {}
  /// View of host memory of T.
  template <class T>
  static Tensor of(T* data, Shape shape) {
    return Tensor(const_cast<std::remove_const_t<T>*>(data), shape, DTypeOf<std::remove_const_t<T>>::value);
  }

  const Shape& shape() const { return meta.shape; }
  DType dtype() const { return meta.dtype; }
  int64_t dim(int i) const { return meta.shape[i]; }
  int64_t numel() const { return meta.shape.numel(); }
  int64_t rows() const { return meta.shape.rows(); }
  int64_t bytes() const { return meta.bytes(); }
  /// False for a slot that is not there (optional inputs, gradients nobody wants).
  bool defined() const { return data != nullptr || device == DeviceKind::null; }
  explicit operator bool() const { return defined(); }

  /// Typed data; the dtype must match exactly. Null for an undefined tensor.
  template <class T>
  T* as() const {
    INGOT_CHECK(data == nullptr || DTypeOf<std::remove_const_t<T>>::value == meta.dtype,
                "tensor is {}, asked as {}", name_of(meta.dtype),
                name_of(DTypeOf<std::remove_const_t<T>>::value));
    return static_cast<T*>(data);
  }
  /// Rows [begin, end) of the first dimension, same memory.
  Tensor slice(int64_t begin, int64_t end) const;
};

}  // namespace ingot
