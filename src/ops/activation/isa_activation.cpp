// activation for a range of rows, compiled once per instruction set.
#include "ops/activation/isa_activation.h"

#include "ops/activation/rows.h"

namespace ingot::INGOT_ISA {

void activation_forward(const ActivationRows& a, int64_t begin, int64_t end) {
  with_types(
      a, [&]<ActivationFunction F, bool G, class X, class Y>() { forward_rows<F, G, X, Y>(a, begin, end); });
}

void activation_backward(const ActivationRows& a, int64_t begin, int64_t end) {
  with_types(
      a, [&]<ActivationFunction F, bool G, class X, class Y>() { backward_rows<F, G, X, Y>(a, begin, end); });
}

}  // namespace ingot::INGOT_ISA
