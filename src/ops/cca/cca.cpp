// See cca.h: the op's description, and its CPU kernel: row-wise parts by isa_cca.cpp, the grouped
// convolution and its gradients as matrix products over head-major buffers (isa_cca.h says how they lie),
// a block of rows after the other.
#include "ops/cca/cca.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/round.h"
#include "device/gemm/gemm.h"
#include "device/memory/scratch.h"
#include "ops/cca/call.h"
#include "ops/cca/isa_cca.h"
#include "ops/common.h"
#include "ops/gpu_registry.h"
#include "ops/parameter_chunks.h"
#include "ops/sequence/documents.h"
#include "ops/sequence/sequence_store.h"
#include "ops/weight_operand.h"

namespace ingot {
namespace {

using namespace cca_input;

void infer(const OpCall& call, std::span<TensorMeta> out) {
  const auto& a = call.attr<CcaAttr>();
  const Tensor& qkv = call.in[kQkv];
  const int64_t heads = a.heads + a.kv_heads, channels = heads * a.head_width;
  INGOT_CHECK(a.heads > 0 && a.kv_heads > 0 && a.head_width > 0 && a.heads % a.kv_heads == 0 &&
                  (a.delayed >= 0 || a.kv_heads * a.head_width % 2 == 0) &&
                  a.delayed_channels() <= a.kv_heads * a.head_width && a.rotary.dims >= 0 &&
                  a.rotary.dims % 2 == 0 && a.rotary.dims <= a.head_width,
              "{} + {} heads of {}, {} of them rotary", a.heads, a.kv_heads, a.head_width, a.rotary.dims);
  INGOT_CHECK(qkv.shape().rank() == 2 && qkv.dim(1) == channels + a.kv_heads * a.head_width, "qkv is {}",
              qkv.meta.str());
  const DType small = statistic_of(qkv);
  const TensorMeta expected[] = {qkv.meta,
                                 {Shape{qkv.dim(0)}, DType::i32},
                                 {Shape{channels, 2}, small},
                                 {Shape{channels}, small},
                                 {Shape{heads, a.head_width, 2 * a.head_width}, call.in[kGrouped].dtype()},
                                 {Shape{channels}, small},
                                 {Shape{a.kv_heads}, small}};
  for (size_t i = 0; i < std::size(expected); ++i)
    INGOT_CHECK(call.in[i].shape() == expected[i].shape && call.in[i].dtype() == expected[i].dtype,
                "input {} is {}, expected {}", i, call.in[i].meta.str(), expected[i].str());
  SequenceSpan whole;
  spans_of(a.rows, qkv.dim(0), whole);
  out[0] = {qkv.shape(), a.out};
  out[1] = {Shape{qkv.dim(0), heads}, small};
}

OpCost cost(const OpCall& call) {
  const auto& a = call.attr<CcaAttr>();
  const auto rows = static_cast<double>(call.in[kQkv].dim(0)), width = static_cast<double>(a.head_width);
  const double product = 4 * rows * static_cast<double>(a.heads + a.kv_heads) * width * width;
  const double small = 20 * static_cast<double>(call.in[kQkv].numel());
  double bytes = static_cast<double>(call.out[0].bytes() + call.out[1].bytes());
  for (const Tensor& t : call.in) bytes += static_cast<double>(t.bytes());
  return {product + small, (a.backward_reads_result() ? 2 : 3) * product + 2 * small, 0, bytes};
}

BackwardReads reads(const void* attr) {
  return {0b11111111, static_cast<const CcaAttr*>(attr)->backward_reads_result() ? 0b11u : 0u, 0, 0};
}

std::string print(const void* attr_data) {
  const auto& a = *static_cast<const CcaAttr*>(attr_data);
  return fmt::format("heads={}/{}x{} rotary={} {} theta={} out={} layer={}", a.heads, a.kv_heads,
                     a.head_width, a.rotary.dims, name_of(a.rotary.kind), a.rotary.theta, name_of(a.out),
                     a.layer);
}

constexpr int64_t kBlockRows = 2 * kParameterChunkRows;  ///< their u, c and d_u stay in the level 2 cache

int64_t span_count(const CcaAttr& a) {
  return a.rows == nullptr ? 1 : static_cast<int64_t>(a.rows->spans.size());
}

/// Consecutive rows of the call and their view rows, which begin one row earlier.
struct Block {
  int64_t begin, end;
  int64_t view, views;
};

/// One call: its arguments for the row kernels, and where its buffers lie in the scratch memory.
class Problem {
 public:
  /// Floats of scratch for `rows` rows. Memory for a document every 8 rows is always included, so that the
  /// request (and with it the memory plan) is the same for all ordinary packings.
  static int64_t scratch_floats(const CcaAttr& a, int64_t rows) {
    const int64_t heads = a.heads + a.kv_heads, channels = heads * a.head_width;
    const int64_t spans = std::max(span_count(a), most_documents(rows));
    const int64_t buffer = heads * (rows + spans) * a.head_width + a.head_width;
    // Transposed weights; kernels of GPUs have numbers of rows and heads there.
    const int64_t weights = std::max(4 * channels * a.head_width, rows + heads + 1);
    return 2 * buffer + weights + 4 * channels + a.delayed_channels() +
           parameter_chunks(rows) * (4 * channels + a.kv_heads);
  }

