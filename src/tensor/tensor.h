// Shape and Tensor: a plain, trivially copyable view of contiguous row-major elements, or of a weight that is
// stored in another format. A Tensor never owns memory (see buffer.h); on the null device it has a shape and
// no data.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "device/device.h"

namespace ingot {

/// Up to five extents, outermost first. Rank 0 is a scalar (one element).
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  static constexpr int64_t kMostElements = int64_t{1} << 56;
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
  /// Error for more than kMostElements, so that no size in bytes overflows.
  int64_t numel() const {
    int64_t n = 1;
    bool fits = true;
    for (int i = 0; i < rank_; ++i) fits &= !__builtin_mul_overflow(n, extent_[static_cast<size_t>(i)], &n);
    if (!fits || n > kMostElements) [[unlikely]]
      return numel_of_many();
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
  /// "[4, 128]"
  std::string str() const;

 private:
  int64_t numel_of_many() const;  // 0 where an extent is; else the Error
  std::array<int64_t, kMaxRank> extent_{};
  int rank_ = 0;
};

class PackedWeights;  // device/gemm/gemm.h

/// How a weight is stored that is not a dense array of its dtype. A kernel names the inputs that it reads in
/// each format (Kernel::formats in tape/op.h) and refuses the others; to_doubles() of tensor/convert.h reads
/// every format.
struct WeightFormat {
  const char* name;  ///< for refusals: "packed int8"
  /// The panels that matrix products read; Tensor::data is nullptr then. If there are none, the weight is
  /// bf16 and Tensor::data are f32 masters, which every reader rounds to bf16.
  const PackedWeights* packed = nullptr;
};
inline constexpr WeightFormat kRoundedWeight{"f32 rounded to bf16"};

/// What a tensor is, without where it is.
struct TensorMeta {
  Shape shape;
  DType dtype = DType::f32;              ///< of the values that a reader sees
  const WeightFormat* format = nullptr;  ///< nullptr: dense
  bool rounded() const { return format != nullptr && format->packed == nullptr; }
  /// Bytes from element to element. A packed weight counts as if it were dense.
  int64_t element_bytes() const { return size_of(rounded() ? DType::f32 : dtype); }
  int64_t bytes() const { return shape.numel() * element_bytes(); }
  /// "f32[4, 128]"; of a weight in a format "bf16[4, 128] (packed int8)"
  std::string str() const;
};

struct Tensor {
  void* data = nullptr;
  TensorMeta meta;
  DeviceKind device = DeviceKind::cpu;

  Tensor() = default;
  Tensor(void* data_, Shape shape, DType dtype, DeviceKind device_ = DeviceKind::cpu)
      : Tensor(data_, TensorMeta{shape, dtype}, device_) {}
  Tensor(void* data_, const TensorMeta& meta_, DeviceKind device_ = DeviceKind::cpu)
      : data(data_), meta(meta_), device(device_) {}
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
  bool defined() const { return data != nullptr || packed() != nullptr || device == DeviceKind::null; }
  explicit operator bool() const { return defined(); }

  const PackedWeights* packed() const { return meta.format == nullptr ? nullptr : meta.format->packed; }
  bool rounded() const { return meta.rounded(); }

  /// Whether host code can read the data; false on the null device, too.
  bool on_host() const { return device == DeviceKind::cpu; }

  /// Elements of a dense tensor on the host (of another device's: tensor/host_copy.h); the dtype must match
  /// exactly. Null for an undefined tensor.
  template <class T>
  T* as() const {
    constexpr DType type = DTypeOf<std::remove_const_t<T>>::value;
    INGOT_CHECK(meta.format == nullptr && (data == nullptr || type == meta.dtype),
                "tensor is {}, asked as {}", meta.str(), name_of(type));
    INGOT_CHECK(data == nullptr || on_host(), "{} lies on device '{}'", meta.str(), ingot::name_of(device));
    return static_cast<T*>(data);
  }
  /// Rows [begin, end) of the first dimension, same memory. Not of a packed weight.
  Tensor slice(int64_t begin, int64_t end) const;
};

}  // namespace ingot
