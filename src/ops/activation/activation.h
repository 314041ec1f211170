// activation: the nonlinearity of an MLP, gated or not, with the router probability folded in.
//
//   plain   y = p * f(x)             x_TF  -> y_TF     gelu (erf), gelu_tanh, relu2 (max(x,0)^2), silu,
//                                                    soft_cap (device/simd/soft_cap.h, of output logits)
//   gated   y = p * f(g) * u         x_T2F -> y_TF     swiglu (f = silu), geglu (f = gelu_tanh); gate columns first
//
// p_T (fp32, optional) scales rows: the memory-efficient permutation of Megatron Core (004 §4.1.3; spec megatron-moe
// §1.4): multiplying inside means the expert's output is not needed for the gradient of p.
// offsets (i32 [E+1], optional): the rows are a permutation's (ops/permute), of which only those before offsets[E] count.
// Output type attr.out; arithmetic in fp32. d_p sums over the width in 16 fixed lanes.
#pragma once
#include "base/enum.h"
#include "device/simd/soft_cap.h"
#include "tape/tape.h"

namespace ingot {

enum class ActivationKind : uint8_t { gelu, gelu_tanh, relu2, silu, swiglu, geglu, soft_cap };
constexpr auto enum_names(ActivationKind) {
  return names_in_order<ActivationKind>("gelu", "gelu_tanh", "relu2", "silu", "swiglu", "geglu", "soft_cap");
}

constexpr bool is_gated(ActivationKind k) {
  return k == ActivationKind::swiglu || k == ActivationKind::geglu;
}

struct ActivationAttr {
  ActivationKind kind = ActivationKind::gelu;
  DType out = DType::f32;
  SoftCap cap = {};  ///< of soft_cap
};

Value activation(Tape& tape, const ActivationAttr& attr, const Value& x, const Value& p_T = {},
                 const Value& offsets = {});

const Op& activation_op();

}  // namespace ingot
