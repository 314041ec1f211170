// low_rank in plain loops; see low_rank.h.
#include "ops/reference.h"

#include "ops/low_rank/low_rank.h"

namespace ingot {
namespace {

using namespace reference;

/// Calls body(t, n, index into h, index into b) for every term of every output.
template <class Body>
void for_terms(const LowRankAttr& a, size_t tokens, size_t rank, Body&& body) {
  const size_t width = rank * static_cast<size_t>(a.blocks);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t block = 0, n = 0; block < static_cast<size_t>(a.blocks); ++block)
      for (int64_t i = 0; i < a.rows[block]; ++i, ++n)
        for (size_t k = 0; k < rank; ++k) body(t, n, t * width + block * rank + k, n * rank + k);
}

void forward(const OpCall& call) {
  const auto& a = call.attr<LowRankAttr>();
  const Array h = load(call.in[1]), b = load(call.in[2]);
  Array y = load(call.in[0]);
  const auto n_out = static_cast<size_t>(call.in[0].dim(1));
  for_terms(a, static_cast<size_t>(call.in[0].dim(0)), static_cast<size_t>(call.in[2].dim(1)),
            [&](size_t t, size_t n, size_t ih, size_t ib) { y[t * n_out + n] += a.scale * h[ih] * b[ib]; });
  store(call.out[0], y);
}

void backward_input(const OpCall& call) {
  const auto& a = call.attr<LowRankAttr>();
  const Array b = load(call.in[2]), d_y = load(call.d_out[0]);
  const auto n_out = static_cast<size_t>(call.d_out[0].dim(1)),
             tokens = static_cast<size_t>(call.d_out[0].dim(0)),
             rank = static_cast<size_t>(call.in[2].dim(1));
  Array d_h(tokens * rank * static_cast<size_t>(a.blocks));
  for_terms(a, tokens, rank, [&](size_t t, size_t n, size_t ih, size_t ib) {
    d_h[ih] += a.scale * d_y[t * n_out + n] * b[ib];
  });
  store(call.d_in[0], d_y);
  store(call.d_in[1], d_h);
}

void backward_weight(const OpCall& call) {
  const auto& a = call.attr<LowRankAttr>();
  const Array h = load(call.in[1]), d_y = load(call.d_out[0]);
  const auto n_out = static_cast<size_t>(call.d_out[0].dim(1)),
             tokens = static_cast<size_t>(call.d_out[0].dim(0)),
             rank = static_cast<size_t>(call.in[1].dim(1)) / static_cast<size_t>(a.blocks);
  Array d_b(n_out * rank);
  for_terms(a, tokens, rank, [&](size_t t, size_t n, size_t ih, size_t ib) {
    d_b[ib] += a.scale * d_y[t * n_out + n] * h[ih];
  });
  store(call.d_in[2], d_b);
}

}  // namespace

Kernel low_rank_reference() {
  return {"reference", accept, forward, backward_input, backward_weight};
}

}  // namespace ingot
