// The rotation of a head in plain loops and double, for reference kernels: angles by the standard library.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/sequence/rotary.h"

namespace ingot {

class ReferenceRotation {
 public:
  explicit ReferenceRotation(const RotaryRule& rule)
      : magnitude_(rule.magnitude), frequencies_(static_cast<size_t>(rule.dims / 2)) {
    rotary_frequencies(rule, frequencies_.data());
  }
  /// Rotates x[0 .. dims) in place, pairs (i, i + dims / 2); direction -1 is the transpose, which is the backward.
  void operator()(int32_t position, double* x, double direction) const {
    const size_t pairs = frequencies_.size();
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = position * frequencies_[i];
      const double c = magnitude_ * std::cos(angle), s = direction * magnitude_ * std::sin(angle);
      const double first = x[i], second = x[i + pairs];
      x[i] = first * c - second * s;
      x[i + pairs] = second * c + first * s;
    }
  }

 private:
  double magnitude_;
  std::vector<double> frequencies_;
};

}  // namespace ingot
