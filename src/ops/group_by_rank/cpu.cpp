// group_by_rank on the CPU: both directions gather rows through the maps.
#include <cstring>

#include "ops/cpu_rows.h"
#include "ops/group_by_rank/group_by_rank.h"
#include "ops/group_by_rank/kernels.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  build_rank_map(call);
  const auto *token = call.out[4].as<int32_t>(), *ids = call.out[2].as<int32_t>();
  gather_tensor_rows({call.out[0], false}, call.in[0], token, 1);
  const int64_t k = call.in[2].dim(1);
  const auto* probs = call.in[1].as<float>();
  auto* to = call.out[1].as<float>();
  for (int64_t s = 0; s < call.out[4].numel(); ++s)
    for (int64_t j = 0; j < k; ++j) to[s * k + j] = ids[s * k + j] >= 0 ? probs[token[s] * k + j] : 0.0f;
}

void backward_input(const OpCall& call) {
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  const Tensor &d_rows = call.d_out[0], &d_weights = call.d_out[1];
  if (d_x.wanted()) {
    if (d_rows.defined())
      gather_tensor_rows(d_x, d_rows, call.out[5].as<int32_t>(), call.out[5].dim(1));
    else if (!d_x.accumulate && d_x.tensor.numel() > 0)
      std::memset(d_x.tensor.data, 0, static_cast<size_t>(d_x.tensor.bytes()));
  }
  if (!d_probs.wanted()) return;
  const std::vector<int32_t> rows = rows_of_choices(call);
  const int64_t k = call.in[2].dim(1);
  auto* to = d_probs.tensor.as<float>();
  const int64_t copies = call.attr<GroupByRankAttr>().copies;
  for (int64_t i = 0; i < d_probs.tensor.numel(); ++i) {
    float d = 0;
    for (int64_t copy = 0; copy < copies && d_weights.defined(); ++copy)
      if (const int32_t r = rows[static_cast<size_t>(i * copies + copy)]; r >= 0)
        d += d_weights.as<float>()[r * k + i % k];
    to[i] = d_probs.accumulate ? to[i] + d : d;
  }
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  if (call.in[1].defined() && call.in[1].dtype() != DType::f32) return "choice weights other than f32";
  return nullptr;
}

}  // namespace

std::vector<Kernel> group_by_rank_kernels() {
  return {{"cpu", refuse, forward, backward_input, nullptr}, group_by_rank_reference()};
}

}  // namespace ingot
