// embedding in plain loops; see embedding.h.
#include "ops/reference.h"

#include "ops/embedding/embedding.h"

namespace ingot {
namespace {

using reference::Array;

void forward(const OpCall& call) {
  const auto ids = reference::load_ints(call.in[0]);
  const Array table = reference::load(call.in[1]);
  const auto width = static_cast<size_t>(call.in[1].dim(1));
  Array y(ids.size() * width);
  for (size_t t = 0; t < ids.size(); ++t) {
    if (!call.attr<EmbeddingAttr>().legal(ids[t], call.in[1].dim(0)))
      fail("token {} at position {} is outside the vocabulary of {}", ids[t], t, call.in[1].dim(0));
    for (size_t d = 0; d < width && ids[t] >= 0; ++d)
      y[t * width + d] = table[static_cast<size_t>(ids[t]) * width + d];
  }
  reference::store(call.out[0], y);
}

void backward_weight(const OpCall& call) {
  const auto ids = reference::load_ints(call.in[0]);
  const Array d_y = reference::load(call.d_out[0]);
  const Tensor& table = call.d_in[1].tensor;
  const auto width = static_cast<size_t>(table.dim(1));
  Array d_table(static_cast<size_t>(table.numel()));
  for (size_t t = 0; t < ids.size(); ++t)
    for (size_t d = 0; d < width && ids[t] >= 0; ++d)
      d_table[static_cast<size_t>(ids[t]) * width + d] += d_y[t * width + d];
  reference::store(call.d_in[1], d_table);
}

}  // namespace

Kernel embedding_reference() {
  return {"reference", reference::accept, forward, nullptr, backward_weight};
}

}  // namespace ingot
