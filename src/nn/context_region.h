// Attention where context ranks have chunks of each sequence: the places that look along it.
#pragma once
#include "nn/context.h"
#include "ops/attention/attention.h"
#include "ops/cca/cca.h"

namespace ingot {

/// ops/attention of the call's rows over whole documents; attr.rows is set here. On context ranks in the form that the
/// context asks for; Error where heads cannot be shared out in the form heads.
AttentionResult attend(Context& c, AttentionAttr attr, const Value& qkv_TW);

/// ops/cca of the call's rows; attr.rows is set here. On context ranks each chunk gets its two predecessors first.
Value prepare_cca(Context& c, CcaAttr attr, const Value& qkv_TW, const CcaParams& params);

}  // namespace ingot
