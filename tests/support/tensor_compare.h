// How the tensors of two executions of an op are compared. Failures are those of the running test.
#pragma once
#include <cstdint>
#include <string>

#include "tensor/tensor.h"

namespace ingot::test {

/// Within `tolerance` of the reference, where 1 is the largest of its elements; bf16 within 1/200 at least.
void expect_close(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what);

/// The first `bytes` of both.
void expect_same_bits(const Tensor& a, const Tensor& b, int64_t bytes, const std::string& what);

/// Results of f32 are within 2^-14 sqrt(k) of the reference, of bf16 within 2^-8, the most that a rounding
/// takes, for each of `roundings`; 1 is the largest of the reference's row, or of all without `by_row`. k: at
/// most the largest extent of an input. A case that states more has operands that are rounded and cancel, and
/// means the largest of all. Integers are equal.
struct Nearness {
  int64_t k;
  double of_case;
  bool by_row = true;
  int roundings = 1;
};
void expect_near(const Tensor& found, const Tensor& expected, const Nearness& near, const std::string& what);

}  // namespace ingot::test
