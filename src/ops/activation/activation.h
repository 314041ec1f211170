// activation: the nonlinearity of an MLP, gated or not, times the router's probability.
//
//   plain   y = p f(x)          x_TF  -> y_TF     gelu (erf), gelu_tanh, relu2 (max(x, 0)^2), silu,
//                                                 soft_cap (of output logits, device/simd/soft_cap.h)
//   gated   y = p f(g) u        x_T2F -> y_TF     swiglu (f = silu), geglu (f = gelu_tanh); x = [g | u]
//
// p_T (f32, optional; absent: 1) scales rows. It stands here, before the second product, so that the gradient
// of p needs x only and not the expert's output ([Megatron-MoE] §4.1.2).
// offsets (i32 [E + 1], optional): x has the rows of a permutation (ops/permute); only those before
// offsets[E] count.
//
// Dtypes: x f32, bf16 or f64; y of attr.out. Arithmetic in fp32 with one rounding. d_p sums over F in 16
// fixed lanes.
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
  SoftCap cap = {};     ///< of soft_cap
  double expected = 0;  ///< see PermuteAttr
};

Value activation(Tape& tape, const ActivationAttr& attr, const Value& x, const Value& p_T = {},
                 const Value& offsets = {});

const Op& activation_op();
Kernel activation_reference();

}  // namespace ingot
