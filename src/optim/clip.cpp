// See clip.h.
#include "optim/clip.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "optim/kernels.h"
#include "optim/work.h"

namespace ingot {

GradNorm gradient_norm(std::span<const ParamView> params, double grad_scale) {
  std::vector<int64_t> counts;
  for (const ParamView& p : params) counts.push_back(p.numel());
  const TensorChunks chunks = chunks_of(std::move(counts));
  std::vector<double> partial(chunks.list.size());
  parallel_for(chunks.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Chunk& c = chunks[i];
      const StoredPart grad = part_of(params[static_cast<size_t>(c.tensor)].grad, c.begin);
      partial[static_cast<size_t>(i)] = INGOT_ISA_CALL(sum_squares_of_stored)(grad, c.count);
    }
  });
  GradNorm result;
  result.sum_squares.resize(params.size());
  for (size_t i = 0; i < partial.size(); ++i)
    result.sum_squares[static_cast<size_t>(chunks.list[i].tensor)] += partial[i];
  result.combine(grad_scale);
  return result;
}

void GradNorm::combine(double grad_scale) {
  double total = 0;
  first_bad = -1;
  for (size_t i = 0; i < sum_squares.size(); ++i) {
    total += sum_squares[i];
    if (first_bad < 0 && !std::isfinite(sum_squares[i])) first_bad = static_cast<int64_t>(i);
  }
  norm = std::sqrt(total) * std::abs(grad_scale);
}

double clip_factor(double norm, double max_norm) {
  INGOT_CHECK(max_norm >= 0, "max_norm = {}", max_norm);
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

ClipFactor clip_of(std::span<const double> sum_squares, double grad_scale, double max_norm, double loss) {
  GradNorm n;
  n.sum_squares.assign(sum_squares.begin(), sum_squares.end());
  n.combine(grad_scale);
  return {n.finite() && std::isfinite(loss), clip_factor(n.norm, max_norm)};
}

std::string describe_bad_gradient(std::span<const ParamView> params, const GradNorm& norm) {
  if (norm.finite()) return "all gradients are finite";
  const ParamView& p = params[static_cast<size_t>(norm.first_bad)];
  std::vector<float> grad(static_cast<size_t>(p.numel()));
  INGOT_ISA_CALL(load_values)(grad.data(), part_of(p.grad, 0), p.numel());
  const auto is_bad = [](float g) { return !std::isfinite(g); };
  const auto bad = std::count_if(grad.begin(), grad.end(), is_bad);
  const auto at = std::find_if(grad.begin(), grad.end(), is_bad);
  const bool any = at != grad.end();
  return fmt::format("the gradient of '{}' {} is not finite: {} of {} elements, the first at index {} is {}",
                     p.name, p.shape.str(), bad, p.numel(), any ? at - grad.begin() : -1, any ? *at : 0.0f);
}

}  // namespace ingot
