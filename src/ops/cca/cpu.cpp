// cca on the CPU: row-wise parts by isa_cca.cpp, the grouped convolution and its gradients as grouped matrix
// products over head-major buffers (row_kernels.h says how they lie).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "device/cpu/gemm.h"
#include "ops/cca/cca.h"
#include "ops/cca/kernels.h"
#include "ops/cca/row_kernels.h"
#include "ops/cpu_rows.h"
#include "ops/parameter_chunks.h"
#include "ops/sequence/sequence_store.h"

namespace ingot {
namespace {

using namespace cca_input;

const char* refuse(const OpCall& call) {
  if (const char* reason = refuse_other_floats(call, kGrouped)) return reason;
  return call.attr<CcaAttr>().head_width > 1024 ? "heads wider than 1024" : nullptr;
}

int64_t span_count(const CcaAttr& a) {
  return a.rows == nullptr ? 1 : static_cast<int64_t>(a.rows->spans.size());
}

/// One call: its arguments for the row kernels, and where its buffers lie in the scratch memory.
class Problem {
 public:
  /// Floats of scratch for `rows` rows. Room for a document every 8 rows is always included, so that the request (and
  /// with it the memory plan) is the same for all ordinary packings.
  static int64_t scratch_floats(const CcaAttr& a, int64_t rows) {
    const int64_t heads = a.heads + a.kv_heads, channels = heads * a.head_width;
    const int64_t spans = std::max(span_count(a), rows / 8 + 16);
    const int64_t buffer = heads * (rows + spans) * a.head_width + a.head_width;
    return 3 * buffer + 4 * channels + a.delayed_channels() + parameter_chunks(rows) * (4 * channels + a.kv_heads);
  }

  Problem(const OpCall& call, bool backward) : call_(call), attr_(call.attr<CcaAttr>()) {
    rows = call.in[kQkv].dim(0);
    heads = attr_.heads + attr_.kv_heads;
    channels = heads * attr_.head_width;
    spans = spans_of(attr_.rows, rows, whole_);
    const int64_t views = rows + static_cast<int64_t>(spans.size());
    const int64_t buffer = heads * views * attr_.head_width + attr_.head_width;
    auto* floats = static_cast<float*>(call.scratch);
    const auto take = [&](int64_t count) { return std::exchange(floats, floats + count); };
    p.heads = attr_.heads, p.kv_heads = attr_.kv_heads, p.width = attr_.head_width, p.delayed = attr_.delayed_channels();
    p.rotary = rotary_table(attr_.rotary);
    p.positions = call.in[kPositions].as<int32_t>();
    p.x = call.in[kQkv].data, p.x_type = call.in[kQkv].dtype();
    p.depthwise_bias = call.in[kDepthwiseBias].as<float>();
    p.temperature = call.in[kTemperature].as<float>();
    p.norm_eps = static_cast<float>(kCcaNormEps);
    p.view_rows = views;
    p.u = take(buffer);
    p.c = p.d_u = take(buffer);  // c is used up where d_u begins
    p.d_c = backward ? take(buffer) : nullptr;
    for (float* b : {p.u, p.d_c})
      if (b != nullptr) std::fill_n(b + buffer - attr_.head_width, attr_.head_width, 0.0f);
    p.y_type = attr_.out;
    older_ = take(channels), newer_ = take(channels),
    zeros_ = take(channels + p.delayed);
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

  /// f(piece, chunk) for the pieces of spans in every chunk of 64 rows; chunks in parallel, pieces in
  /// ascending order.
  template <class F>
  void each_piece(F&& f) const {
    parallel_for(parameter_chunks(rows), 1, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        const int64_t begin = chunk * kParameterChunkRows, end = std::min(rows, begin + kParameterChunkRows);
        const auto after =
            std::upper_bound(spans.begin(), spans.end(), begin,
                             [](int64_t row, const SequenceSpan& s) { return row < s.row_begin; });
        for (auto s = static_cast<size_t>(after - spans.begin()) - 1;
             s < spans.size() && spans[s].row_begin < end; ++s) {
          const int64_t from = std::max(begin, spans[s].row_begin);
          const int64_t to = std::min(end, spans[s].row_begin + spans[s].rows);
          if (from < to) f(piece(s, from, to), chunk);
        }
      }
    });
  }

  /// u, then c.
  void convolve() const {
    parallel_for(static_cast<int64_t>(spans.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        INGOT_ISA_CALL(cca_span_start)(p, piece(static_cast<size_t>(s), 0, 0));
    });
    each_piece([&](const CcaPiece& piece, int64_t) { INGOT_ISA_CALL(cca_depthwise)(p, piece); });
    GroupedGemmArgs g = product();
    g.k = 2 * p.width;
    g.a = p.u;
    g.b_transposed = true;
    g.c = p.c;
    g.bias = call_.in[kGroupedBias].data;
    // Decoding: with one row in every span, every other row of the product is wasted. Rows are independent,
    // so leaving them out changes no bits; for very few rows the product takes as long with them.
    const bool decoding = spans.size() >= 4 && std::all_of(spans.begin(), spans.end(),
                                                           [](const SequenceSpan& s) { return s.rows == 1; });
    run(g, decoding ? 2 : 1);
  }

