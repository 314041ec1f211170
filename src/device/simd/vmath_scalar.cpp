// See vmath_scalar.h: the kernel headers once more, with vectors of one lane.
#define INGOT_ISA scalar
#define INGOT_ISA_scalar 1
#include "device/simd/vmath_scalar.h"

#include "device/simd/reduce.h"
#include "device/simd/vmath.h"

namespace ingot::vmath {

float exp(float x) {
  return scalar::vexp(scalar::set1(x)).v[0];
}
float log(float x) {
  return scalar::vlog(scalar::set1(x)).v[0];
}
float sigmoid(float x) {
  return scalar::vsigmoid(scalar::set1(x)).v[0];
}
float tanh(float x) {
  return scalar::vtanh(scalar::set1(x)).v[0];
}
float erf(float x) {
  return scalar::verf(scalar::set1(x)).v[0];
}

float row_sum(const float* x, int64_t n) {
  return scalar::row_sum(x, n);
}
float row_sum(const bf16* x, int64_t n) {
  return scalar::row_sum(x, n);
}
float row_dot(const float* a, const float* b, int64_t n) {
  return scalar::row_dot(a, b, n);
}
float row_dot(const bf16* a, const bf16* b, int64_t n) {
  return scalar::row_dot(a, b, n);
}
float row_sum_squares(const float* x, int64_t n) {
  return scalar::row_sum_squares(x, n);
}
float row_sum_squares(const bf16* x, int64_t n) {
  return scalar::row_sum_squares(x, n);
}
float row_max(const float* x, int64_t n) {
  return scalar::row_max(x, n);
}

}  // namespace ingot::vmath
