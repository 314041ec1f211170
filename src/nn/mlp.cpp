// See mlp.h.
#include "nn/mlp.h"

#include "nn/projection.h"
#include "nn/tensor_region.h"

namespace ingot {

Mlp::Mlp(ParameterTable& table, const std::string& prefix, const ModelConfig& model, int64_t hidden,
         bool bias)
    : kind_(model.mlp) {
  const bool gated = is_gated(kind_);
  const int64_t rows = gated ? 2 * hidden : hidden;
  const std::vector<int64_t> blocks = gated ? std::vector<int64_t>{hidden, hidden} : std::vector<int64_t>{};
  const char* name = gated ? ".gate_up" : ".up";
  up_ = table.add({prefix + name + ".weight",
                   {rows, model.width},
                   ParamRole::matrix,
                   Init::normal(model.init_std),
                   1,
                   {},
                   {ShardAxis::tensor, 0, blocks}});
  if (bias)
    up_bias_ = table.add({prefix + name + ".bias",
                          {rows},
                          ParamRole::bias,
                          Init::constant(0),
                          1,
                          {},
                          {ShardAxis::tensor, 0, blocks}});
  down_ = table.add({prefix + ".down.weight",
                     {model.width, hidden},
                     ParamRole::matrix,
                     Init::normal(model.output_std()),
                     1,
                     {},
                     {ShardAxis::tensor, 1, {}}});
  if (bias)
    down_bias_ = table.add({prefix + ".down.bias",
                            {model.width},
                            ParamRole::bias,
                            Init::constant(0),
                            1,
                            {},
                            {},
                            TensorGradient::partial});
}

Value Mlp::forward(Context& c, const Value& h_TD) const {
  Value act_TF = project_and_activate(c, kind_, enter_tensor_region(c, h_TD), up_, c.param(up_bias_));
  return leave_tensor_region(c, project(c, act_TF, down_, row_bias(c, down_bias_)));
}

}  // namespace ingot
