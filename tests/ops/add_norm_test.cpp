// add_norm: every merge and norm, fp32 and bf16, odd and empty sizes.
#include "ops/add_norm/add_norm.h"

#include <gtest/gtest.h>

#include "support/op_check.h"

namespace ingot::test::add_norm_test {

OpCase make_case(NormKind norm, MergeKind merge, int64_t rows, int64_t width, DType type, bool weight = true,
                 double offset = 0) {
  const bool y = merge == MergeKind::add || merge == MergeKind::scaled;
  const bool stream = merge == MergeKind::affine || merge == MergeKind::scaled;
  const Shape matrix{rows, width}, vector{width};
  OpCase c;
  c.name = fmt::format("add_norm norm={} merge={} {}x{} {} weight={} offset={}", static_cast<int>(norm),
                       static_cast<int>(merge), rows, width, name_of(type), weight, offset);
  c.op = &add_norm_op();
  c.attr = AttrBox(AddNormAttr{norm, merge, type, 1e-5, offset});
  c.attr_double = AttrBox(AddNormAttr{norm, merge, DType::f64, 1e-5, offset});
  const auto param = [&](bool present, double mean) {
    return CaseInput{.meta = {vector, DType::f32}, .scale = 0.3, .offset = mean, .present = present};
  };
  c.inputs = {{.meta = {matrix, DType::f32}, .offset = 0.5, .row_indexed = true},
              {.meta = {matrix, type}, .present = y, .row_indexed = true},
              param(stream, 1),
              param(stream, 0),
              param(merge == MergeKind::scaled, 1),
              param(merge == MergeKind::scaled, 0),
              param(weight, 1 - offset),
              param(weight && norm == NormKind::layer, 0)};
  c.output_row_indexed = {merge != MergeKind::none, true, true, norm == NormKind::layer};
  c.finite_differences = rows * width <= 600;
  if (width == 1) c.gradient_tolerance = 1e-3;  // one element: the gradient is what is left of a cancellation
  return c;
}

TEST(AddNorm, AllMergesAndNorms) {
  for (const NormKind norm : {NormKind::rms, NormKind::layer})
    for (const MergeKind merge : {MergeKind::none, MergeKind::add, MergeKind::affine, MergeKind::scaled})
      for (const DType type : {DType::f32, DType::bf16})
        for (const auto& [rows, width] :
             {std::pair<int64_t, int64_t>{5, 7}, {3, 64}, {0, 16}, {200, 33}, {1, 1}})
          check_op(make_case(norm, merge, rows, width, type));
}

TEST(AddNorm, WithoutWeights) {
  for (const NormKind norm : {NormKind::rms, NormKind::layer})
    for (const MergeKind merge : {MergeKind::none, MergeKind::add})
      for (const DType type : {DType::f32, DType::bf16})
        for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{5, 7}, {0, 16}, {200, 33}})
          check_op(make_case(norm, merge, rows, width, type, false));
}

TEST(AddNorm, WeightsWithAnOffset) {
  for (const NormKind norm : {NormKind::rms, NormKind::layer})
    for (const MergeKind merge : {MergeKind::none, MergeKind::add})
      for (const DType type : {DType::f32, DType::bf16})
        for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{5, 7}, {0, 16}, {200, 33}})
          check_op(make_case(norm, merge, rows, width, type, true, 1));
}

}  // namespace ingot::test::add_norm_test
