// See expert_overlap.h.
#include "eval/expert_overlap.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/philox.h"
#include "device/gemm/gemm.h"

namespace ingot {
namespace {

/// Row-major [rows, columns].
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  float* row(int64_t i) { return values.data() + i * columns; }
  const float* row(int64_t i) const { return values.data() + i * columns; }
};

/// a b, or a b^T.
Matrix product(const Matrix& a, const Matrix& b, bool transposed) {
  Matrix c(a.rows, transposed ? b.rows : b.columns);
  GemmArgs g;
  g.m = a.rows, g.n = c.columns, g.k = a.columns;
  g.a = a.values.data(), g.lda = a.columns;
  g.b = b.values.data(), g.b_transposed = transposed, g.ldb = b.columns;
  g.c = c.values.data(), g.ldc = c.columns;
  gemm(g);
  return c;
}

/// Makes the rows orthonormal in order, twice projected; a row that those before it span becomes random.
void make_orthonormal(Matrix& m) {
  const Random random(1, RandomPurpose::init, 7);
  uint64_t next = 0;
  for (int64_t i = 0; i < m.rows; ++i) {
    float* x = m.row(i);
    for (int tries = 0; tries < 4; ++tries) {
      double before = 0, after = 0;
      for (int64_t k = 0; k < m.columns; ++k) before += static_cast<double>(x[k]) * x[k];
      for (int pass = 0; pass < 2; ++pass)
        for (int64_t j = 0; j < i; ++j) {
          const float* q = m.row(j);
          double dot = 0;
          for (int64_t k = 0; k < m.columns; ++k) dot += static_cast<double>(q[k]) * x[k];
          for (int64_t k = 0; k < m.columns; ++k) x[k] -= static_cast<float>(dot) * q[k];
        }
      for (int64_t k = 0; k < m.columns; ++k) after += static_cast<double>(x[k]) * x[k];
      if (after > 1e-10 * before && after > 0) {
        const auto scale = static_cast<float>(1 / std::sqrt(after));
        for (int64_t k = 0; k < m.columns; ++k) x[k] *= scale;
        break;
      }
      for (int64_t k = 0; k < m.columns; ++k) x[k] = static_cast<float>(random.normal(next++));
    }
  }
}

/// Eigenvectors of a symmetric matrix as rows, the largest eigenvalue first; by cyclic Jacobi rotations.
Matrix eigenvectors(const Matrix& symmetric, std::vector<double>& eigenvalues) {
  const auto n = static_cast<size_t>(symmetric.rows);
  std::vector<double> a(symmetric.values.begin(), symmetric.values.end()), v(n * n);
  for (size_t i = 0; i < n; ++i) v[i * n + i] = 1;
  for (int sweep = 0; sweep < 30; ++sweep) {
    double off = 0, all = 0;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) (i == j ? all : off) += a[i * n + j] * a[i * n + j];
    if (off <= 1e-20 * (all + off)) break;
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (size_t k = 0; k < n; ++k) {
          const double x = a[k * n + p], y = a[k * n + q];
          a[k * n + p] = c * x - s * y, a[k * n + q] = s * x + c * y;
        }
        for (size_t k = 0; k < n; ++k) {
          const double x = a[p * n + k], y = a[q * n + k];
          a[p * n + k] = c * x - s * y, a[q * n + k] = s * x + c * y;
          const double f = v[p * n + k], g = v[q * n + k];
          v[p * n + k] = c * f - s * g, v[q * n + k] = s * f + c * g;
        }
      }
  }
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return a[i * n + i] > a[j * n + j]; });
  Matrix sorted(symmetric.rows, symmetric.rows);
  eigenvalues.clear();
  for (size_t i = 0; i < n; ++i) {
    eigenvalues.push_back(a[order[i] * n + order[i]]);
    for (size_t k = 0; k < n; ++k) sorted.values[i * n + k] = static_cast<float>(v[order[i] * n + k]);
  }
  return sorted;
}

Matrix gram(const float* matrix, int64_t count, int64_t width) {
  Matrix g(width, width);
  GemmArgs p;
  p.m = p.n = width, p.k = count;
  p.a = matrix, p.a_transposed = true, p.lda = width;
  p.b = matrix, p.ldb = width;
  p.c = g.values.data(), p.ldc = width;
  gemm(p);
  return g;
}

/// The largest |row of (q g) - value * row of q| over the first d rows, relative to the first value.
double residual(const Matrix& q, const Matrix& g, const std::vector<double>& values, int64_t d) {
  const Matrix image = product(q, g, false);
  double worst = 0;
  for (int64_t i = 0; i < d; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < q.columns; ++k) {
      const double r = image.row(i)[k] - values[static_cast<size_t>(i)] * q.row(i)[k];
      sum += r * r;
    }
    worst = std::max(worst, std::sqrt(sum));
  }
  return worst / std::max(values.front(), 1e-300);
}

constexpr const char* kGateUp = ".moe.experts.gate_up.weight";
constexpr const char* kDown = ".moe.experts.down.weight";

