// head's kernels for GPUs where every id is allowed, exact ones of f32 and those of bf16 on tensor cores:
// products of chunks of rows, and the launches of head.cu between them. On tensor cores logits are capped and
// scaled in the product.
#include <type_traits>

#include "device/simd/gpu_array.h"
#include "ops/gpu_product_operands.h"
#include "ops/head/call.h"
#include "ops/head/gpu_head.h"
#include "ops/head/head.h"

namespace ingot {
namespace {

using namespace head_slot;

template <class T>
T* at(const Tensor& t, int64_t element) {
  return t.defined() && t.numel() > 0 ? device_address<T>(t) + element : nullptr;
}

/// Logits of `count` rows of the call, and what becomes of them.
template <class Product>
struct Chunk {
  const OpCall& call;
  int64_t first, count;
  float* logits;
  int64_t stride;

  int64_t vocabulary() const { return call.in[weight].dim(0); }
  int64_t width() const { return call.in[weight].dim(1); }
  Tensor rows_of(const Tensor& t) const { return t.slice(first, first + count); }
  /// As operands.
  Tensor floats(void* rows) const { return {rows, {count, vocabulary()}, DType::f32}; }

  void form_logits() const {
    Product p;
    set_operands(p, rows_of(call.in[x]), call.in[weight], floats(logits));
    p.m = count, p.n = vocabulary(), p.k = width();
    p.a_row = p.k, p.b_k = 1, p.b_column = p.k, p.c_row = stride;
    const auto& a = call.attr<HeadAttr>();
    if constexpr (std::is_same_v<Product, GpuMmaProduct>) {  // which finishes its sums as it stores them
      p.cap = a.cap.factors(), p.scale = a.scale;
      return launch(p);
    }
    launch(p);
    if (a.cap.on() || a.scale != 1)
      INGOT_GPU_CALL(launch_head_logits)({}, {logits, stride, p.n, a.cap.factors(), a.scale}, count);
  }

  void statistics() const {
    HeadStatistics p{};
    p.vocabulary = vocabulary();
    p.logits = logits, p.stride = stride;
    p.targets = at<const int32_t>(call.in[targets], first);
    p.teacher = at<const float>(call.in[teacher], first * p.vocabulary);
    p.logprob = at<float>(call.out[logprob], first), p.lse = at<float>(call.out[lse], first);
    p.entropy = at<float>(call.out[entropy], first), p.kl = at<float>(call.out[kl], first);
    p.best = at<int32_t>(call.out[best], first);
    INGOT_GPU_CALL(launch_head_statistics)({}, p, count);
  }

  /// Without statistics and their cotangents.
  HeadCotangents cotangents(float* to, int64_t to_stride) const {
    const auto& a = call.attr<HeadAttr>();
    HeadCotangents p{};
    p.vocabulary = vocabulary();
    p.cap = a.cap.factors(), p.scale = a.scale;
    p.logits = logits, p.stride = stride;
    p.d_logits = to, p.d_type = DType::f32, p.d_stride = to_stride;
    p.targets = at<const int32_t>(call.in[targets], first);
    p.lse = at<const float>(call.out[lse], first);
    return p;
  }

