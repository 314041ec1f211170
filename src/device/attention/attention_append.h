// Attention over cached keys whose newest ones the call itself brings. The task that reads a head's blocks
// writes its new key and value first: their lines are in its caches then, prefetched by the task before.
// Writing them ahead, for all sequences, would wait for memory once more.
#pragma once
#include <functional>

#include "device/attention/attention.h"

namespace ingot {

/// Writes the key and the value of the one row of span `span`, of key-value head `head`, into their blocks.
/// Called from several threads, once for each span and head.
using AppendRow = std::function<void(int64_t span, int64_t head)>;

/// attention_forward() where rows of spans with blocks that have one row are appended by its tasks.
void attention_forward(const AttentionArgs& args, const AppendRow& append);

}  // namespace ingot