  Problem(const OpCall& call, bool backward)
      : call_(call), attr_(call.attr<CcaAttr>()), of_call_(call, attr_.rows, kDocuments) {
    rows = call.in[kQkv].dim(0);
    heads = attr_.heads + attr_.kv_heads;
    channels = heads * attr_.head_width;
    spans = of_call_.spans();
    const int64_t views = rows + static_cast<int64_t>(spans.size());
    const int64_t buffer = heads * views * attr_.head_width + attr_.head_width;
    auto* floats = static_cast<float*>(call.scratch);
    const auto take = [&](int64_t count) { return std::exchange(floats, floats + count); };
    p = cca_rows(call);
    p.view_rows = views;
    if (backward) {
      kept_u = take(buffer), p.d_c = take(buffer);
      for (float* b : {kept_u, p.d_c}) std::fill_n(b + buffer - attr_.head_width, attr_.head_width, 0.0f);
      clear_outside_of_blocks();
    }
    const int64_t weights = 2 * channels * attr_.head_width;
    packed_ = call.in[kGrouped].packed();
    if (backward || (packed_ == nullptr && rows >= kBlockRows))
      transpose_weights(take(weights), take(weights));
    older_ = take(channels), newer_ = take(channels), zeros_ = take(channels + p.delayed);
    p.older = older_, p.newer = newer_;
    const auto* taps = call.in[kDepthwise].as<float>();
    for (int64_t i = 0; i < channels; ++i) older_[i] = taps[2 * i], newer_[i] = taps[2 * i + 1];
    std::fill_n(zeros_, channels + p.delayed, 0.0f);
    partials = floats;
  }

  CcaPiece piece(size_t index, int64_t begin, int64_t end) const {
    const SequenceSpan& s = spans[index];
    CcaPiece piece{
        begin,  end,   s.row_begin, s.row_begin + s.rows, s.row_begin + static_cast<int64_t>(index),
        zeros_, zeros_};
    if (s.state != nullptr) {
      piece.before1 = static_cast<const float*>(s.state->conv_row(attr_.layer, s.past - 1));
      piece.before2 = static_cast<const float*>(s.state->conv_row(attr_.layer, s.past - 2));
    }
    return piece;
  }

  /// f(piece, chunk) for the pieces of spans in every chunk of 64 rows of begin .. end, ascending.
  template <class F>
  void each_piece(int64_t begin, int64_t end, F&& f) const {
    for (int64_t from = begin; from < end; from = std::min(end, from + kParameterChunkRows)) {
      const int64_t to = std::min(end, from + kParameterChunkRows);
      for (size_t s = span_of(from); s < spans.size() && spans[s].row_begin < to; ++s) {
        const int64_t first = std::max(from, spans[s].row_begin),
                      last = std::min(to, spans[s].row_begin + spans[s].rows);
        if (first < last) f(piece(s, first, last), from / kParameterChunkRows);
      }
    }
  }

