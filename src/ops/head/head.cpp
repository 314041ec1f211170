// See head.h: the op's description, and its CPU kernel: logits of a chunk of rows by a matrix product,
// their statistics and cotangents row by row in place, the gradients by two more products. The chain of a
// weight gradient runs on through the chunks.
#include "ops/head/head.h"

#include "device/gemm/gemm.h"
#include "ops/activation/activation.h"
#include "ops/common.h"
#include "ops/head/isa_head.h"
#include "ops/linear/linear.h"
#include "ops/weight_operand.h"

namespace ingot {
namespace {

using namespace head_slot;

/// Floats from row to row of a chunk of logits. The weight gradient reads columns, and rows a multiple of 4
/// KiB apart would share a set of the caches (device/gemm/gemm_kernels.h).
int64_t row_stride(int64_t vocabulary) {
  return vocabulary % 1024 == 0 ? vocabulary + 16 : vocabulary;
}

/// Rows of a chunk. Without a choice of the attribute as many as 32 MiB of logits and input gradients hold,
/// at least 256: with fewer the weight is packed again for little work, and its gradient is added up as
/// often.
int64_t chunk_rows(int32_t chosen, int64_t rows, int64_t vocabulary, int64_t width) {
  constexpr int64_t kFloats = int64_t{8} << 20, kLeast = 256, kRound = 16;
  const int64_t fitting =
      chosen > 0 ? chosen
                 : std::max(kLeast, kFloats / std::max<int64_t>(vocabulary + width, 1) / kRound * kRound);
  return std::clamp<int64_t>(rows, 1, fitting);
}

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<HeadAttr>();
  const Tensor &x_in = call.in[x], &w = call.in[weight], &t = call.in[targets];
  INGOT_CHECK(x_in.shape().rank() == 2 && w.shape().rank() == 2 && x_in.dim(1) == w.dim(1),
              "x {} by weight {}", x_in.meta.str(), w.meta.str());
  INGOT_CHECK(t.dtype() == DType::i32 && t.shape() == Shape{x_in.dim(0)}, "targets {}", t.meta.str());
  INGOT_CHECK(a.mode != HeadMode::automatic, "nobody has chosen a mode");
  INGOT_CHECK(call.in[row_weight].defined() == (a.mode == HeadMode::gradient));
  INGOT_CHECK(a.mode != HeadMode::gradient || (!a.entropy && !call.in[teacher].defined()),
              "mode gradient knows the cotangents of logprob and lse only");
  const int64_t rows = x_in.dim(0), vocabulary = w.dim(0);
  const DType statistic = statistic_of(x_in);
  out[logprob] = out[lse] = {Shape{rows}, statistic};
  out[entropy] = {Shape{a.entropy ? rows : 0}, statistic};
  out[kl] = {Shape{call.in[teacher].defined() ? rows : 0}, statistic};
  out[best] = {Shape{rows}, DType::i32};
  out[logits] = {a.mode == HeadMode::store ? Shape{rows, vocabulary} : Shape{0, vocabulary}, statistic};
  out[d_x] = {a.mode == HeadMode::gradient ? x_in.shape() : Shape{0, x_in.dim(1)}, x_in.dtype()};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  const auto vocabulary = static_cast<double>(call.in[weight].dim(0));
  const auto rows = static_cast<double>(call.in[targets].dim(0));
  const double product = 2.0 * rows * vocabulary * static_cast<double>(call.in[weight].dim(1));
  const double back = a.mode == HeadMode::recompute ? 3 * product
                      : a.mode == HeadMode::store   ? 2 * product
                                                    : 0;
  return {a.mode == HeadMode::gradient ? 3 * product : product, back, 0, tensor_bytes(call)};
}

BackwardReads reads(const void* attr_data) {
  const auto& a = *static_cast<const HeadAttr*>(attr_data);
  BackwardReads r;
  if (a.mode == HeadMode::gradient) {
    r.input_out = slot_bit(d_x);
    return r;
  }
  r.input_in = slot_bit(x) | slot_bit(weight) | slot_bit(targets) | slot_bit(teacher);
  r.input_out = slot_bit(lse) | slot_bit(entropy);
  if (a.mode == HeadMode::store) r.input_out |= slot_bit(logits);
  return r;
}

int64_t scratch_bytes(const OpCall& call) {
  // One chunk of logits, and one of a bf16 input gradient formed in fp32.
  const auto& a = call.attr<HeadAttr>();
  if (!call.in[weight].defined()) return 0;  // mode gradient has no work left
  const int64_t vocabulary = call.in[weight].dim(0), width = call.in[weight].dim(1);
  return int64_t{4} * chunk_rows(a.chunk, call.in[x].dim(0), vocabulary, width) *
         (row_stride(vocabulary) + width);
}

uint32_t early_gradients(const void* attr_data) {
  return static_cast<const HeadAttr*>(attr_data)->mode == HeadMode::gradient ? slot_bit(weight) : 0;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const HeadAttr*>(attr_data);
  return fmt::format("{} chunk={}{}{}", name_of(a.mode), a.chunk, a.entropy ? " entropy" : "",
                     a.cap.on() ? fmt::format(" cap={}", a.cap.cap) : "");
}

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

/// Cotangents in place of the logits. Like the gradient of every product they have the type of the operands
/// they meet: rounded to bf16 once where the head's input and weight are both bf16.
CotangentRows cotangents_in(const OpCall& call, LogitRows l) {
  const bool bf16 = call.in[x].dtype() == DType::bf16 && call.in[weight].dtype() == DType::bf16;
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
  set_weight(g, w);
  g.b_transposed = true, g.ldb = g.k;
  g.c = to.data, g.ldc = to.stride;
  gemm(g);
  const SoftCap& cap = call.attr<HeadAttr>().cap;
  if (!cap.on()) return;
  parallel_for(c.count, row_grain(g.n, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      INGOT_ISA_CALL(head_soft_cap)(cap.factors(), to.data + t * to.stride, g.n);
  });
}

/// The statistics of a chunk's rows and, where `d` says how, the cotangents of its logits: in one pass over
/// memory.
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
  parallel_kernel(rows, row_grain(p.vocabulary, kElements), INGOT_ISA_CALL(head_d_logits), p);
}

