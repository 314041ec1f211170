// Attention where context ranks have chunks of each sequence: the places that look along it.
#pragma once
#include "nn/context.h"
#include "ops/attention/attention.h"
#include "ops/cca/cca.h"

namespace ingot {

/// ops/attention of the call's rows over whole documents; attr.rows is set here. On context ranks neighbours exchange heads, then
/// groups of them keys and values, where there are several; Error where heads cannot be shared out.
AttentionResult attend(Context& c, AttentionAttr attr, const Value& qkv_TW);

/// ops/cca of the call's rows; attr.rows is set here. On context ranks each chunk gets its two predecessors first.
Value prepare_cca(Context& c, CcaAttr attr, const Value& qkv_TW, const CcaParams& params);

}  // namespace ingot
