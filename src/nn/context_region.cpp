// See context_region.h.
#include "nn/context_region.h"

#include "ops/context/context_attention.h"
#include "ops/context/heads.h"

namespace ingot {
namespace {

bool has_chunks(const Context& c) {
  const bool ranks = c.context != nullptr && c.context->size() > 1;
  INGOT_CHECK(
      ranks == (c.context_rows != nullptr) && (!ranks || c.context_rows->ranks() == c.context->size()),
      "context_rows does not belong to the context group");
  return ranks;
}

/// Attention over rows of which the inner groups have chunks.
AttentionResult attend_across(Context& c, AttentionAttr attr, const Value& qkv_TW) {
  if (c.context_outer->size() > 1)
    return context_attention(
        c.tape, {attr, {c.context_outer, &c.context_rows->outer()}, c.context_form == ContextForm::ring},
        qkv_TW);
  attr.rows = &c.context_rows->whole();
  return attention(c.tape, attr, qkv_TW);
}

AttentionResult attend_in_chunks(Context& c, AttentionAttr attr, const Value& qkv_TW) {
  const int64_t n = c.context_inner->size();
  if (n == 1) return attend_across(c, attr, qkv_TW);
  if (attr.heads % n != 0 || attr.kv_heads % n != 0)
    throw Error(
        fmt::format("{} query and {} key-value heads of a rank do not divide among {} context ranks",
                    attr.heads, attr.kv_heads, n),
        "let fewer context ranks exchange heads (the forms gather and ring), or take fewer tensor ranks");
  const ContextAttr context{c.context_inner, &c.context_rows->inner()};
  const HeadsAttr packed{
      context, {attr.heads, attr.kv_heads, attr.kv_heads}, {attr.head_width, attr.head_width, attr.values()}};
  const HeadsAttr out{context, {attr.heads}, {attr.values()}};
  attr.heads /= n, attr.kv_heads /= n;
  AttentionResult a = attend_across(c, attr, rows_to_heads(c.tape, packed, qkv_TW));
  a.o = heads_to_rows(c.tape, out, a.o);
  return a;
}

}  // namespace

AttentionResult attend(Context& c, AttentionAttr attr, const Value& qkv_TW) {
  if (has_chunks(c)) return attend_in_chunks(c, attr, qkv_TW);
  attr.rows = c.rows;
  return attention(c.tape, attr, qkv_TW, c.documents);
}

Value prepare_cca(Context& c, CcaAttr attr, const Value& qkv_TW, const CcaParams& params) {
  if (!has_chunks(c)) {
    attr.rows = c.rows;
    return cca(c.tape, attr, qkv_TW, c.positions_T, params, c.documents);
  }
  const ContextAttr context{c.context, c.context_rows};
  attr.rows = &c.context_rows->with_halo();
  const std::vector<int32_t>& positions = c.context_rows->halo_positions();
  const Value positions_T =
      c.tape.leaf(Tensor::of(positions.data(), {static_cast<int64_t>(positions.size())}));
  const HaloAttr halo{context, (attr.heads + attr.kv_heads) * attr.head_width, attr.delayed_channels()};
  return without_halo(c.tape, context,
                      cca(c.tape, attr, with_halo(c.tape, halo, qkv_TW), positions_T, params));
}

}  // namespace ingot
