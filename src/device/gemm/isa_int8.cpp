// int8 weights: quantizing a micro-panel and widening it to f32, for one instruction set. See
// int8_kernels.h.
#include "device/gemm/gemm_shape.h"
#include "device/gemm/int8_kernels.h"
#include "device/simd/simd_int8.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr float kLargest = 127.0f;
/// x + kRounding - kRounding rounds x of at most 2^22 to an integer, halves to even.
constexpr float kRounding = 0x1.8p23f;
/// Blocks whose largest weight is smaller become zeros: its reciprocal would not be a number.
constexpr float kSmallest = 0x1p-100f;

/// One block of a column vector: `depth` rows of `width` f32 to scales and numbers.
INGOT_INLINE void quantize(const float* w, int64_t width, int64_t depth, float* scale, int8_t* q) {
  Vec most = zero();
  const VecI magnitude = set1i(0x7FFFFFFF);
  for (int64_t k = 0; k < depth; ++k) most = max(most, as_float(as_int(load(w + k * width)) & magnitude));
  const Mask small = most < set1(kSmallest);
  const Vec inverse = select(small, zero(), set1(kLargest) / most);
  store(scale, select(small, zero(), most / set1(kLargest)));
  const VecI bias = as_int(set1(kRounding));
  for (int64_t k = 0; k < depth; ++k)
    store_int8(q + k * width, as_int(load(w + k * width) * inverse + set1(kRounding)) - bias);
}

}  // namespace

void int8_pack(const GemmPackB& b, std::byte* out) {
  const int64_t width = width_of(b.cols), k = b.depth;
  auto* scales = reinterpret_cast<float*>(out);
  auto* numbers = reinterpret_cast<int8_t*>(out + int8_blocks(k) * width * int64_t{sizeof(float)});
  alignas(64) float block[kInt8Block * kNr];
  GemmPackB part = b;
  part.pairs = false;
  part.out = block;
  for (part.k0 = 0; part.k0 < k; part.k0 += kInt8Block) {
    part.kc = min64(kInt8Block, k - part.k0);
    gemm_pack_b(part);
    for (int64_t j = 0; j < width; j += kLanes)
      quantize(block + j, width, part.kc, scales + part.k0 / kInt8Block * width + j,
               numbers + part.k0 * width + j);
  }
}

void int8_widen(const Int8Panel& p, int64_t k, int64_t kc, float* out) {
  const int8_t* q = p.numbers() + k * p.width;
  for (const int64_t end = k + kc; k < end; ++k, q += p.width, out += p.width) {
    const float* scale = p.scales() + k / kInt8Block * p.width;
    for (int64_t j = 0; j < p.width; j += kLanes) store(out + j, convert(load_int8(q + j)) * load(scale + j));
  }
}

}  // namespace ingot::INGOT_ISA
