// See op_sizes.h.
#include "measure/op_sizes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "measure/profile.h"
#include "ops/attention/attention.h"

namespace ingot {
namespace {

OpSizes product_sizes(const OpRun& run) {
  const OpCall& call = run.call;
  const bool is_head = std::strcmp(run.op.name, "head") == 0;
  Tensor weight;
  for (size_t i = 0; i < run.op.inputs.size() && !weight.defined(); ++i) {
    if (run.op.inputs[i].kind != InputKind::weight &&
        !(is_head && std::strcmp(run.op.inputs[i].name, "weight") == 0))
      continue;
    weight = i < call.in.size() ? call.in[i] : Tensor();
    if (!weight.defined() && i < call.d_in.size()) weight = call.d_in[i].tensor;
  }
  OpSizes s;
  if (!weight.defined() || weight.shape().rank() < 2) return s;
  const int last = weight.shape().rank() - 1;
  s.n = weight.dim(last - 1), s.k = weight.dim(last);
  const double experts = last == 2 ? static_cast<double>(weight.dim(0)) : 1;
  const double products = is_head && run.direction == Direction::forward ? 3 : 1;
  s.m = std::max<int64_t>(1, std::llround(run.flops / products / 2 / experts / static_cast<double>(s.n) /
                                          static_cast<double>(s.k)));
  return s;
}

OpSizes attention_sizes(const OpRun& run) {
  OpSizes s;
  if (std::strcmp(run.op.name, "attention") != 0) return s;
  const auto& a = run.call.attr<AttentionAttr>();
  const double per_pair = run.direction == Direction::forward
                              ? 2.0 * static_cast<double>(a.heads * (a.head_width + a.values()))
                              : 2.0 * static_cast<double>(a.heads * (3 * a.head_width + 2 * a.values()));
  s.width = a.head_width;
  const auto rows = static_cast<double>(run.call.in[0].defined() ? run.call.in[0].dim(0) : 0);
  if (rows > 0) s.length = std::llround(2 * run.flops / per_pair / rows);
  return s;
}

}  // namespace

bool is_product(std::string_view op) {
  return op == "linear" || op == "grouped_linear" || op == "low_rank" || op == "head";
}

std::array<double, 5> log_ratios(const OpSizes& a, const OpSizes& b) {
  const auto ratio = [](int64_t x, int64_t y) {
    return x > 0 && y > 0 ? std::log(static_cast<double>(x) / static_cast<double>(y)) : 0;
  };
  return {ratio(a.m, b.m), ratio(a.n, b.n), ratio(a.k, b.k), ratio(a.width, b.width),
          ratio(a.length, b.length)};
}

std::string shapes_of(std::span<const Tensor> tensors) {
  std::string text;
  for (const Tensor& t : tensors) {
    if (!t.defined()) continue;
    text += text.empty() ? "" : ", ";
    for (int i = 0; i < t.shape().rank(); ++i) text += fmt::format("{}{}", i > 0 ? "x" : "", t.shape()[i]);
    text += fmt::format(" {}", name_of(t.dtype()));
    if (t.meta.format != nullptr) text += fmt::format(" ({})", t.meta.format->name);
  }
  return text;
}

OpSizes sizes_of(const OpRun& run) {
  switch (time_of(run.op)) {
    case TimeOf::products:
      return product_sizes(run);
    case TimeOf::attention:
      return attention_sizes(run);
    default:
      return {};
  }
}

}  // namespace ingot
