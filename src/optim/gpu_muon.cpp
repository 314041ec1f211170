// Muon by the kernels of GPUs: matrices of one shape are orthogonalised beside each other. See gpu_step.h.
#include "optim/gpu_muon.h"

#include <algorithm>
#include <array>
#include <map>

#include "device/gemm/gpu_tensor_cores.h"
#include "optim/gpu_optim.h"
#include "optim/gpu_step.h"
#include "optim/muon.h"
#include "optim/newton_schulz_passes.h"

namespace ingot {
namespace {

/// Elements of a batch, unless one matrix has more: what is enough to fill a GPU need not have more scratch.
constexpr int64_t kBatchElements = int64_t{1} << 24;

/// Matrices [rows, cols] beside each other; see newton_schulz_passes.h.
struct GpuMatrices {
  int64_t batch, rows, cols;
  const NewtonSchulzConfig* config;
  KeptLists* lists;

  int64_t count() const { return rows * cols; }
  int64_t side() const { return std::min(rows, cols); }
  bool tall() const { return rows > cols; }

  template <class T>
  void normalise(T* to, const float* from) const {
    const TensorChunks chunks = chunks_of(std::vector<int64_t>(static_cast<size_t>(batch), count()));
    GpuWorkspace memory(lists);
    auto* const sums = memory.scratch<double>(batch);
    INGOT_GPU_CALL(launch_sum_squares)
    ({}, {{memory.list(chunks.first), batch},
          nullptr,
          {from, count()},
          chunks.size(),
          memory.scratch<double>(chunks.size()),
          sums});
    INGOT_GPU_CALL(launch_normalise)
    ({}, {from, to, DTypeOf<T>::value, batch, count(), sums, config->norm_factor, config->eps});
  }
  void gram(float* to, const float* x) const {
    GpuSymmetricProduct s = squares(to);
    s.of.first.k = std::max(rows, cols);
    s.of.first.a = x, s.of.first.a_row = tall() ? 1 : cols, s.of.first.a_k = tall() ? cols : 1;
    s.of.first.b = x, s.of.first.b_k = s.of.first.a_k, s.of.first.b_column = s.of.first.a_row;
    s.of.a_stride = s.of.b_stride = count();
    INGOT_GPU_CALL(launch_symmetric_product)({}, s);
  }
  void polynomial(float* to, const float* gram_matrix, const std::array<double, 3>& coefficients) const {
    GpuSymmetricProduct s = of_squares(to, gram_matrix, gram_matrix);
    s.plus = gram_matrix;
    s.diagonal = static_cast<float>(coefficients[0]);
    s.plus_factor = static_cast<float>(coefficients[1]), s.factor = static_cast<float>(coefficients[2]);
    INGOT_GPU_CALL(launch_symmetric_product)({}, s);
  }
  void symmetric(float* to, const float* p, const float* q) const {
    INGOT_GPU_CALL(launch_symmetric_product)({}, of_squares(to, p, q));
  }
  void multiply(float* to, const float* q, const float* x) const {
    auto p = product<GpuBatchedProduct>(q, x);
    p.first.c = to;
    INGOT_GPU_CALL(launch_batched_product)({}, p);
  }
  /// q x for wide x, x q for tall ones; its C is not there yet.
  template <class Product>
  Product product(const void* q, const void* x) const {
    const int64_t square = side() * side();
    Product p;
    p.batch = batch;
    p.first.m = rows, p.first.n = cols, p.first.k = side();
    p.first.a = tall() ? x : q, p.first.a_row = side(), p.a_stride = tall() ? count() : square;
    p.first.b = tall() ? q : x, p.first.b_k = cols, p.b_stride = tall() ? square : count();
    p.first.c_row = cols, p.c_stride = count();
    return p;
  }

