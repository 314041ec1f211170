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
      : magnitude_(rule.magnitude),
        interleaved_(rule.interleaved),
        frequencies_(static_cast<size_t>(rule.dims / 2)) {
    rotary_frequencies(rule, frequencies_.data());
  }
  /// Rotates x[0 .. dims) in place, pair by pair; direction -1 is the transpose, which is the backward.
  void operator()(int32_t position, double* x, double direction) const {
    const size_t pairs = frequencies_.size();
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = position * frequencies_[i];
      const double c = magnitude_ * std::cos(angle), s = direction * magnitude_ * std::sin(angle);
      double &first = x[interleaved_ ? 2 * i : i], &second = x[interleaved_ ? 2 * i + 1 : i + pairs];
      const double before = first;
      first = before * c - second * s;
      second = second * c + before * s;
    }
  }

 private:
  double magnitude_;
  bool interleaved_;
  std::vector<double> frequencies_;
};

}  // namespace ingot
