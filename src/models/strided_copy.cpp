// Copies between external tensors and parameters (huggingface.h): bits move, nothing is computed.
#include <algorithm>
#include <array>
#include <cstring>

#include "models/huggingface.h"
#include "tensor/convert.h"

namespace ingot {
namespace {

constexpr int64_t kSquare =
    32;  // rows and columns of a transposed block: 2 * 32 cache lines stay in the first level

template <size_t N, bool kScatter>
void move_one(char* external, char* parameter) {
  if constexpr (kScatter)
    std::memcpy(parameter, external, N);
  else
    std::memcpy(external, parameter, N);
}

/// A dense [rows, columns] matrix against strides that are not contiguous, block by block.
template <size_t N, bool kScatter>
void move_matrix(char* external, char* parameter, int64_t rows, int64_t columns, int64_t row_stride,
                 int64_t column_stride) {
  const auto size = static_cast<int64_t>(N);
  for (int64_t r0 = 0; r0 < rows; r0 += kSquare)
    for (int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const int64_t r1 = std::min(rows, r0 + kSquare), c1 = std::min(columns, c0 + kSquare);
      for (int64_t c = c0; c < c1; ++c)
        for (int64_t r = r0; r < r1; ++r)
          move_one<N, kScatter>(external + (r * columns + c) * size,
                                parameter + (r * row_stride + c * column_stride) * size);
    }
}

template <bool kScatter>
void move_run(char* external, char* parameter, int64_t bytes) {
  if constexpr (kScatter)
    std::memcpy(parameter, external, static_cast<size_t>(bytes));
  else
    std::memcpy(external, parameter, static_cast<size_t>(bytes));
}

template <bool kScatter>
void move_matrix_of(char* external, char* parameter, int64_t rows, int64_t columns, int64_t row_stride,
                    int64_t column_stride, int64_t size) {
  if (column_stride == 1) {
    for (int64_t r = 0; r < rows; ++r)
      move_run<kScatter>(external + r * columns * size, parameter + r * row_stride * size, columns * size);
    return;
  }
  const auto move = size == 2   ? move_matrix<2, kScatter>
                    : size == 4 ? move_matrix<4, kScatter>
                    : size == 8 ? move_matrix<8, kScatter>
                                : move_matrix<1, kScatter>;
  move(external, parameter, rows, columns, row_stride, column_stride);
}

/// Both directions. The last two dimensions are a matrix; those before it are walked.
template <bool kScatter>
void move_external(const ExternalTensor& e, char* external, char* parameter, int64_t first, int64_t size) {
  INGOT_CHECK(size == 1 || size == 2 || size == 4 || size == 8, "elements of {} bytes", size);
  const int rank = e.shape.rank();
  if (e.shape.numel() == 0) return;
  char* base = parameter + (e.offset - first) * size;
  // Merge leading dimensions into the one after them where they follow each other in the parameter too.
  std::array<int64_t, Shape::kMaxRank> extent{}, stride{};
  int n = 0;
  for (int d = 0; d < rank; ++d) {
    const int64_t extent_d = e.shape[d], stride_d = e.stride[static_cast<size_t>(d)];
    if (extent_d == 1) continue;
    const auto last = static_cast<size_t>(n > 0 ? n - 1 : 0);
    if (n > 0 && stride[last] == stride_d * extent_d) {
      extent[last] *= extent_d;
      stride[last] = stride_d;
      continue;
    }
    extent[static_cast<size_t>(n)] = extent_d;
    stride[static_cast<size_t>(n++)] = stride_d;
  }
  while (n < 2) {  // at least a matrix: prepend unit dimensions
    std::rotate(extent.begin(), extent.end() - 1, extent.end());
    std::rotate(stride.begin(), stride.end() - 1, stride.end());
    extent[0] = 1;
    stride[0] = 1;
    ++n;
  }
  const auto r = static_cast<size_t>(n - 2), c = r + 1;
  if (extent[c] == 1) stride[c] = 1;
  const int64_t matrix = extent[r] * extent[c];
  std::array<int64_t, Shape::kMaxRank> at{};
  for (;;) {
    move_matrix_of<kScatter>(external, base, extent[r], extent[c], stride[r], stride[c], size);
    external += matrix * size;
    int d = n - 3;
    for (; d >= 0; --d) {
      const auto k = static_cast<size_t>(d);
      base += stride[k] * size;
      if (++at[k] < extent[k]) break;
      base -= stride[k] * extent[k] * size;
      at[k] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace

void scatter_external(const ExternalTensor& e, const void* external, void* parameter, int64_t first,
                      int64_t element_bytes) {
  move_external<true>(e, static_cast<char*>(const_cast<void*>(external)), static_cast<char*>(parameter),
                      first, element_bytes);
}

void gather_external(const ExternalTensor& e, void* external, const void* parameter, int64_t first,
                     int64_t element_bytes) {
  move_external<false>(e, static_cast<char*>(external), static_cast<char*>(const_cast<void*>(parameter)),
                       first, element_bytes);
}

void copy_from_external(const ExternalTensor& e, const Tensor& external, const Tensor& parameter) {
  if (external.dtype() == parameter.dtype())
    return scatter_external(e, external.data, parameter.data, 0, size_of(parameter.dtype()));
  std::vector<double> memory(static_cast<size_t>(
      (external.bytes() / size_of(external.dtype()) * size_of(parameter.dtype()) + 7) / 8));
  const Tensor converted(memory.data(), external.shape(), parameter.dtype());
  convert(external, converted);
  scatter_external(e, converted.data, parameter.data, 0, size_of(parameter.dtype()));
}

void copy_to_external(const ExternalTensor& e, const Tensor& parameter, const Tensor& external) {
  if (external.dtype() == parameter.dtype())
    return gather_external(e, external.data, parameter.data, 0, size_of(parameter.dtype()));
  std::vector<double> memory(static_cast<size_t>((external.numel() * size_of(parameter.dtype()) + 7) / 8));
  const Tensor gathered(memory.data(), external.shape(), parameter.dtype());
  gather_external(e, gathered.data, parameter.data, 0, size_of(parameter.dtype()));
  convert(gathered, external);
}

}  // namespace ingot