  /// f(block), blocks in parallel.
  template <class F>
  void each_block(int64_t block_rows, F&& f) const {
    parallel_for(ceil_div(rows, block_rows), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i * block_rows, end = std::min(rows, begin + block_rows);
        const int64_t view = begin + static_cast<int64_t>(span_of(begin));
        f(Block{begin, end, view, end + static_cast<int64_t>(span_of(end - 1)) - view + 1});
      }
    });
  }

  /// Forward of a block.
  void convolve_and_finish(const Block& b) const {
    const int64_t K = p.width;
    const CcaRows q = with_u(b);
    // Decoding: with one row in every span, every other row of the product is wasted. Rows are independent,
    // so leaving them out changes no bits; for very few rows the product takes as long with them unless
    // weights are packed.
    const bool decoding =
        (packed_ != nullptr || spans.size() >= 4) &&
        std::all_of(spans.begin(), spans.end(), [](const SequenceSpan& s) { return s.rows == 1; });
    const int64_t step = decoding ? 2 : 1;
    std::vector<int64_t> offsets;
    for (int64_t n = 0; n <= heads; ++n) offsets.push_back(n * b.views / step);
    GroupedGemmArgs g;
    g.experts = heads, g.offsets = offsets.data();
    g.n = K, g.k = 2 * K;
    g.a = q.u + b.view * K, g.lda = step * K;
    if (forward_ != nullptr)
      g.b = forward_, g.ldb = K;
    else
      set_weight(g, call_.in[kGrouped]), g.b_transposed = true, g.ldb = 2 * K;
    g.b_stride = 2 * K * K;
    g.c = q.c + b.view * K, g.ldc = step * K;
    g.bias = call_.in[kGroupedBias].data;
    gemm_grouped(g);
    each_piece(b.begin, b.end, [&](const CcaPiece& piece, int64_t) { INGOT_ISA_CALL(cca_finish)(q, piece); });
  }

  /// f(arguments, piece, chunk) with that from which the heads of a block follow: the result, or c. Writes
  /// the block's u to `kept_u`, and zeros before the d_c of its spans.
  template <class F>
  void with_heads(const Block& b, F&& f) const {
    p.y != nullptr ? with_result(b, f) : with_c(b, f);
  }

  template <class F>
  void with_result(const Block& b, F&& f) const {
    CcaRows q = p;
    q.block_rows = p.view_rows, q.u = kept_u;
    form_u(q, b);
    each_piece(b.begin, b.end, [&](const CcaPiece& piece, int64_t chunk) { f(q, piece, chunk); });
  }

  template <class F>
  void with_c(const Block& b, F&& f) const {
    const int64_t K = p.width;
    const CcaRows q = with_u(b);
    const float* u = q.u + b.view * K;
    const int64_t others =
        spans[span_of(b.begin)].row_begin < b.begin ? 1 : 0;  // the block before writes the first row's u
    for (int64_t n = 0; n < heads; ++n)
      std::copy_n(u + (n * b.views + others) * K, (b.views - others) * K,
                  kept_u + (n * p.view_rows + b.view + others) * K);
    product(b.views - 1, u, b.views, forward_, call_.in[kGroupedBias].as<float>(), q.c + b.view * K, b.views);
    each_piece(b.begin, b.end, [&](const CcaPiece& piece, int64_t chunk) { f(q, piece, chunk); });
  }

  /// f(arguments, piece, chunk) with d_u_t = G1^T d_c_t + G0^T d_c_{t+1} of a block and the row after it.
  template <class F>
  void with_d_u(const Block& b, F&& f) const {
    const int64_t K = p.width, count = std::min(b.views + 1, p.view_rows - b.view);
    CcaRows q = p;
    q.block_rows = count;
    auto* d_u = static_cast<float*>(scratch(ScratchSlot::kernel, heads * count * K * int64_t{sizeof(float)}));
    q.d_u = d_u - b.view * K;
    product(count, p.d_c + b.view * K, p.view_rows, backward_, nullptr, d_u, count);
    each_piece(b.begin, b.end, [&](const CcaPiece& piece, int64_t chunk) { f(q, piece, chunk); });
  }

