// context_attention's implementations, and what they share (internal to the folder).
#pragma once
#include "ops/context/block_pass.h"
#include "ops/context/context_attention.h"
#include "tape/op.h"

namespace ingot {

Kernel context_attention_cpu();
Kernel context_attention_reference();

/// Of a row's keys and values: G (K + V), keys first.
inline int64_t kv_width(const AttentionAttr& a) {
  return a.kv_heads * (a.head_width + a.values());
}
inline DType statistic_of(const Tensor& qkv) {
  return qkv.dtype() == DType::f64 ? DType::f64 : DType::f32;
}
/// This rank's block from its packed rows.
void pack_keys(const AttentionAttr& attr, const Tensor& qkv, const Tensor& own);

/// Memory of the fast kernel, fp32.
struct ContextParts {
  Tensor o, o_part, lse_part;       ///< forward: what is merged so far, and a part of it
  Tensor d_q, d_q_part, d_kv_part;  ///< backward
};

/// Hands out a call's scratch: first the pass's, then the kernel's. Over nullptr it only counts.
class ContextMemory {
 public:
  explicit ContextMemory(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  BlockPass pass(const ContextAttentionAttr& attr, DType type, bool back);
  ContextParts kernel(const ContextAttentionAttr& attr, bool back);
  int64_t bytes() const { return bytes_; }

 private:
  Tensor take(int64_t rows, int64_t width, DType type);
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace ingot