 private:
  /// A product that writes [side, side].
  GpuSymmetricProduct squares(float* to) const {
    GpuSymmetricProduct s;
    s.of.batch = batch;
    s.of.first.m = s.of.first.n = side();
    s.of.first.c = to, s.of.first.c_row = side(), s.of.c_stride = side() * side();
    return s;
  }
  GpuSymmetricProduct of_squares(float* to, const float* p, const float* q) const {
    GpuSymmetricProduct s = squares(to);
    s.of.first.k = side();
    s.of.first.a = p, s.of.first.a_row = side();
    s.of.first.b = q, s.of.first.b_k = side();
    s.of.a_stride = s.of.b_stride = side() * side();
    return s;
  }
};

/// Replaces the matrices `g`.
void orthogonalise(const GpuMatrices& m, float* g) {
  GpuWorkspace memory;
  auto* const x = memory.scratch<float>(m.batch * m.count());
  const int64_t square = m.batch * m.side() * m.side();
  auto* const s = memory.scratch<float>(4 * square);
  newton_schulz_passes(m, *m.config, m.rows, m.cols, g, x, {s, s + square, s + 2 * square, s + 3 * square});
}

/// Single steps X <- a X + B X, B = b A + c A A, whose products are of bf16 on tensor cores: A, B and X are
/// rounded as they are stored, the last X is f32. Replaces the matrices `g`.
void orthogonalise_in_bf16(const GpuMatrices& m, float* g) {
  const int64_t side = m.side(), square = side * side;
  const bool tall = m.tall();
  GpuWorkspace memory;
  auto *x = memory.scratch<bf16>(m.batch * m.count()), *next = memory.scratch<bf16>(m.batch * m.count());
  auto *const gram = memory.scratch<bf16>(m.batch * square), *const b =
                                                                 memory.scratch<bf16>(m.batch * square);
  m.normalise(x, g);
  for (int64_t step = 0; step < m.config->steps; ++step, std::swap(x, next)) {
    const std::array<double, 3>& coefficients = coefficients_of(*m.config, step);
    GpuBatchedMmaProduct s;
    s.batch = m.batch, s.c_stride = square;
    s.first.m = s.first.n = side, s.first.k = std::max(m.rows, m.cols);
    s.first.a = s.first.b = x;
    s.first.a_row = s.first.b_column = tall ? 1 : m.cols, s.first.a_k = s.first.b_k = tall ? m.cols : 1;
    s.a_stride = s.b_stride = m.count();
    s.first.c = gram, s.first.c_row = side, s.first.c_type = DType::bf16;
    multiply_symmetric_on_tensor_cores(s);

    s.first.k = side, s.first.a = s.first.b = gram;
    s.first.a_row = s.first.b_column = side, s.first.a_k = s.first.b_k = 1;
    s.a_stride = s.b_stride = square;
    s.first.plus = gram, s.first.plus_factor = static_cast<float>(coefficients[1]);
    s.first.factor = static_cast<float>(coefficients[2]);
    s.first.c = b;
    multiply_symmetric_on_tensor_cores(s);

    const bool is_last = step + 1 == m.config->steps;
    auto p = m.product<GpuBatchedMmaProduct>(b, x);
    p.first.plus = x, p.first.plus_factor = static_cast<float>(coefficients[0]);
    p.first.c = is_last ? static_cast<void*>(g) : next, p.first.c_type = is_last ? DType::f32 : DType::bf16;
    multiply_batch_on_tensor_cores(p);
  }
}

void update_batch(const MuonUpdate& u, const GpuMatrices& m, std::span<const GpuMuonMatrix> matrices,
                  UpdateSums* sums, const DeviceStep& step) {
  GpuWorkspace memory(step.lists);
  auto* const values = memory.scratch<float>(m.batch * m.count());
  const GpuMuonBatch batch{memory.list(matrices), m.batch, m.count(), values, step.rates,
                           step.decision,         sums};
  INGOT_GPU_CALL(launch_momentum)({}, {batch, step.numbers, u.nesterov, u.lerp});
  if (u.newton_schulz->precision == NewtonSchulzPrecision::bf16)
    orthogonalise_in_bf16(m, values);
  else
    orthogonalise(m, values);
  INGOT_GPU_CALL(launch_apply)({}, batch);
}

/// How many matrices of a shape are orthogonalised beside each other at most.
int64_t most_of(int64_t rows, int64_t cols) {
  return std::max<int64_t>(1, kBatchElements / (rows * cols));
}

}  // namespace

int64_t gpu_muon_scratch_bytes(std::span<const ParamView> params) {
  std::map<std::pair<int64_t, int64_t>, int64_t> shapes;
  for (const ParamView& p : params)
    for (const int64_t rows : p.row_splits.empty() ? std::vector{p.matrix_rows()} : p.row_splits)
      if (p.numel() > 0) shapes[{rows, p.matrix_cols()}] += p.matrices;
  int64_t most = 0;
  for (const auto& [shape, count] : shapes) {
    const auto [rows, cols] = shape;
    const int64_t side = std::min(rows, cols);  // values, X, and four squares
    most = std::max(most, std::min(count, most_of(rows, cols)) * (2 * rows * cols + 4 * side * side));
  }
  return most * size_of(DType::f32);
}

void gpu_muon(const MuonUpdate& u, const DeviceStep& step) {
  std::vector<int64_t> counts;
  for (const MuonUpdate::Matrix& m : u.matrices) counts.push_back(m.rows * m.cols);
  const TensorChunks chunks = chunks_of(std::move(counts));
  GpuWorkspace memory(step.lists);
  auto* const sums = memory.scratch<UpdateSums>(chunks.size());
  std::map<std::pair<int64_t, int64_t>, std::vector<GpuMuonMatrix>> shapes;
  for (size_t i = 0; i < u.matrices.size(); ++i) {
    const MuonUpdate::Matrix& m = u.matrices[i];
    shapes[{m.rows, m.cols}].push_back(
        {m.weights, m.grad, m.momentum, m.weight_decay, m.scale, m.index, chunks.first[i]});
  }
  for (const auto& [shape, matrices] : shapes) {
    const auto [rows, cols] = shape;
    const auto most = static_cast<size_t>(most_of(rows, cols));
    for (size_t begin = 0; begin < matrices.size(); begin += most) {
      const auto batch = std::span(matrices).subspan(begin, std::min(most, matrices.size() - begin));
      update_batch(u, {static_cast<int64_t>(batch.size()), rows, cols, u.newton_schulz, step.lists}, batch,
                   sums, step);
    }
  }
  gpu_update_stats(memory, sums, {chunks.first, u.first, u.counts, u.indices}, step.stats);
}

}  // namespace ingot
