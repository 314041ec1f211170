// Attention over sequences of which context ranks have chunks: the two ops that look along a sequence.
#pragma once
#include "nn/context.h"
#include "ops/attention/attention.h"
#include "ops/cca/cca.h"

namespace ingot {

/// ops/attention over whole documents; attr.rows is set here. On context ranks the inner group exchanges
/// heads, then inner groups exchange keys and values. Throws Error where heads do not divide among the inner
/// group.
AttentionResult attend(Context& c, AttentionAttr attr, const Value& qkv_TW);

/// ops/cca of the call's rows; attr.rows is set here. On context ranks each chunk first gets its two
/// predecessor rows.
Value prepare_cca(Context& c, CcaAttr attr, const Value& qkv_TW, const CcaParams& params);

}  // namespace ingot
