// See projection.h.
#include "nn/projection.h"

#include "ops/linear/linear.h"
#include "ops/linear/linear_activation.h"
#include "ops/low_rank/low_rank.h"

namespace ingot {

Value project(Context& c, const Value& x_TK, int weight, const Value& bias_N) {
  const DType type = c.precision().compute;
  const Value y_TN = linear(c.tape, type, x_TK, c.param(weight), bias_N);
  const ParameterSpec& spec = c.weights.table()[weight];
  if (spec.adapter.a < 0) return y_TN;
  std::vector<int64_t> rows = spec.adapter.blocks;  // each is cut over the ranks like the weight
  if (spec.shard.axis == ShardAxis::tensor && spec.shard.dim == 0)
    for (int64_t& r : rows) r /= c.weights.placement().tensor_size;
  const Value h_TR = linear(c.tape, type, x_TK, c.param(spec.adapter.a));
  return low_rank(c.tape, type, spec.adapter.scale, rows, y_TN, h_TR, c.param(spec.adapter.b));
}

Value project_and_activate(Context& c, ActivationKind kind, const Value& x_TK, int weight,
                           const Value& bias_N) {
  const ActivationAttr attr{kind, c.precision().compute};
  if (c.weights.table()[weight].adapter.a >= 0)
    return activation(c.tape, attr, project(c, x_TK, weight, bias_N));
  return linear_activation(c.tape, attr, x_TK, c.param(weight), bias_N);
}

}  // namespace ingot
