// See vmath_scalar.h: the kernel headers once more, with vectors of one lane.
#define INGOT_ISA scalar
#define INGOT_ISA_scalar 1
#include "device/simd/vmath_scalar.h"

#include <cmath>

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

void sin_cos(double angle, float* sine, float* cosine) {
  // angle = n pi/2 + r with |r| <= pi/4; pi/2 in three parts, so that r keeps its digits.
  const double n = std::nearbyint(angle * 0.63661977236758134308);
  double r = std::fma(n, -1.5707963267948965580, angle);
  r = std::fma(n, -6.1232339957367658861e-17, r);
  r = std::fma(n, 1.4973849048591833e-33, r);
  const double z = r * r;
  // Taylor series: the first term left out is below 2^-48 at pi/4.
  double s = -7.6471637318198164759e-13;
  s = std::fma(s, z, 1.6059043836821614599e-10);
  s = std::fma(s, z, -2.5052108385441718775e-8);
  s = std::fma(s, z, 2.7557319223985890653e-6);
  s = std::fma(s, z, -1.9841269841269841270e-4);
  s = std::fma(s, z, 8.3333333333333333333e-3);
  s = std::fma(s, z, -1.6666666666666666667e-1);
  s = std::fma(s * z, r, r);
  double c = 4.7794773323873852974e-14;
  c = std::fma(c, z, -1.1470745597729724714e-11);
  c = std::fma(c, z, 2.0876756987868098979e-9);
  c = std::fma(c, z, -2.7557319223985890653e-7);
  c = std::fma(c, z, 2.4801587301587301587e-5);
  c = std::fma(c, z, -1.3888888888888888889e-3);
  c = std::fma(c, z, 4.1666666666666666667e-2);
  c = std::fma(c, z, -0.5);
  c = std::fma(c, z, 1.0);
  const double quadrant = n - 4.0 * std::floor(n * 0.25);
  const bool swap = quadrant == 1.0 || quadrant == 3.0;
  const double sin_r = swap ? c : s, cos_r = swap ? s : c;
  *sine = static_cast<float>(quadrant >= 2.0 ? -sin_r : sin_r);
  *cosine = static_cast<float>(quadrant == 1.0 || quadrant == 2.0 ? -cos_r : cos_r);
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
