// See registry.h. An op of this tree is one line in the list below.
#include "ops/registry.h"

#include <string_view>

#include "base/error.h"
#include "base/hash.h"

namespace ingot {

/// The list, in the order of the fingerprint. The headers of the folders declare the same functions.
// clang-format off
#define INGOT_OPS(op)     \
  op(activation)          \
  op(add)                 \
  op(add_norm)            \
  op(attention)           \
  op(cca)                 \
  op(embedding)           \
  op(grouped_linear)      \
  op(head)                \
  op(linear)              \
  op(low_rank)            \
  op(mix)                 \
  op(mla_cached)          \
  op(mla_latents)         \
  op(mla_pack)            \
  op(permute)             \
  op(qk_prepare)          \
  op(route)               \
  op(sequence_balance)    \
  op(capacity)            \
  op(assign)              \
  op(unpermute)           \
  op(copy_to_axis)        \
  op(reduce_from_axis)    \
  op(all_gather_rows)     \
  op(reduce_scatter_rows) \
  op(group_by_rank)       \
  op(exchange_rows)       \
  op(return_rows)         \
  op(merge_vocabulary)    \
  op(shard_index)         \
  op(shard_rows)          \
  op(with_halo)           \
  op(without_halo)        \
  op(rows_to_heads)       \
  op(heads_to_rows)       \
  op(context_attention)   \
  op(quantize)            \
  op(dequantize)
// clang-format on

#define INGOT_DECLARE_OP(name) const Op& name##_op();
#define INGOT_ADDRESS_OF_OP(name) &name##_op(),
INGOT_OPS(INGOT_DECLARE_OP)

namespace {

std::vector<const Op*>& list() {
  static std::vector<const Op*> ops = {INGOT_OPS(INGOT_ADDRESS_OF_OP)};
  return ops;
}

}  // namespace

const std::vector<const Op*>& all_ops() {
  return list();
}

void register_op(const Op& op) {
  for (const Op* known : list())
    if (std::string_view(known->name) == op.name) fail("an op named '{}' exists already", op.name);
  list().push_back(&op);
}

std::string kernel_set_fingerprint(DType compute, DeviceKind device) {
  return kernel_set_fingerprint(all_ops(), compute == DType::bf16 ? device : DeviceKind::cpu);
}

std::string kernel_set_fingerprint(std::span<const Op* const> ops, DeviceKind device) {
  // Results do not depend on the instruction set (numerics rule 2), so the set of kernels alone decides the
  // bits.
  std::string text = "ingot-kernels-1;";
  for (const Op* op : ops) {
    if (op->has_bits_of_a_format) continue;
    text += op->name;
    for (const Kernel& k : op->kernels) {
      if (k.device == DeviceKind::cpu) text += fmt::format(",{}", k.name);
      // A device's exact kernels are as good as the CPU's: runs move between the two.
      const bool is_on = k.is_on == nullptr || k.is_on();
      if (k.device != DeviceKind::cpu && k.device == device && !k.exact && is_on)
        text += fmt::format(",{} on {}", k.name, name_of(device));
    }
    text += ';';
  }
  return fmt::format("{:016x}", hash64(text));
}

}  // namespace ingot
