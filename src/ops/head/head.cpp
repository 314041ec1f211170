// See head.h: the op's description, and its CPU kernel: logits of a chunk of rows by a matrix product,
// their statistics and cotangents row by row in place, the gradients by two more products. The chain of a
// weight gradient runs on through the chunks.
#include "ops/head/head.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "device/gemm/gemm.h"
#include "ops/activation/activation.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/head/call.h"
#include "ops/head/isa_head.h"
#include "ops/linear/linear.h"
#include "ops/weight_operand.h"

namespace ingot {
namespace {

using namespace head_slot;

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
  INGOT_CHECK(a.scale > 0, "scale {}", a.scale);
  const Tensor &ranges = call.in[allowed], &ids = call.in[allowed_ids];
  INGOT_CHECK(ranges.defined() == ids.defined() && !(ranges.defined() && call.in[teacher].defined()),
              "allowed ids need their ranges, and no teacher, whose probabilities are over all ids");
  INGOT_CHECK(!ranges.defined() || (ranges.dtype() == DType::i32 && ids.dtype() == DType::i32 &&
                                    ranges.shape() == Shape{x_in.dim(0), 2} && ids.shape().rank() == 1),
              "allowed {} of {}", ranges.meta.str(), ids.meta.str());
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
  r.input_in = slot_bit(x) | slot_bit(weight) | slot_bit(targets) | slot_bit(teacher) | slot_bit(allowed) |
               slot_bit(allowed_ids);
  r.input_out = slot_bit(lse) | slot_bit(entropy);
  if (a.mode == HeadMode::store) r.input_out |= slot_bit(logits);
  return r;
}

int64_t scratch_bytes(const OpCall& call) {
  // One chunk of logits, and one of a bf16 input gradient formed in fp32.
  const auto& a = call.attr<HeadAttr>();
  if (!call.in[weight].defined()) return 0;  // mode gradient has no work left
  const int64_t vocabulary = call.in[weight].dim(0), width = call.in[weight].dim(1);
  return int64_t{4} * head_chunk_rows(a.chunk, call.in[x].dim(0), vocabulary, width) *
         (head_row_stride(vocabulary) + width);
}

uint32_t early_gradients(const void* attr_data) {
  return static_cast<const HeadAttr*>(attr_data)->mode == HeadMode::gradient ? slot_bit(weight) : 0;
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const HeadAttr*>(attr_data);
  return fmt::format("{} chunk={}{}{}{}", name_of(a.mode), a.chunk, a.entropy ? " entropy" : "",
                     a.cap.on() ? fmt::format(" cap={}", a.cap.cap) : "",
                     a.scale != 1 ? fmt::format(" scale={}", a.scale) : "");
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
  const float scale = call.attr<HeadAttr>().scale;
  if (!cap.on() && scale == 1) return;
  parallel_for(c.count, row_grain(g.n, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = to.data + t * to.stride;
      if (cap.on()) INGOT_ISA_CALL(head_soft_cap)(cap.factors(), row, g.n);
      if (scale != 1) INGOT_ISA_CALL(head_scale)(scale, row, g.n);
    }
  });
}

/// The ids that a row of the call allows; none: every id.
std::span<const int32_t> allowed_of(const OpCall& call, int64_t row) {
  if (!call.in[allowed].defined()) return {};
  const auto* range = call.in[allowed].as<int32_t>() + 2 * row;
  return {call.in[allowed_ids].as<int32_t>() + range[0], static_cast<size_t>(range[1] - range[0])};
}

/// A row's allowed logits side by side, as if there were no others: in the order of the ids, so that sums
/// have the bits of the sampler's.
class AllowedRow {
 public:
  AllowedRow(std::span<const int32_t> ids, const float* logits, int32_t target) : ids_(ids) {
    thread_local std::vector<float> buffer;
    buffer.resize(2 * ids.size());
    logits_ = buffer.data();
    for (size_t i = 0; i < ids.size(); ++i) logits_[i] = logits[ids[i]];
    if (target >= 0)
      target_ = static_cast<int32_t>(std::lower_bound(ids.begin(), ids.end(), target) - ids.begin());
  }

  void statistics(HeadStatistics p, int64_t t) {
    p.vocabulary = p.stride = size();
    p.logits = logits_, p.targets = &target_;
    for (float** column : {&p.logprob, &p.lse, &p.entropy})
      if (*column != nullptr) *column += t;
    p.best += t;
    INGOT_ISA_CALL(head_statistics)(p, 0, 1);
    *p.best = ids_[static_cast<size_t>(*p.best)];
  }

  void d_logits(HeadCotangents p, int64_t t) {
    const int64_t row_bytes = p.vocabulary * size_of(p.d_type);
    auto* row = static_cast<std::byte*>(p.d_logits) + t * p.d_stride * size_of(p.d_type);
    p.vocabulary = p.stride = p.d_stride = size();
    p.logits = logits_, p.targets = &target_;
    for (const float** column : {&p.lse, &p.entropy, &p.d_logprob, &p.d_lse, &p.d_entropy})
      if (*column != nullptr) *column += t;
    p.d_logits = logits_ + size();
    INGOT_ISA_CALL(head_d_logits)(p, 0, 1);
    std::memset(row, 0, static_cast<size_t>(row_bytes));
    const auto width = static_cast<size_t>(size_of(p.d_type));
    for (size_t i = 0; i < ids_.size(); ++i)
      std::memcpy(row + static_cast<size_t>(ids_[i]) * width,
                  static_cast<const std::byte*>(p.d_logits) + i * width, width);
  }

