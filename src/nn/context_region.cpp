// See context_region.h.
#include "nn/context_region.h"

#include "ops/context/context_attention.h"
#include "ops/context/heads.h"

namespace ingot {
namespace {

bool has_chunks(const Context& c) {
  const bool ranks = c.context != nullptr && c.context->size() > 1;
  INGOT_CHECK(ranks == (c.context_rows != nullptr) && (!ranks || c.context_rows->ranks() == c.context->size()),
              "context ranks and their rows do not fit");
  return ranks;
}

AttentionResult attend_by_heads(Context& c, AttentionAttr attr, const Value& qkv_TW) {
  const int64_t n = c.context->size();
  if (attr.heads % n != 0 || attr.kv_heads % n != 0)
    throw Error(fmt::format("{} query and {} key-value heads of a rank cannot be shared out over {} context ranks", attr.heads,
                            attr.kv_heads, n),
                "take the form gather or ring, or fewer context or tensor ranks");
  const ContextAttr context{c.context, c.context_rows};
  const HeadsAttr packed{context, {attr.heads, attr.kv_heads, attr.kv_heads}, {attr.head_width, attr.head_width, attr.values()}};
  const HeadsAttr out{context, {attr.heads}, {attr.values()}};
  attr.heads /= n, attr.kv_heads /= n;
  attr.rows = &c.context_rows->whole();
  AttentionResult a = attention(c.tape, attr, rows_to_heads(c.tape, packed, qkv_TW));
  a.o = heads_to_rows(c.tape, out, a.o);
  return a;
}

}  // namespace

AttentionResult attend(Context& c, AttentionAttr attr, const Value& qkv_TW) {
  if (!has_chunks(c)) {
    attr.rows = c.rows;
    return attention(c.tape, attr, qkv_TW);
  }
  if (c.context_form == ContextForm::heads) return attend_by_heads(c, attr, qkv_TW);
  return context_attention(c.tape, {attr, {c.context, c.context_rows}, c.context_form == ContextForm::ring}, qkv_TW);
}

Value prepare_cca(Context& c, CcaAttr attr, const Value& qkv_TW, const CcaParams& params) {
  if (!has_chunks(c)) {
    attr.rows = c.rows;
    return cca(c.tape, attr, qkv_TW, c.positions_T, params);
  }
  const ContextAttr context{c.context, c.context_rows};
  attr.rows = &c.context_rows->with_halo();
  const std::vector<int32_t>& positions = c.context_rows->halo_positions();
  const Value positions_T = c.tape.leaf(Tensor::of(positions.data(), {static_cast<int64_t>(positions.size())}));
  return without_halo(c.tape, context, cca(c.tape, attr, with_halo(c.tape, context, qkv_TW), positions_T, params));
}

}  // namespace ingot
