// PackedWeights: see gemm.h. The micro-panels are in huge pages where the system grants them, because
// decoding reads them at the rate of memory.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/round.h"
#include "device/gemm/gemm.h"
#include "device/gemm/gemm_kernels.h"
#include "device/gemm/int8_kernels.h"
#include "device/memory/dense_pages.h"

namespace ingot {
namespace {

const std::byte* at(const void* p, int64_t offset) {
  return static_cast<const std::byte*>(p) + offset;
}

/// Elements (int8: bytes) that a column of a panel takes.
int64_t column_size(DType stored, int64_t k) {
  return stored == DType::u8 ? int8_panel_bytes(1, k) : stored == DType::bf16 ? round_up(k, 2) : k;
}

}  // namespace

PackedWeights::PackedWeights(const Source& source, DType stored)
    : type_(stored), k_(source.k), n_(source.n), experts_(source.experts) {
  const DType type = source.b_type, values = source.round_b ? DType::bf16 : type;
  INGOT_CHECK((type == DType::f32 || (type == DType::bf16 && !source.round_b)) &&
                  (stored == values || stored == DType::f32 || (stored == DType::u8 && !source.round_b)) &&
                  k_ >= 0 && n_ >= 0 && experts_ >= 1,
              "{} as {}, k {} n {}", name_of(values), name_of(stored), k_, n_);
  const GemmTileShape tile = INGOT_ISA_CALL(gemm_tile_shape)();
  const int64_t column = column_size(stored, k_), size = size_of(stored);
  panel_ = tile.nr, lanes_ = tile.lanes;
  stride_ = round_up(column * round_up(n_, tile.lanes), 64 / size);
  data_ = map_densely(bytes());
  fill(source);
}

void PackedWeights::fill(const Source& source) {
  INGOT_CHECK(source.k == k_ && source.n == n_ && source.experts == experts_, "k {} n {} into k {} n {}",
              source.k, source.n, k_, n_);
  const DType type = source.b_type;
  const bool pairs = type_ == DType::bf16;
  const int64_t column = column_size(type_, k_), size = size_of(type_);
  const int64_t panels = ceil_div(n_, panel_);
  parallel_for(experts_ * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t expert = i / panels, col0 = i % panels * panel_;
      GemmOperand b{at(source.b, expert * source.b_stride * size_of(type)), type, source.ldb, 1,
                    source.round_b};
      if (!source.b_transposed) std::swap(b.stride, b.k_stride);
      auto* out = static_cast<std::byte*>(data_) + (expert * stride_ + col0 * column) * size;
      const GemmPackB part{.b = b,
                           .pairs = pairs,
                           .depth = k_,
                           .k0 = 0,
                           .kc = pairs ? column / 2 : k_,
                           .col0 = col0,
                           .cols = std::min(panel_, n_ - col0),
                           .out = reinterpret_cast<float*>(out)};
      if (type_ == DType::u8)
        INGOT_ISA_CALL(int8_pack)(part, out);
      else
        INGOT_ISA_CALL(gemm_pack_b)(part);
    }
  });
}

PackedWeights::~PackedWeights() {
  if (data_ != nullptr) unmap_densely(data_, bytes());
}

PackedWeights::PackedWeights(PackedWeights&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      type_(other.type_),
      k_(other.k_),
      n_(other.n_),
      experts_(other.experts_),
      stride_(other.stride_),
      panel_(other.panel_),
      lanes_(other.lanes_) {}

PackedWeights& PackedWeights::operator=(PackedWeights&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(type_, other.type_);
  std::swap(k_, other.k_);
  std::swap(n_, other.n_);
  std::swap(experts_, other.experts_);
  std::swap(stride_, other.stride_);
  std::swap(panel_, other.panel_);
  std::swap(lanes_, other.lanes_);
  return *this;
}

int64_t PackedWeights::bytes() const {
  return experts_ * stride_ * size_of(type_);
}

void PackedWeights::column(int64_t expert, int64_t column, float* out) const {
  INGOT_CHECK(expert >= 0 && expert < experts_ && column >= 0 && column < n_, "column {} of {}", column, n_);
  const int64_t col0 = column / panel_ * panel_, j = column - col0,
                width = round_up(std::min(panel_, n_ - col0), lanes_);
  const std::byte* panel = at(data_, (expert * stride_ + col0 * column_size(type_, k_)) * size_of(type_));
  if (type_ == DType::u8) {
    const Int8Panel q{panel, width, k_};
    for (int64_t k = 0; k < k_; ++k)
      out[k] = static_cast<float>(q.numbers()[k * width + j]) * q.scales()[k / kInt8Block * width + j];
    return;
  }
  const bool pairs = type_ == DType::bf16;
  for (int64_t k = 0; k < k_; ++k) {
    if (pairs) {
      bf16 x;
      std::memcpy(&x, panel + ((k / 2 * width + j) * 2 + k % 2) * int64_t{sizeof(x)}, sizeof(x));
      out[k] = to_float(x);
    } else {
      std::memcpy(out + k, panel + (k * width + j) * int64_t{sizeof(float)}, sizeof(float));
    }
  }
}

}  // namespace ingot
