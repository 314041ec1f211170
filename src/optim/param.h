// What an optimizer knows about a parameter: its name, its shape and where its memory lies. The memory
// belongs to weight sets and the gradient sink (design: flat buffers); a ParamView must not outlive them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/enum.h"
#include "parallel/tensor_shards.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"

namespace ingot {

/// How values are stored; arithmetic is always fp32. bf16 halves the memory. Rounded to nearest, a value
/// stalls where it changes by less than half a unit of bf16 (0.4 %); stochastic rounding is right on average.
enum class ValueStorage : uint8_t { f32, bf16, bf16_stochastic };
constexpr auto enum_names(ValueStorage) {
  return names_in_order<ValueStorage>("f32", "bf16", "bf16_stochastic");
}

constexpr DType dtype_of(ValueStorage s) {
  return s == ValueStorage::f32 ? DType::f32 : DType::bf16;
}

/// Weights, the gradient or a moment of one tensor, or of a part of it. The rounding of element i is a pure
/// function of (seed, stream, i); the stream must differ between tensors, kinds of values and steps.
struct StoredValues {
  void* data = nullptr;  ///< null: there are none
  ValueStorage storage = ValueStorage::f32;
  uint64_t seed = 0;
  uint64_t stream = 0;
  int64_t first = 0;  ///< place of the first value in the tensor: a part rounds as the whole would
  StoredValues() = default;
  StoredValues(float* values) : data(values) {}  // NOLINT: fp32 values are stored as they are
  StoredValues(void* values, ValueStorage storage_) : data(values), storage(storage_) {}
};

/// One trainable tensor, or the part [begin, begin + numel()) of its elements that this rank updates.
/// Parameters that one matrix optimizer update must treat separately are described here, not guessed: experts
/// [E, r, c] are `matrices` = E independent [r, c] matrices; a packed q|k|v is one matrix whose row blocks
/// are listed in `row_splits`.
struct ParamView {
  std::string name = {};  ///< global name, unique
  Shape shape = {};
  int64_t matrices = 1;  ///< independent equal matrices along the first dimension
  std::vector<int64_t> row_splits =
      {};                    ///< heights of the row blocks of each matrix, in order; empty: one block
  StoredValues master = {};  ///< weights, read and written
  StoredValues grad = {};    ///< gradient (a sum over tokens), read
  void* compute = nullptr;   ///< copy in compute_dtype written after each update; null: none
  DType compute_dtype = DType::bf16;     ///< bf16 or f32
  double width_multiple = 1;             ///< muP: how many times the base model's fan-in (nn/parameter.h)
  int64_t begin = 0;                     ///< first element of the part; the pointers are to it
  int64_t count = -1;                    ///< elements of the part; -1: the whole tensor
  const TensorShards* shards = nullptr;  ///< of a part: who has the others
  MatrixSharding sharding = {};

  int64_t numel() const { return count < 0 ? shape.numel() : count; }
  int64_t end() const { return begin + numel(); }
  /// Shape of state with one value per element.
  Shape part_shape() const { return count < 0 ? shape : Shape{count}; }
  /// True for what Muon can take: [r, c], or [E, r, c] with matrices == E.
  bool is_matrix() const { return shape.rank() == 2 || (shape.rank() == 3 && matrices == shape[0]); }
  int64_t matrix_rows() const { return shape.rank() < 2 ? 1 : shape[-2]; }
  int64_t matrix_cols() const { return shape.rank() < 1 ? 1 : shape[-1]; }
};

/// Relative size of the last update of one tensor: RMS(w_new - w_old) and RMS(w_new).
struct UpdateStat {
  double update_rms = 0;
  double weight_rms = 0;
  /// 0 for an all-zero weight.
  double ratio() const { return weight_rms > 0 ? update_rms / weight_rms : 0; }
};

/// Zeroed floats that never move. Optimizer state is a few of these.
class FloatBuffer {
 public:
  explicit FloatBuffer(int64_t count = 0) : memory_(count * int64_t{sizeof(float)}), size_(count) {}
  float* data() const { return static_cast<float*>(memory_.data()); }
  int64_t size() const { return size_; }

 private:
  Buffer memory_;
  int64_t size_;
};

/// Offsets that place tensors of `counts` elements in one buffer, each on a 64-byte boundary; the last entry
/// is the buffer's size.
std::vector<int64_t> flat_offsets(const std::vector<int64_t>& counts);

}  // namespace ingot
