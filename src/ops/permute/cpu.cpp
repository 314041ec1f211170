// permute and unpermute on the CPU: both directions gather rows through the map.
#include <cstring>

#include "ops/cpu_rows.h"
#include "ops/permute/kernels.h"
#include "ops/permute/permute.h"

namespace ingot {
namespace {

void forward(const OpCall& call) {
  const Tensor &ids = call.in[2], &p = call.out[1];
  const auto *token = call.out[3].as<int32_t>(), *row = call.out[4].as<int32_t>();
  build_row_map(call);
  const int64_t rows = rows_before_end(call.out[2], call.out[0].dim(0));
  gather_tensor_rows({call.out[0].slice(0, rows), false}, call.in[0], token, 1);
  if (p.numel() > 0) std::memset(p.data, 0, static_cast<size_t>(p.bytes()));
  for (int64_t s = 0; s < ids.numel(); ++s)
    if (row[s] >= 0) p.as<float>()[row[s]] = call.in[1].as<float>()[s];
}

void backward_input(const OpCall& call) {
  const Tensor& map = call.out[4];
  const auto* row = map.as<int32_t>();
  const Tensor &d_rows = call.d_out[0], &d_p = call.d_out[1];
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  if (d_x.wanted()) {
    if (d_rows.defined())
      gather_tensor_rows(d_x, d_rows, row, map.dim(1));
    else if (!d_x.accumulate && d_x.tensor.numel() > 0)
      std::memset(d_x.tensor.data, 0, static_cast<size_t>(d_x.tensor.bytes()));
  }
  if (!d_probs.wanted()) return;
  auto* to = d_probs.tensor.as<float>();
  for (int64_t s = 0; s < map.numel(); ++s) {
    const float d = d_p.defined() && row[s] >= 0 ? d_p.as<float>()[row[s]] : 0.0f;
    to[s] = d_probs.accumulate ? to[s] + d : d;
  }
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  if (call.in[1].defined() && call.in[1].dtype() != DType::f32) return "choice weights other than f32";
  return nullptr;
}

void forward_back(const OpCall& call) {
  gather_tensor_rows({call.out[0], false}, call.in[0], call.in[1].as<int32_t>(), call.in[1].dim(1));
}

void backward_back(const OpCall& call) {
  const GradSlot& d_rows = call.d_in[0];
  if (!d_rows.wanted()) return;
  const int64_t rows = rows_before_end(call.in[3], d_rows.tensor.dim(0));
  gather_tensor_rows({d_rows.tensor.slice(0, rows), d_rows.accumulate}, call.d_out[0],
                     call.in[2].as<int32_t>(), 1);
}

}  // namespace

std::vector<Kernel> permute_kernels() {
  return {{"cpu", refuse, forward, backward_input, nullptr}, permute_reference()};
}
std::vector<Kernel> unpermute_kernels() {
  return {{"cpu", refuse_other_floats, forward_back, backward_back, nullptr}, unpermute_reference()};
}

}  // namespace ingot