  /// d_u_t = G1^T d_c_t + G0^T d_c_{t+1}.
  void convolve_backward() const {
    GroupedGemmArgs g = product();
    g.k = p.width;
    g.a = p.d_c;
    g.b = element(p.width);
    g.c = p.d_u;
    run(g);
    g.a = p.d_c + p.width;
    g.b = element(0);
    g.accumulate = true;
    run(g);
  }

  /// d_G[n] = sum over t of d_c_t times [u_{t-1} | u_t].
  void weight_gradient(const GradSlot& slot) const {
    GroupedGemmArgs g = product();
    g.k = 2 * p.width;
    g.a = p.d_c + p.width;
    g.b = p.u, g.b_type = DType::f32, g.ldb = p.width, g.b_stride = 0;
    g.c = slot.tensor.as<float>(), g.ldc = 2 * p.width, g.c_stride = 2 * p.width * p.width;
    g.accumulate = slot.accumulate;
    const std::vector<int64_t> offsets = head_offsets();
    g.offsets = offsets.data();
    gemm_grouped_weight(g);
  }

  int64_t rows, heads, channels;
  std::span<const SequenceSpan> spans;
  CcaRows p{};
  float* partials;  ///< per chunk: 4 sums of C, 1 of G

 private:
  /// One product per head over all view rows.
  GroupedGemmArgs product() const {
    GroupedGemmArgs g;
    g.experts = heads;
    g.n = p.width;
    g.lda = g.ldc = p.width;
    g.b = call_.in[kGrouped].data, g.b_type = call_.in[kGrouped].dtype();
    g.ldb = 2 * p.width, g.b_stride = 2 * p.width * p.width;
    return g;
  }
  void run(GroupedGemmArgs g, int64_t row_step = 1) const {
    const std::vector<int64_t> offsets = head_offsets(row_step);
    g.lda *= row_step, g.ldc *= row_step;
    g.offsets = offsets.data();
    gemm_grouped(g);
  }
  std::vector<int64_t> head_offsets(int64_t row_step = 1) const {
    std::vector<int64_t> offsets;
    for (int64_t n = 0; n <= heads; ++n) offsets.push_back(n * p.view_rows / row_step);
    return offsets;
  }
  const void* element(int64_t i) const {
    const Tensor& w = call_.in[kGrouped];
    return static_cast<const std::byte*>(w.data) + i * size_of(w.dtype());
  }

  const OpCall& call_;
  const CcaAttr& attr_;
  SequenceSpan whole_;
  float *older_, *newer_, *zeros_;
};

void forward(const OpCall& call) {
  Problem problem(call, false);
  check_positions(problem.p.positions, problem.rows);
  problem.p.y = call.out[0].data;
  problem.convolve();
  problem.each_piece([&](const CcaPiece& piece, int64_t) { INGOT_ISA_CALL(cca_finish)(problem.p, piece); });
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
  p.d_y = call.d_out[0].data;
  p.d_x = call.d_in[kQkv].tensor.data, p.accumulate = call.d_in[kQkv].accumulate;
  const int64_t C = problem.channels, stride = 4 * C + p.kv_heads, chunks = parameter_chunks(problem.rows);
  std::fill_n(problem.partials, chunks * stride, 0.0f);
  const auto sums = [&](int64_t chunk) {
    float* s = problem.partials + chunk * stride;
    return CcaSums{s, s + C, s + 2 * C, s + 3 * C, s + 4 * C};
  };
  problem.convolve();
  problem.each_piece([&](const CcaPiece& piece, int64_t chunk) {
    INGOT_ISA_CALL(cca_finish_backward)(p, piece, sums(chunk));
  });
  if (call.d_in[kGrouped].wanted()) problem.weight_gradient(call.d_in[kGrouped]);
  problem.convolve_backward();
  problem.each_piece([&](const CcaPiece& piece, int64_t chunk) {
    INGOT_ISA_CALL(cca_depthwise_backward)(p, piece, sums(chunk));
  });
  const auto combine = [&](int64_t offset, int64_t width, const GradSlot& slot) {
    combine_parameter_chunks(problem.partials + offset, chunks, stride, width, slot);
  };
  combine_taps(problem, stride, p.u, call.d_in[kDepthwise]);  // u is used up
  combine(2 * C, C, call.d_in[kDepthwiseBias]);
  combine(3 * C, C, call.d_in[kGroupedBias]);
  combine(4 * C, p.kv_heads, call.d_in[kTemperature]);
}

}  // namespace

int64_t cca_scratch_bytes(const OpCall& call) {
  return Problem::scratch_floats(call.attr<CcaAttr>(), call.in[kQkv].dim(0)) *
         static_cast<int64_t>(sizeof(float));
}

std::vector<Kernel> cca_kernels() {
  return {{"cpu", refuse, forward, backward, nullptr}, cca_reference()};
}

}  // namespace ingot
