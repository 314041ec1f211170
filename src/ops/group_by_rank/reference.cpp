// group_by_rank in plain loops; see group_by_rank.h.
#include "ops/reference.h"

#include "ops/group_by_rank/group_by_rank.h"

namespace ingot {
namespace {

using namespace reference;

void forward(const OpCall& call) {
  build_rank_map(call);
  const Array x = load(call.in[0]), probs = load(call.in[1]);
  const auto width = static_cast<size_t>(call.in[0].dim(1)), k = static_cast<size_t>(call.in[2].dim(1));
  const auto token = load_ints(call.out[4]), ids = load_ints(call.out[2]);
  Array rows(token.size() * width), weights(token.size() * k);
  for (size_t s = 0; s < token.size(); ++s) {
    if (token[s] < 0) continue;
    const auto t = static_cast<size_t>(token[s]);
    for (size_t d = 0; d < width; ++d) rows[s * width + d] = x[t * width + d];
    for (size_t j = 0; j < k; ++j) weights[s * k + j] = ids[s * k + j] >= 0 ? probs[t * k + j] : 0;
  }
  store(call.out[0], rows);
  store(call.out[1], weights);
}

void backward_input(const OpCall& call) {
  const Array d_rows = load(call.d_out[0]), d_weights = load(call.d_out[1]);
  const auto row = load_ints(call.out[5]);
  const auto tokens = static_cast<size_t>(call.out[5].dim(0)), most = static_cast<size_t>(call.out[5].dim(1)),
             k = static_cast<size_t>(call.in[2].dim(1));
  if (call.d_in[0].wanted()) {
    const auto width = static_cast<size_t>(call.d_in[0].tensor.dim(1));
    Array d_x(tokens * width);
    for (size_t i = 0; i < row.size() && !d_rows.empty(); ++i)
      for (size_t d = 0; d < width && row[i] >= 0; ++d)
        d_x[i / most * width + d] += d_rows[static_cast<size_t>(row[i]) * width + d];
    store(call.d_in[0], d_x);
  }
  Array d_probs(tokens * k);
  const std::vector<int32_t> rows = rows_of_choices(call);
  const auto copies = static_cast<size_t>(call.attr<GroupByRankAttr>().copies);
  for (size_t i = 0; i < rows.size() && !d_weights.empty(); ++i)
    if (rows[i] >= 0) d_probs[i / copies] += d_weights[static_cast<size_t>(rows[i]) * k + i / copies % k];
  store(call.d_in[1], d_probs);
}

}  // namespace

Kernel group_by_rank_reference() {
  return {"reference", accept, forward, backward_input, nullptr};
}

}  // namespace ingot