  /// On tensor cores the cotangents of logits are rounded, as on the CPU.
  void gradients(const HeadCotangents& d, const GradSlot& to_x, const GradSlot& to_w) const {
    INGOT_GPU_CALL(launch_head_d_logits)({}, d, count);
    const Tensor d_logits = floats(d.d_logits);
    if (to_x.wanted()) {
      Product p;
      set_operands(p, d_logits, call.in[weight], rows_of(to_x.tensor));
      round_first(p);
      p.m = count, p.n = width(), p.k = vocabulary();
      p.a_row = d.d_stride, p.b_k = p.n, p.c_row = p.n, p.accumulate = to_x.accumulate;
      launch(p);
    }
    if (to_w.wanted()) {
      Product p;
      set_operands(p, d_logits, rows_of(call.in[x]), to_w.tensor);
      round_first(p);
      p.m = vocabulary(), p.n = width(), p.k = count;
      p.a_row = 1, p.a_k = d.d_stride, p.b_k = p.n, p.c_row = p.n;
      p.accumulate = to_w.accumulate || first > 0;
      launch(p);
    }
  }
};

int64_t chunk_of(const OpCall& call) {
  const Tensor& w = call.in[weight];
  return head_chunk_rows(call.attr<HeadAttr>().chunk, call.in[x].dim(0), w.dim(0), w.dim(1));
}

template <class Product>
void forward(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  const int64_t rows = call.in[x].dim(0), vocabulary = call.in[weight].dim(0);
  if (a.mode == HeadMode::store) {
    const Chunk<Product> all{call, 0, rows, device_address<float>(call.out[logits]), vocabulary};
    all.form_logits();
    return all.statistics();
  }
  const int64_t stride = head_row_stride(vocabulary);
  each_head_chunk(rows, chunk_of(call), [&](int64_t first, int64_t count) {
    const Chunk<Product> c{call, first, count, static_cast<float*>(call.scratch), stride};
    c.form_logits();
    c.statistics();
    if (a.mode != HeadMode::gradient) return;
    HeadCotangents d = c.cotangents(c.logits, stride);
    d.d_logprob = at<const float>(call.in[row_weight], first);
    d.z_scale = 2 * a.z_coefficient;
    c.gradients(d, {call.out[d_x], false}, call.d_in.empty() ? GradSlot{} : call.d_in[weight]);
  });
}

template <class Product>
void backward_input(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  if (a.mode == HeadMode::gradient) {  // formed in forward
    const GradSlot& to = call.d_in[x];
    if (to.wanted()) INGOT_GPU_CALL(launch_array_copy)
    ({}, {to.tensor.data, to.tensor.dtype(), call.out[d_x].data, call.out[d_x].dtype(), to.tensor.numel(),
          to.accumulate});
    return;
  }
  const int64_t rows = call.in[x].dim(0), vocabulary = call.in[weight].dim(0),
                stride = head_row_stride(vocabulary);
  auto* const scratch = static_cast<float*>(call.scratch);
  each_head_chunk(rows, chunk_of(call), [&](int64_t first, int64_t count) {
    Chunk<Product> c{call, first, count, scratch, stride};
    if (a.mode == HeadMode::store)
      c.logits = at<float>(call.out[logits], first * vocabulary), c.stride = vocabulary;
    else
      c.form_logits();
    HeadCotangents d = c.cotangents(scratch, stride);
    d.teacher = at<const float>(call.in[teacher], first * vocabulary);
    d.entropy = at<const float>(call.out[entropy], first);
    d.d_logprob = at<const float>(call.d_out[logprob], first),
    d.d_lse = at<const float>(call.d_out[lse], first);
    d.d_entropy = at<const float>(call.d_out[entropy], first),
    d.d_kl = at<const float>(call.d_out[kl], first);
    c.gradients(d, call.d_in[x], call.d_in[weight]);
  });
}

const char* refuse_ids(const OpCall& call) {
  return call.in[allowed].defined() ? "rows that do not allow every id" : nullptr;
}
const char* refuse(const OpCall& call) {
  const char* const reason = refuse_ids(call);
  return reason != nullptr ? reason : refuse_other_than_f32(call);
}
const char* refuse_mma(const OpCall& call) {
  if (const char* reason = refuse_ids(call)) return reason;
  if (const char* reason = refuse_weight_types(call, weight)) return reason;
  if (call.in[teacher].defined() && call.in[teacher].dtype() != DType::f32) return "a teacher other than f32";
  // Mode gradient shows neither to its backward pass.
  for (const In i : {x, weight})
    if (call.in[i].defined() && call.in[i].dtype() != DType::bf16) return "operands of f32";
  return nullptr;
}

constexpr GpuLaunches kLaunches{refuse, forward<GpuProduct>, backward_input<GpuProduct>};
constexpr GpuLaunches kMmaLaunches =
    on_tensor_cores({refuse_mma, forward<GpuMmaProduct>, backward_input<GpuMmaProduct>}, weight);

}  // namespace

Kernel head_gpu() {
  return emulated_kernel<head_op, kLaunches>();
}
Kernel head_mma_gpu() {
  return emulated_kernel<head_op, kMmaLaunches>();
}

}  // namespace ingot