 private:
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  std::span<const int32_t> ids_;
  float* logits_;  ///< and space for as many cotangents behind them
  int32_t target_ = -1;
};

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
      if (const auto ids = allowed_of(call, c.first + t); !ids.empty()) {
        AllowedRow row(ids, p.logits + t * p.stride, p.targets[t]);
        row.statistics(p, t);
        if (d != nullptr) row.d_logits(*d, t);
        continue;
      }
      INGOT_ISA_CALL(head_statistics)(p, t, t + 1);
      if (d != nullptr) INGOT_ISA_CALL(head_d_logits)(*d, t, t + 1);
    }
  });
}

void d_logits(const OpCall& call, Chunk c, const HeadCotangents& p) {
  parallel_for(c.count, row_grain(p.vocabulary, kElements), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (const auto ids = allowed_of(call, c.first + t); !ids.empty())
        AllowedRow(ids, p.logits + t * p.stride, p.targets[t]).d_logits(p, t);
      else
        INGOT_ISA_CALL(head_d_logits)(p, t, t + 1);
    }
  });
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

void check_targets(const Tensor& t, int64_t vocabulary) {
  for (int64_t i = 0; i < t.numel(); ++i)
    INGOT_CHECK(t.as<int32_t>()[i] < vocabulary, "target {} of {}", t.as<int32_t>()[i], vocabulary);
}

void check_allowed(const OpCall& call, int64_t vocabulary) {
  if (!call.in[allowed].defined()) return;
  const int64_t all = call.in[allowed_ids].numel();
  for (int64_t t = 0; t < call.in[allowed].dim(0); ++t) {
    const auto* range = call.in[allowed].as<int32_t>() + 2 * t;
    INGOT_CHECK(0 <= range[0] && range[0] <= range[1] && range[1] <= all, "row {} allows ids {} .. {} of {}",
                t, range[0], range[1], all);
    const auto ids = allowed_of(call, t);
    if (ids.empty()) continue;
    const bool ascend = std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
    INGOT_CHECK(ascend && ids.front() >= 0 && ids.back() < vocabulary, "row {}: {} allowed ids of {}", t,
                ids.size(), vocabulary);
    const int32_t target = call.in[targets].as<int32_t>()[t];
    INGOT_CHECK(target < 0 || std::binary_search(ids.begin(), ids.end(), target),
                "row {} does not allow its target {}", t, target);
  }
}

void forward(const OpCall& call) {
  const auto& a = call.attr<HeadAttr>();
  const int64_t rows = call.in[x].dim(0), vocabulary = call.in[weight].dim(0);
  check_targets(call.in[targets], vocabulary);
  check_allowed(call, vocabulary);
  if (a.mode == HeadMode::store) {
    if (rows == 0) return;
    const LogitRows all{call.out[logits].as<float>(), vocabulary};
    form_logits(call, {0, rows}, all);
    statistics(call, {0, rows}, all);
    return;
  }
  const LogitRows l{static_cast<float*>(call.scratch), head_row_stride(vocabulary)};
  const CotangentRows d_l = cotangents_in(call, l);
  each_head_chunk(rows, head_chunk_rows(a.chunk, rows, vocabulary, call.in[weight].dim(1)),
                  [&](int64_t first, int64_t count) {
                    const Chunk c{first, count};
                    form_logits(call, c, l);
                    if (a.mode != HeadMode::gradient) return statistics(call, c, l);
                    HeadCotangents p{};
                    p.vocabulary = vocabulary;
                    p.cap = a.cap.factors(), p.scale = a.scale;
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
  const int64_t chunk = head_chunk_rows(a.chunk, rows, vocabulary, call.in[weight].dim(1));
  const LogitRows l{static_cast<float*>(call.scratch), head_row_stride(vocabulary)};
  const CotangentRows d_l = cotangents_in(call, l);
  each_head_chunk(rows, chunk, [&](int64_t first, int64_t count) {
    const Chunk c{first, count};
    HeadCotangents p{};
    p.vocabulary = vocabulary;
    p.cap = a.cap.factors(), p.scale = a.scale;
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
    d_logits(call, c, p);
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
                 {"row_weight", InputKind::data, true},
                 {"allowed", InputKind::data, true},
                 {"allowed_ids", InputKind::data, true}},
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
      .kernels = with_gpu_kernels("head", {{"cpu",
                                            refuse,
                                            forward,
                                            backward_input,
                                            nullptr,
                                            {.rounded = slot_bit(weight), .packed = slot_bit(weight)}},
                                           head_reference()}),
      .early_gradients = early_gradients,
      .axis_rule = {.passes = kRowwise, .sharded = {{1, 0, {AxisType::shared, AxisType::shards}}}}};
  return op;
}

HeadResult head(Tape& tape, const HeadAttr& attr, const Value& x_TD, const Value& weight_VD,
                const Value& targets_T, const Value& teacher_TV, const Value& weight_T,
                const HeadAllowed& allowed) {
  auto o = tape.apply(head_op(), attr,
                      {x_TD, weight_VD, targets_T, teacher_TV, weight_T, allowed.rows_T2, allowed.ids_N});
  return {std::move(o[logprob]), std::move(o[lse]), std::move(o[entropy]), std::move(o[kl]),
          std::move(o[best])};
}

Value head_logits(Tape& tape, const SoftCap& cap, const Value& x_TD, const Value& weight_VD) {
  const DType type = statistic_of(x_TD.dtype());
  Value logits_TV = linear(tape, type, x_TD, weight_VD);
  return cap.on() ? activation(tape, {ActivationKind::soft_cap, type, cap}, logits_TV) : logits_TV;
}

}  // namespace ingot
