// See router.h.
#include "nn/moe/router.h"

#include <cmath>

#include "ops/add/add.h"
#include "ops/add_norm/add_norm.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_activation.h"

namespace ingot {

Router::Router(ParameterTable& table, const std::string& prefix, const ModelConfig& model, bool first)
    : zaya_(model.moe.router == RouterKind::zaya),
      full_precision_(model.moe.router_precision == RouterPrecision::f32),
      eps_(model.norm_eps) {
  const MoeConfig& m = model.moe;
  const int64_t classes = m.classes(), hidden = m.router_width;
  const auto matrix = [&](const char* name, int64_t rows, int64_t cols) {
    const double std =
        m.router_init == RouterInit::fan_in ? 1 / std::sqrt(static_cast<double>(cols)) : model.init_std;
    ParameterSpec spec{prefix + name, {rows, cols}, ParamRole::router, Init::normal(std)};
    spec.full_precision = full_precision_;
    return table.add(std::move(spec));
  };
  const auto vector = [&](const char* name, double value) {
    return table.add({prefix + name, {hidden}, ParamRole::router, Init::constant(value)});
  };
  if (!zaya_) {
    weight_ = matrix(".weight", classes, model.width);
    return;
  }
  down_ = matrix(".down.weight", hidden, model.width);
  down_bias_ = vector(".down.bias", 0);
  if (!first) eda_ = vector(".eda_scale", 1);
  norm_ = vector(".norm.weight", 1);
  fc1_ = matrix(".fc1.weight", hidden, hidden);
  fc1_bias_ = vector(".fc1.bias", 0);
  fc2_ = matrix(".fc2.weight", hidden, hidden);
  fc2_bias_ = vector(".fc2.bias", 0);
  out_ = matrix(".out.weight", classes, hidden);
}

RouterOutput Router::forward(Context& c, const Value& h_TD, const Value& state_below_TR, int layer) const {
  const DType stream = c.precision().stream, compute = full_precision_ ? stream : c.precision().compute;
  c.tape.begin_segment(zaya_ ? "stream" : "route", layer);
  if (!zaya_) return {linear(c.tape, stream, h_TD, c.param(weight_)), {}};
  Value r_TR = linear(c.tape, stream, h_TD, c.param(down_), c.param(down_bias_));
  if (eda_ >= 0) r_TR = add(c.tape, stream, r_TR, state_below_TR, c.param(eda_));
  c.tape.begin_segment("route", layer);
  const AddNormAttr norm{NormKind::rms, MergeKind::none, compute, eps_};
  Value n_TR = add_norm(c.tape, norm, r_TR, {}, {}, c.param(norm_)).h;
  const ActivationAttr gelu{ActivationKind::gelu, compute};
  Value a_TR = linear_activation(c.tape, gelu, n_TR, c.param(fc1_), c.param(fc1_bias_));
  a_TR = linear_activation(c.tape, gelu, a_TR, c.param(fc2_), c.param(fc2_bias_));
  return {linear(c.tape, stream, a_TR, c.param(out_)), std::move(r_TR)};
}

}  // namespace ingot
