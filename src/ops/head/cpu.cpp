// head on the CPU: logits of a chunk of rows by a matrix product, their statistics and cotangents row by row
// in place, the gradients by two more products. The chain of a weight gradient runs on through the chunks.
#include "device/gemm/gemm.h"
#include "device/gemm/packed_registry.h"
#include "ops/cpu_rows.h"
#include "ops/head/head.h"
#include "ops/head/kernels.h"
#include "ops/head/row_kernels.h"

namespace ingot {
namespace {

using namespace head_slot;

constexpr int64_t kElements = 1 << 15;  // of the logits, per piece of work

/// Rows first .. first + count of the call.
struct Chunk {
  int64_t first, count;
};

/// Logits of a chunk, `stride` floats from row to row.
struct LogitRows {
  float* data;
  int64_t stride;
};

/// Cotangents of a chunk's logits, `stride` elements from row to row.
struct CotangentRows {
  void* data;
  DType type;
  int64_t stride;
};

/// Cotangents in place of the logits. Like the gradient of every product they have the type of the operands they meet: rounded to bf16
/// once where the head's input and weight are both bf16.
CotangentRows cotangents_in(const OpCall& call, LogitRows l) {
  const bool bf16 = call.in[x].dtype() == DType::bf16 && value_type(call.in[weight].dtype()) == DType::bf16;
  return bf16 ? CotangentRows{l.data, DType::bf16, 2 * l.stride}
              : CotangentRows{l.data, DType::f32, l.stride};
}

template <class T>
T* at(const Tensor& t, int64_t element) {
  return t.defined() && t.numel() > 0 ? t.as<T>() + element : nullptr;
}

const void* row_of(const Tensor& t, int64_t row) {
  return static_cast<const char*>(t.data) + row * t.dim(1) * size_of(t.dtype());
}

void form_logits(const OpCall& call, Chunk c, LogitRows to) {
  const Tensor &in = call.in[x], &w = call.in[weight];
  GemmArgs g;
  g.m = c.count, g.n = w.dim(0), g.k = w.dim(1);
  g.a = row_of(in, c.first), g.a_type = in.dtype(), g.lda = g.k;
  g.b = w.data, g.b_type = w.dtype(), g.b_transposed = true, g.ldb = g.k;
  g.packed = packed_at(w.data);
  g.c = to.data, g.ldc = to.stride;
  gemm(g);
  const SoftCap& cap = call.attr<HeadAttr>().cap;
  if (!cap.on()) return;
  parallel_for(c.count, row_grain(g.n, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      INGOT_ISA_CALL(head_soft_cap)(cap.factors(), to.data + t * to.stride, g.n);
  });
}

/// The statistics of a chunk's rows and, where `d` says how, the cotangents of its logits: in one pass over memory.
void statistics(const OpCall& call, Chunk c, LogitRows l, const HeadCotangents* d = nullptr) {
  HeadStatistics p{};
  p.vocabulary = call.in[weight].dim(0);
  p.logits = l.data, p.stride = l.stride;
  p.targets = at<int32_t>(call.in[targets], c.first);
  p.teacher = at<float>(call.in[teacher], c.first * p.vocabulary);
  p.logprob = at<float>(call.out[logprob], c.first), p.lse = at<float>(call.out[lse], c.first);
  p.entropy = at<float>(call.out[entropy], c.first), p.kl = at<float>(call.out[kl], c.first);
  p.best = at<int32_t>(call.out[best], c.first);
  parallel_for(c.count, row_grain(p.vocabulary, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      INGOT_ISA_CALL(head_statistics)(p, t, t + 1);
      if (d != nullptr) INGOT_ISA_CALL(head_d_logits)(*d, t, t + 1);
    }
  });
}

void d_logits(HeadCotangents p, int64_t rows) {
  parallel_for(rows, row_grain(p.vocabulary, kElements), [&](int64_t begin, int64_t end) {
    INGOT_ISA_CALL(head_d_logits)(p, begin, end);
  });
}

/// The gradients of a chunk. `room` holds a chunk of d_x in fp32, for a bf16 slot that accumulates.
void gradient_products(const OpCall& call, Chunk c, CotangentRows d_l, const GradSlot& to_x,
                       const GradSlot& to_w, float* room) {
  const Tensor &in = call.in[x], &w = call.in[weight];
  const int64_t vocabulary = w.dim(0), width = w.dim(1);
  if (to_x.wanted()) {
    const DType type = to_x.tensor.dtype();
    const bool through_room = to_x.accumulate && type == DType::bf16;
    void* place = const_cast<void*>(row_of(to_x.tensor, c.first));
    GemmArgs g;
    g.m = c.count, g.n = width, g.k = vocabulary;
    g.a = d_l.data, g.a_type = d_l.type, g.lda = d_l.stride;
    g.b = w.data, g.b_type = w.dtype(), g.ldb = width;
    g.c = through_room ? room : place, g.c_type = through_room ? DType::f32 : type, g.ldc = width;
    g.accumulate = to_x.accumulate && !through_room;
    gemm(g);
    if (through_room) copy_tensor(place, type, room, DType::f32, c.count * width, true);
  }
  if (to_w.wanted()) {
    GemmArgs g;
    g.m = vocabulary, g.n = width, g.k = c.count;
    g.a = d_l.data, g.a_type = d_l.type, g.a_transposed = true, g.lda = d_l.stride;
    g.b = row_of(in, c.first), g.b_type = in.dtype(), g.ldb = width;
    g.c = to_w.tensor.data, g.ldc = width;
    g.accumulate = to_w.accumulate || c.first > 0;
    gemm(g);
  }
}

/// Calls f for each chunk; without rows once for an empty one, so that gradients are still written.
template <class F>
void each_chunk(int64_t rows, int64_t chunk, F&& f) {
  int64_t first = 0;
  do {
    f(Chunk{first, std::min(chunk, rows - first)});
    first += chunk;
  } while (first < rows);
}

void check_targets(const Tensor& t, int64_t vocabulary) {
  for (int64_t i = 0; i < t.numel(); ++i)
    INGOT_CHECK(t.as<int32_t>()[i] < vocabulary, "target {} of {}", t.as<int32_t>()[i], vocabulary);
}

void forward(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  const int64_t rows = call.in[x].dim(0), vocabulary = call.in[weight].dim(0);
  check_targets(call.in[targets], vocabulary);
  if (a.mode == HeadMode::store) {
    if (rows == 0) return;
    const LogitRows all{call.out[logits].as<float>(), vocabulary};
    form_logits(call, {0, rows}, all);
    statistics(call, {0, rows}, all);
    return;
  }
  const LogitRows l{static_cast<float*>(call.scratch), head_row_stride(vocabulary)};
  const CotangentRows d_l = cotangents_in(call, l);
  each_chunk(rows, head_chunk(a.chunk, rows, vocabulary, call.in[weight].dim(1)), [&](Chunk c) {
    form_logits(call, c, l);
    if (a.mode != HeadMode::gradient) return statistics(call, c, l);
    HeadCotangents p{};
    p.vocabulary = vocabulary;
    p.cap = a.cap.factors();
    p.logits = l.data, p.stride = l.stride;
    p.d_logits = d_l.data, p.d_type = d_l.type, p.d_stride = d_l.stride;
    p.targets = at<int32_t>(call.in[targets], c.first);
    p.lse = at<float>(call.out[lse], c.first);
    p.d_logprob = at<float>(call.in[row_weight], c.first);
    p.z_scale = 2 * a.z_coefficient;
    statistics(call, c, l, &p);
    const GradSlot to_w = call.d_in.empty() ? GradSlot{} : call.d_in[weight];
    gradient_products(call, c, d_l, {call.out[d_x], false}, to_w, nullptr);
  });
}

void backward_input(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  if (a.mode == HeadMode::gradient) {  // formed in forward
    copy_tensor(call.d_in[x], call.out[d_x]);
    return;
  }
  const int64_t rows = call.in[x].dim(0), vocabulary = call.in[weight].dim(0);
  const int64_t chunk = head_chunk(a.chunk, rows, vocabulary, call.in[weight].dim(1));
  const LogitRows l{static_cast<float*>(call.scratch), head_row_stride(vocabulary)};
  const CotangentRows d_l = cotangents_in(call, l);
  each_chunk(rows, chunk, [&](Chunk c) {
    HeadCotangents p{};
    p.vocabulary = vocabulary;
    p.cap = a.cap.factors();
    p.logits = l.data, p.stride = l.stride;
    p.d_logits = d_l.data, p.d_type = d_l.type, p.d_stride = d_l.stride;
    if (a.mode == HeadMode::store)
      p.logits = at<float>(call.out[logits], c.first * vocabulary), p.stride = vocabulary;
    else
      form_logits(call, c, l);
    p.targets = at<int32_t>(call.in[targets], c.first);
    p.teacher = at<float>(call.in[teacher], c.first * vocabulary);
    p.lse = at<float>(call.out[lse], c.first), p.entropy = at<float>(call.out[entropy], c.first);
    p.d_logprob = at<float>(call.d_out[logprob], c.first), p.d_lse = at<float>(call.d_out[lse], c.first);
    p.d_entropy = at<float>(call.d_out[entropy], c.first), p.d_kl = at<float>(call.d_out[kl], c.first);
    d_logits(p, c.count);
    gradient_products(call, c, d_l, call.d_in[x], call.d_in[weight], l.data + chunk * l.stride);
  });
}

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call, weight)) return reason;
  if (call.in[teacher].defined() && call.in[teacher].dtype() != DType::f32) return "a teacher other than f32";
  if (!call.d_in.empty() && call.d_in[weight].wanted() && call.d_in[weight].tensor.dtype() != DType::f32)
    return "a weight gradient other than f32";
  return nullptr;
}

}  // namespace

std::vector<Kernel> head_kernels() {
  return {{"cpu", refuse, forward, backward_input, nullptr}, head_reference()};
}

}  // namespace ingot