/// One expert's matrix of a stored tensor [E, rows, columns], with the width (what the model's stream has) as
/// columns.
std::vector<float> expert_matrix(const CheckpointReader& model, const std::string& name, int64_t expert,
                                 bool transposed) {
  const Shape& shape = model.tensors().at(name).meta.shape;
  const int64_t rows = shape[1], columns = shape[2];
  std::vector<float> stored(static_cast<size_t>(rows * columns));
  model.read(name, {{expert, 0, 0}, {1, rows, columns}}, DType::f32, stored.data());
  if (!transposed) return stored;
  std::vector<float> turned(stored.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      turned[static_cast<size_t>(c * rows + r)] = stored[static_cast<size_t>(r * columns + c)];
  return turned;
}

OverlapSide side(const CheckpointReader& model, const std::string& name, bool transposed, int64_t width,
                 int64_t d) {
  std::vector<LeadingDirections> experts;
  for (int64_t e = 0; e < model.tensors().at(name).meta.shape[0]; ++e) {
    const std::vector<float> m = expert_matrix(model, name, e, transposed);
    experts.push_back(leading_directions(m.data(), static_cast<int64_t>(m.size()) / width, width, d));
  }
  return overlap_of(experts, width);
}

}  // namespace

LeadingDirections leading_directions(const float* matrix, int64_t count, int64_t width, int64_t d) {
  INGOT_CHECK(d >= 1 && d <= width, "{} directions of {}", d, width);
  constexpr int kRounds = 40, kProducts = 4;
  constexpr double kEnough = 1e-5;
  const Matrix g = gram(matrix, count, width);
  double all = 0;
  for (int64_t i = 0; i < width; ++i) all += g.row(i)[i];
  const Random random(1, RandomPurpose::init, 8);
  Matrix q(std::min(width, d + std::max<int64_t>(8, d / 2)), width);
  for (size_t i = 0; i < q.values.size(); ++i) q.values[i] = static_cast<float>(random.normal(i));
  make_orthonormal(q);
  std::vector<double> values;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kProducts && q.rows < width; ++i) {
      q = product(q, g, false);
      make_orthonormal(q);
    }
    q = product(eigenvectors(product(product(q, g, false), q, true), values), q, false);
    if (q.rows == width || residual(q, g, values, d) <= kEnough) break;
  }
  LeadingDirections out;
  out.rows.assign(q.values.begin(), q.values.begin() + d * width);
  for (int64_t i = 0; i < d; ++i) out.variance += std::max(0.0, values[static_cast<size_t>(i)]);
  out.variance = all > 0 ? out.variance / all : 0;
  return out;
}

OverlapSide overlap_of(const std::vector<LeadingDirections>& experts, int64_t width) {
  OverlapSide out;
  const auto d = static_cast<int64_t>(experts.front().rows.size()) / width;
  double sum = 0, squares = 0;
  int64_t pairs = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    out.variance += experts[i].variance / static_cast<double>(experts.size());
    Matrix a(d, width);
    a.values = experts[i].rows;
    for (size_t j = i + 1; j < experts.size(); ++j, ++pairs) {
      Matrix b(d, width);
      b.values = experts[j].rows;
      double s = 0;
      for (const float x : product(a, b, true).values) s += static_cast<double>(x) * x;
      s /= static_cast<double>(d);
      sum += s, squares += s * s;
    }
  }
  const auto n = static_cast<double>(std::max<int64_t>(pairs, 1));
  out.mean = sum / n;
  out.deviation = std::sqrt(std::max(0.0, squares / n - out.mean * out.mean));
  out.rho = out.mean * static_cast<double>(width) / static_cast<double>(d);
  return out;
}

std::vector<ExpertOverlap> expert_overlap(const CheckpointReader& model, int64_t directions) {
  std::map<int64_t, std::string> layers;  // by number: the prefix
  for (const auto& [name, tensor] : model.tensors())
    if (tensor.kind == TensorKind::weight && name.starts_with("layers.") && name.ends_with(kDown) &&
        tensor.meta.shape[0] > 1)
      layers[std::stoll(name.substr(7))] = name.substr(0, name.size() - std::string_view(kDown).size());
  if (layers.empty())
    throw Error(fmt::format("no layer of '{}' has several experts", model.path()),
                "experts can only be compared in a mixture of experts");
  std::vector<ExpertOverlap> all;
  for (const auto& [layer, prefix] : layers) {
    const Shape& down = model.tensors().at(prefix + kDown).meta.shape;
    ExpertOverlap o{layer, down[0], directions, down[1], {}, {}};
    if (o.directions == 0) o.directions = std::max<int64_t>(1, std::min(down[1] / 16, down[2]));
    if (o.directions > std::min(down[1], down[2]))
      throw Error(fmt::format("{} directions of experts of layer {}, whose matrices are {} x {}", directions,
                              layer, down[1], down[2]),
                  fmt::format("give --directions up to {}", std::min(down[1], down[2])));
    o.input = side(model, prefix + kGateUp, false, o.width, o.directions);
    o.output = side(model, prefix + kDown, true, o.width, o.directions);
    all.push_back(o);
  }
  return all;
}

}  // namespace ingot