  /// d_G[n] = sum over t of d_c_t times [u_{t-1} | u_t].
  void weight_gradient(const GradSlot& slot) const {
    GroupedGemmArgs g;
    g.experts = heads;
    g.n = p.width, g.k = 2 * p.width;
    g.a = p.d_c + p.width, g.lda = p.width;
    g.b = kept_u, g.ldb = p.width;
    g.c = slot.tensor.as<float>(), g.ldc = 2 * p.width, g.c_stride = 2 * p.width * p.width;
    g.accumulate = slot.accumulate;
    std::vector<int64_t> offsets;
    for (int64_t n = 0; n <= heads; ++n) offsets.push_back(n * p.view_rows);
    g.offsets = offsets.data();
    gemm_grouped_weight(g);
  }

  int64_t rows, heads, channels;
  std::span<const SequenceSpan> spans;
  CcaRows p{};
  float* partials;          ///< per chunk: 4 sums of C, 1 of G
  float* kept_u = nullptr;  ///< backward: u of all rows, head-major like d_c

 private:
  /// The last span that begins at or before a row.
  size_t span_of(int64_t row) const {
    const auto after = std::upper_bound(spans.begin(), spans.end(), row,
                                        [](int64_t r, const SequenceSpan& s) { return r < s.row_begin; });
    return static_cast<size_t>(after - spans.begin()) - 1;
  }

  /// Documents without rows belong to no block where they lie before the first row, after the last one or
  /// between two blocks.
  void clear_outside_of_blocks() const {
    const int64_t first = rows > 0 ? static_cast<int64_t>(span_of(0)) : p.view_rows;
    const int64_t last = rows > 0 ? rows + static_cast<int64_t>(span_of(rows - 1)) + 1 : p.view_rows;
    for (float* b : {kept_u, p.d_c})
      for (int64_t n = 0; n < heads; ++n) {
        float* head = b + n * p.view_rows * p.width;
        std::fill_n(head, first * p.width, 0.0f);
        std::fill_n(head + last * p.width, (p.view_rows - last) * p.width, 0.0f);
        for (size_t s = 0; s < spans.size(); ++s)
          if (spans[s].rows == 0)
            std::fill_n(head + (spans[s].row_begin + static_cast<int64_t>(s)) * p.width, p.width, 0.0f);
      }
  }

  /// Arguments for a block, with its u, and memory for its c, in the thread's own memory.
  CcaRows with_u(const Block& b) const {
    const int64_t K = p.width, floats = heads * b.views * K;
    auto* u = static_cast<float*>(scratch(ScratchSlot::kernel, (2 * floats + K) * int64_t{sizeof(float)}));
    std::fill_n(u + floats, K, 0.0f);
    CcaRows q = p;
    q.block_rows = b.views;
    q.u = u - b.view * K, q.c = u + floats + K - b.view * K;
    const size_t first = span_of(b.begin);
    if (spans[first].row_begin < b.begin)
      INGOT_ISA_CALL(cca_depthwise)(q, piece(first, b.begin - 1, b.begin));
    form_u(q, b);
    return q;
  }

  /// u of a block's rows, and of t = -1 where its spans begin.
  void form_u(const CcaRows& q, const Block& b) const {
    for (size_t s = span_of(b.begin); s <= span_of(b.end - 1); ++s)
      if (spans[s].row_begin >= b.begin) INGOT_ISA_CALL(cca_span_start)(q, piece(s, 0, 0));
    each_piece(b.begin, b.end, [&](const CcaPiece& piece, int64_t) {
      INGOT_ISA_CALL(cca_depthwise)(q, piece);
    });
  }

  /// `count` rows [source_t | source_{t+1}] of every head times `weights`. Heads are source_rows and to_rows
  /// apart.
  void product(int64_t count, const float* source, int64_t source_rows, const float* weights,
               const float* bias, float* to, int64_t to_rows) const {
    const int64_t K = p.width;
    for (int64_t n = 0; n < heads; ++n) {
      GemmArgs g;
      g.m = count, g.n = K, g.k = 2 * K;
      g.a = source + n * source_rows * K, g.lda = K;
      g.b = weights + n * 2 * K * K, g.ldb = K;
      g.c = to + n * to_rows * K, g.ldc = K;
      if (bias != nullptr) g.bias = bias + n * K;
      gemm(g);
    }
  }

