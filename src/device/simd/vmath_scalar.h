// The elementary functions and row reductions of the kernels for ordinary code (reference kernels, tables,
// tests): the same bits as vmath.h and reduce.h give inside kernels, without their headers.
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace ingot::vmath {

float exp(float x);
float log(float x);
float sigmoid(float x);
float tanh(float x);
float erf(float x);

float row_sum(const float* x, int64_t n);
float row_sum(const bf16* x, int64_t n);
float row_dot(const float* a, const float* b, int64_t n);
float row_dot(const bf16* a, const bf16* b, int64_t n);
float row_sum_squares(const float* x, int64_t n);
float row_sum_squares(const bf16* x, int64_t n);
float row_max(const float* x, int64_t n);

}  // namespace ingot::vmath