/// The gradients of a chunk. `scratch` holds a chunk of d_x in fp32, for a bf16 slot that accumulates.
void gradient_products(const OpCall& call, Chunk c, CotangentRows d_l, const GradSlot& to_x,
                       const GradSlot& to_w, float* scratch) {
  const Tensor &in = call.in[x], &w = call.in[weight];
  const int64_t vocabulary = w.dim(0), width = w.dim(1);
  if (to_x.wanted()) {
    const ProductTarget to(to_x, scratch, c.first * width);
    GemmArgs g;
    g.m = c.count, g.n = width, g.k = vocabulary;
    g.a = d_l.data, g.a_type = d_l.type, g.lda = d_l.stride;
    set_weight(g, w);
    g.ldb = width;
    g.c = to.data, g.c_type = to.type, g.ldc = width;
    g.accumulate = to.accumulate;
    gemm(g);
    to.finish(c.count * width);
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
  const LogitRows l{static_cast<float*>(call.scratch), row_stride(vocabulary)};
  const CotangentRows d_l = cotangents_in(call, l);
  each_chunk(rows, chunk_rows(a.chunk, rows, vocabulary, call.in[weight].dim(1)), [&](Chunk c) {
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
  const int64_t chunk = chunk_rows(a.chunk, rows, vocabulary, call.in[weight].dim(1));
  const LogitRows l{static_cast<float*>(call.scratch), row_stride(vocabulary)};
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
  if (const char* reason = refuse_other_floats(call)) return reason;
  if (call.attr<HeadAttr>().mode == HeadMode::gradient && call.in[weight].packed() != nullptr)
    return "gradients through a packed weight";
  if (call.in[teacher].defined() && call.in[teacher].dtype() != DType::f32) return "a teacher other than f32";
  if (!call.d_in.empty() && call.d_in[weight].wanted() && call.d_in[weight].tensor.dtype() != DType::f32)
    return "a weight gradient other than f32";
  return nullptr;
}

}  // namespace

const Op& head_op() {
  static const Op op{
      .name = "head",
      .inputs = {{"x"},
                 {"weight", InputKind::parameter},
                 {"targets", InputKind::data},
                 {"teacher", InputKind::data, true},
                 {"row_weight", InputKind::data, true}},
      .outputs = {{"logprob"},
                  {"lse"},
                  {"entropy"},
                  {"kl"},
                  {"best", false},
                  {"logits", false},
                  {"kept_d_x", false}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = {{"cpu",
                   refuse,
                   forward,
                   backward_input,
                   nullptr,
                   {.rounded = slot_bit(weight), .packed = slot_bit(weight)}},
                  head_reference()},
      .early_gradients = early_gradients,
      .axis_rule = {.passes = kRowwise, .sharded = {{1, 0, {AxisType::shared, AxisType::shards}}}}};
  return op;
}

HeadResult head(Tape& tape, const HeadAttr& attr, const Value& x_TD, const Value& weight_VD,
                const Value& targets_T, const Value& teacher_TV, const Value& weight_T) {
  auto o = tape.apply(head_op(), attr, {x_TD, weight_VD, targets_T, teacher_TV, weight_T});
  return {std::move(o[logprob]), std::move(o[lse]), std::move(o[entropy]), std::move(o[kl]),
          std::move(o[best])};
}

Value head_logits(Tape& tape, const SoftCap& cap, const Value& x_TD, const Value& weight_VD) {
  const DType type = statistic_of(x_TD.dtype());
  Value logits_TV = linear(tape, type, x_TD, weight_VD);
  return cap.on() ? activation(tape, {ActivationKind::soft_cap, type, cap}, logits_TV) : logits_TV;
}

}  // namespace ingot