  /// The grouped weights in the order in which products with rows [z_t | z_{t+1}] read them, [2 K, K] per
  /// head: forward [G0^T; G1^T], backward [G1; G0]. For few rows this does not pay.
  void transpose_weights(float* forward, float* backward) {
    const Tensor& w = call_.in[kGrouped];
    if (w.rounded())
      transpose_weights(static_cast<const RoundedFloat*>(w.data), forward, backward);
    else if (w.dtype() == DType::bf16)
      transpose_weights(w.as<bf16>(), forward, backward);
    else
      transpose_weights(w.as<float>(), forward, backward);
    forward_ = forward, backward_ = backward;
  }
  template <class T>
  void transpose_weights(const T* w, float* forward, float* backward) const {
    const int64_t K = p.width;
    parallel_for(heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * K; row < end * K; ++row) {
        const int64_t n = row / K, o = row % K;
        for (int64_t i = 0; i < 2 * K; ++i) {
          const float x = to_float(w[row * 2 * K + i]);
          forward[(n * 2 * K + i) * K + o] = x;
          backward[(n * 2 * K + (i < K ? K + o : o)) * K + i % K] = x;
        }
      }
    });
  }

  const OpCall& call_;
  const CcaAttr& attr_;
  CallSpans of_call_;
  float *older_, *newer_, *zeros_;
  const PackedWeights* packed_ = nullptr;                 ///< the grouped weights, where they are packed
  const float *forward_ = nullptr, *backward_ = nullptr;  ///< the grouped weights transposed
};

void forward(const OpCall& call) {
  Problem problem(call, false);
  check_positions(problem.p.positions, problem.rows);
  problem.p.y = call.out[0].data;
  problem.p.inverse_norms = call.out[1].as<float>();
  const int64_t each = ceil_div(problem.rows, int64_t{num_threads()});  // where rows are few, as in decoding
  problem.each_block(std::clamp<int64_t>(each, 8, kBlockRows),
                     [&](const Block& b) { problem.convolve_and_finish(b); });
  for (const SequenceSpan& s : problem.spans)
    if (s.state != nullptr)
      s.state->append_conv(call.attr<CcaAttr>().layer, s.past,
                           call.in[kQkv].slice(s.row_begin, s.row_begin + s.rows));
}

/// Writes two sums of C as the columns of the depthwise gradient [C, 2]. `columns` is scratch of 2 C floats.
void combine_taps(const Problem& problem, int64_t stride, float* columns, const GradSlot& slot) {
  if (!slot.wanted()) return;
  const int64_t C = problem.channels, chunks = parameter_chunks(problem.rows);
  combine_parameter_chunks(problem.partials, chunks, stride, 2 * C, {Tensor::of(columns, {2 * C}), false});
  auto* to = slot.tensor.as<float>();
  for (int64_t i = 0; i < 2 * C; ++i) {
    const float sum = columns[i % 2 * C + i / 2];
    to[i] = slot.accumulate ? to[i] + sum : sum;
  }
}

void backward(const OpCall& call) {
  Problem problem(call, true);
  for (const SequenceSpan& s : problem.spans)
    INGOT_CHECK(s.state == nullptr, "cca has no backward through a cached sequence");
  CcaRows& p = problem.p;
  set_cca_gradients(call, p);
  if (!can_be_divided_by(p.temperature, p.kv_heads, std::sqrt(static_cast<float>(p.width)))) p.y = nullptr;
  const int64_t C = problem.channels, stride = cca_sum_floats(p), chunks = parameter_chunks(problem.rows);
  std::fill_n(problem.partials, chunks * stride, 0.0f);
  const auto sums = [&](int64_t chunk) {
    float* s = problem.partials + chunk * stride;
    return CcaSums{s, s + C, s + 2 * C, s + 3 * C, s + 4 * C};
  };
  problem.each_block(kBlockRows, [&](const Block& b) {
    problem.with_heads(b, [&](const CcaRows& q, const CcaPiece& piece, int64_t chunk) {
      INGOT_ISA_CALL(cca_finish_backward)(q, piece, sums(chunk));
    });
  });
  if (call.d_in[kGrouped].wanted()) problem.weight_gradient(call.d_in[kGrouped]);
  problem.each_block(kBlockRows, [&](const Block& b) {
    problem.with_d_u(b, [&](const CcaRows& q, const CcaPiece& piece, int64_t chunk) {
      INGOT_ISA_CALL(cca_depthwise_backward)(q, piece, sums(chunk));
    });
  });
  const auto combine = [&](int64_t offset, int64_t width, const GradSlot& slot) {
    combine_parameter_chunks(problem.partials + offset, chunks, stride, width, slot);
  };
  combine_taps(problem, stride, problem.kept_u, call.d_in[kDepthwise]);  // u is used up
  combine(2 * C, C, call.d_in[kDepthwiseBias]);
  combine(3 * C, C, call.d_in[kGroupedBias]);
  combine(4 * C, p.kv_heads, call.d_in[kTemperature]);
}

