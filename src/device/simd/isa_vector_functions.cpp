// See vector_functions.h.
#include "device/simd/reduce.h"
#include "device/simd/vector_functions.h"
#include "device/simd/vmath.h"

namespace ingot::INGOT_ISA {
namespace {

template <class F>
INGOT_INLINE void map(float* y, const float* x, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  const int rest = static_cast<int>(n - i);
  if (rest > 0) store_tail(y + i, f(load_tail(x + i, rest)), rest);
}

}  // namespace

void array_exp(float* y, const float* x, int64_t n) {
  map(y, x, n, [](Vec v) { return vexp(v); });
}
void array_log(float* y, const float* x, int64_t n) {
  map(y, x, n, [](Vec v) { return vlog(v); });
}
void array_sigmoid(float* y, const float* x, int64_t n) {
  map(y, x, n, [](Vec v) { return vsigmoid(v); });
}
void array_tanh(float* y, const float* x, int64_t n) {
  map(y, x, n, [](Vec v) { return vtanh(v); });
}
void array_erf(float* y, const float* x, int64_t n) {
  map(y, x, n, [](Vec v) { return verf(v); });
}
float array_sum(const float* x, int64_t n) {
  return row_sum(x, n);
}
float array_dot(const float* a, const float* b, int64_t n) {
  return row_dot(a, b, n);
}
float array_max(const float* x, int64_t n) {
  return row_max(x, n);
}

}  // namespace ingot::INGOT_ISA
