// See row_functions.h.
#include "device/simd/gather.h"
#include "device/simd/prefetch.h"

namespace ingot::INGOT_ISA {
namespace {

constexpr int64_t kColumns = 128;  // whose sums are kept on the stack at a time

template <class T>
void sum_columns(float* to, const T* x, int64_t rows, int64_t stride, int64_t chunk, int64_t n,
                 bool accumulate) {
  float total[kColumns] = {}, part[kColumns];
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t last = first + chunk < rows ? first + chunk : rows;
    for (int64_t j = 0; j < n; ++j) part[j] = 0.0f;
    for (int64_t r = first; r < last; ++r) copy_n(part, x + r * stride, n, true);
    copy_n(total, part, n, true);
  }
  copy_n(to, total, n, accumulate);
}

template <class To, class From>
void gather(const GatherArgs& a, int64_t begin, int64_t end) {
  const int64_t from_bytes = a.width * int64_t{sizeof(From)}, to_bytes = a.width * int64_t{sizeof(To)};
  const int64_t ahead = prefetch_rows(from_bytes);
  for (int64_t r = begin; r < end; ++r) {
    To* to = static_cast<To*>(a.to) + r * a.width;
    const int32_t* index = a.index + r * a.k;
    if (r + ahead < end) {
      for (int64_t j = ahead * a.k; j < (ahead + 1) * a.k; ++j)
        if (index[j] >= 0) prefetch_range(static_cast<const From*>(a.from) + index[j] * a.width, from_bytes);
      prefetch_range(to + ahead * a.width, to_bytes);
    }
    if (is_copy(a, index)) {
      copy_n(to, static_cast<const From*>(a.from) + index[0] * a.width, a.width, a.accumulate);
      continue;
    }
    each_vector(a.width, [&](int64_t i, int n) {
      put_n(to + i, gathered_sum<From>(a, index, i, n), n, a.accumulate);
    });
  }
}

}  // namespace

void gather_rows(const GatherArgs& a, int64_t begin, int64_t end) {
  typed(a.to, a.to_type, [&](auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    if (a.round) return gather<To, RoundedFloat>(a, begin, end);
    if (a.from_type == DType::bf16) return gather<To, bf16>(a, begin, end);
    gather<To, float>(a, begin, end);
  });
}

void array_copy(void* to, DType to_type, const void* from, DType from_type, int64_t n, bool accumulate) {
  const auto copy_from = [&](auto* typed_to) {
    if (from_type == DType::bf16)
      copy_n(typed_to, static_cast<const bf16*>(from), n, accumulate);
    else
      copy_n(typed_to, static_cast<const float*>(from), n, accumulate);
  };
  if (to_type == DType::bf16)
    copy_from(static_cast<bf16*>(to));
  else
    copy_from(static_cast<float*>(to));
}

void column_sums(float* to, const void* x, DType type, int64_t rows, int64_t stride, int64_t chunk,
                 int64_t begin, int64_t end, bool accumulate) {
  for (int64_t j = begin; j < end; j += kColumns) {
    const int64_t n = end - j < kColumns ? end - j : kColumns;
    if (type == DType::bf16)
      sum_columns(to + j, static_cast<const bf16*>(x) + j, rows, stride, chunk, n, accumulate);
    else
      sum_columns(to + j, static_cast<const float*>(x) + j, rows, stride, chunk, n, accumulate);
  }
}

}  // namespace ingot::INGOT_ISA
