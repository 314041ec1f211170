// See linear_activation.h.
#include "ops/linear/linear_activation.h"

#include "ops/gpu_registry.h"
#include "ops/linear/linear.h"

namespace ingot {

Value linear_activation(Tape& tape, const ActivationAttr& attr, const Value& x_TK, const Value& weight_NK,
                        const Value& bias_N) {
  static const OpPair pair{linear_op(), activation_op(), gpu_kernels("linear_activation")};
  return tape.apply(pair, AttrBox(LinearAttr{attr.out}), {x_TK, weight_NK, bias_N}, AttrBox(attr));
}

}  // namespace ingot