int64_t scratch_bytes(const OpCall& call) {
  return Problem::scratch_floats(call.attr<CcaAttr>(), call.in[kQkv].dim(0)) *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace

CcaRows cca_rows(const OpCall& call) {
  const auto& a = call.attr<CcaAttr>();
  CcaRows p{};
  p.heads = a.heads, p.kv_heads = a.kv_heads, p.width = a.head_width, p.delayed = a.delayed_channels();
  p.rotary = rotary_table(a.rotary);
  p.positions = device_address<const int32_t>(call.in[kPositions]);
  p.x = call.in[kQkv].data, p.x_type = call.in[kQkv].dtype();
  p.depthwise_bias = device_address<const float>(call.in[kDepthwiseBias]);
  p.temperature = device_address<const float>(call.in[kTemperature]);
  p.norm_eps = static_cast<float>(kCcaNormEps);
  p.y_type = a.out;
  return p;
}

void set_cca_gradients(const OpCall& call, CcaRows& p) {
  p.d_y = call.d_out[0].data;
  if (call.attr<CcaAttr>().backward_reads_result()) {
    p.y = call.out[0].data;
    p.inverse_norms = device_address<float>(call.out[1]);
  }
  p.d_x = call.d_in[kQkv].tensor.data, p.accumulate = call.d_in[kQkv].accumulate;
}

int64_t cca_sum_floats(const CcaRows& p) {
  return 4 * (p.heads + p.kv_heads) * p.width + p.kv_heads;
}

const char* refuse_cca(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call)) return reason;
  return call.attr<CcaAttr>().head_width > 1024 ? "heads wider than 1024" : nullptr;
}

const Op& cca_op() {
  static const Op op{
      .name = "cca",
      .inputs = {{"qkv"},
                 {"positions", InputKind::data},
                 {"depthwise", InputKind::parameter},
                 {"depthwise_bias", InputKind::parameter},
                 {"grouped", InputKind::parameter},
                 {"grouped_bias", InputKind::parameter},
                 {"temperature", InputKind::parameter},
                 {"documents", InputKind::data, true}},
      .outputs = {{"qkv"}, {"inverse_norms", false}},
      .reads = reads,
      .infer = infer,
      .cost = cost,
      .scratch_bytes = scratch_bytes,
      .print = print,
      .kernels = with_gpu_kernels("cca", {{"cpu",
                                           refuse_cca,
                                           forward,
                                           backward,
                                           nullptr,
                                           {.rounded = slot_bit(kGrouped), .packed = slot_bit(kGrouped)}},
                                          cca_reference()}),
      .axis_rule = {.passes = {AxisType::replicate, AxisType::shared, AxisType::rows, AxisType::halo},
                    .along_sequence = true,
                    .sharded = {{2, 0, {AxisType::shards, AxisType::shards}},
                                {3, 0, {AxisType::shards, AxisType::shards}},
                                {4, 0, {AxisType::shards, AxisType::shards}},
                                {5, 0, {AxisType::shards, AxisType::shards}},
                                {6, 0, {AxisType::shards, AxisType::shards}}}}};
  return op;
}

Value cca(Tape& tape, const CcaAttr& attr, const Value& qkv_TW, const Value& positions_T,
          const CcaParams& params, const Value& documents) {
  return tape.apply(cca_op(), attr,
                    {qkv_TW, positions_T, params.depthwise, params.depthwise_bias, params.grouped,
                     params.grouped_bias, params.temperature, documents})[0];
}

}  // namespace ingot
