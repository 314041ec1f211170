// permute and unpermute on the CPU: gathers and sums of whole rows, one writer per row.
#include <cstring>

#include "ops/cpu_rows.h"
#include "ops/permute/kernels.h"
#include "ops/permute/permute.h"

namespace ingot {
namespace {

constexpr int64_t kElements = 1 << 14;  // of a piece of work

const char* row_at(const Tensor& t, int64_t row) {
  return static_cast<const char*>(t.data) + row * t.dim(1) * size_of(t.dtype());
}

/// to[r] = from[index[r]]; rows with a negative index are zero.
void gather_rows(const Tensor& to, const Tensor& from, const int32_t* index) {
  const int64_t width = to.dim(1), bytes = width * size_of(to.dtype());
  parallel_for(to.dim(0), row_grain(width, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      auto* out = const_cast<char*>(row_at(to, r));
      if (index[r] < 0) std::memset(out, 0, static_cast<size_t>(bytes));
      else if (to.dtype() == from.dtype()) std::memcpy(out, row_at(from, index[r]), static_cast<size_t>(bytes));
      else INGOT_ISA_CALL(array_copy)(out, to.dtype(), row_at(from, index[r]), from.dtype(), width, false);
    }
  });
}

/// to[t] (+)= sum over the slots of token t of from[row[t, slot]], in slot order, in fp32.
void sum_rows(const Tensor& to, bool accumulate, const Tensor& from, const int32_t* row, int64_t k) {
  const int64_t width = to.dim(1);
  parallel_for(to.dim(0), row_grain(width * k, kElements), [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(width));
    for (int64_t t = begin; t < end; ++t) {
      std::memset(sum.data(), 0, sum.size() * sizeof(float));
      for (int64_t j = 0; j < k; ++j)
        if (const int32_t r = row[t * k + j]; r >= 0)
          INGOT_ISA_CALL(array_copy)(sum.data(), DType::f32, row_at(from, r), from.dtype(), width, true);
      INGOT_ISA_CALL(array_copy)
      (const_cast<char*>(row_at(to, t)), to.dtype(), sum.data(), DType::f32, width, accumulate);
    }
  });
}

void forward(const OpCall& call) {
  const auto& a = call.attr<PermuteAttr>();
  const Tensor &x = call.in[0], &ids = call.in[2];
  const auto* token = call.out[3].as<int32_t>();
  const auto* row = call.out[4].as<int32_t>();
  build_row_map(ids.as<int32_t>(), ids.dim(0), ids.dim(1), a.first, a.experts, call.out[2].as<int32_t>(),
                call.out[3].as<int32_t>(), call.out[4].as<int32_t>());
  gather_rows(call.out[0], x, token);
  const auto* probs = call.in[1].as<float>();
  auto* p = call.out[1].as<float>();
  const int64_t slots = ids.numel();
  for (int64_t s = 0; s < slots; ++s) p[s] = 0;
  for (int64_t s = 0; s < slots; ++s)
    if (row[s] >= 0) p[row[s]] = probs[s];
}

void backward_input(const OpCall& call) {
  const auto* row = call.out[4].as<int32_t>();
  const int64_t k = call.out[4].dim(1), slots = call.out[4].numel();
  const GradSlot &d_x = call.d_in[0], &d_probs = call.d_in[1];
  if (d_x.wanted()) {
    if (call.d_out[0].defined()) sum_rows(d_x.tensor, d_x.accumulate, call.d_out[0], row, k);
    else if (!d_x.accumulate) std::memset(d_x.tensor.data, 0, static_cast<size_t>(d_x.tensor.bytes()));
  }
  if (!d_probs.wanted()) return;
  auto* d = d_probs.tensor.as<float>();
  const float* d_p = call.d_out[1].defined() ? call.d_out[1].as<float>() : nullptr;
  for (int64_t s = 0; s < slots; ++s) {
    const float v = d_p != nullptr && row[s] >= 0 ? d_p[row[s]] : 0.0f;
    d[s] = d_probs.accumulate ? d[s] + v : v;
  }
}

void forward_back(const OpCall& call) {
  const Tensor& row = call.in[1];
  sum_rows(call.out[0], false, call.in[0], row.as<int32_t>(), row.dim(1));
}

void backward_back(const OpCall& call) {
  const GradSlot& d_rows = call.d_in[0];
  const auto* token = call.in[2].as<int32_t>();
  const Tensor& d_y = call.d_out[0];
  if (!d_rows.wanted()) return;
  if (!d_rows.accumulate) return gather_rows(d_rows.tensor, d_y, token);
  const int64_t width = d_y.dim(1);
  parallel_for(d_rows.tensor.dim(0), row_grain(width, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      if (token[r] >= 0)
        INGOT_ISA_CALL(array_copy)
        (const_cast<char*>(row_at(d_rows.tensor, r)), d_rows.tensor.dtype(), row_at(d_y, token[r]), d_y.dtype(), width, true);
  });
}

}  // namespace

std::vector<Kernel> permute_kernels() {
  return {{"cpu", refuse_other_floats, forward, backward_input, nullptr}, permute_reference()};
}
std::vector<Kernel> unpermute_kernels() {
  return {{"cpu", refuse_other_floats, forward_back, backward_back, nullptr}, unpermute_reference()};
}

}  // namespace ingot
