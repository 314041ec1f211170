// mix: scalars given and not, a range of columns, odd and empty sizes; the unused scalar's gradient.
#include "ops/mix/mix.h"

#include <gtest/gtest.h>

#include "support/op_check.h"

namespace ingot::test::mix_test {

struct MixOptions {
  int64_t rows, width, first;
  bool alpha, beta, b;
  DType type;
  double factor = 1;
};

void check(const MixOptions& o) {
  OpCase c;
  c.name = fmt::format("mix {}x{} from {} alpha={} beta={} b={} factor={} {}", o.rows, o.width, o.first,
                       o.alpha, o.beta, o.b, o.factor, name_of(o.type));
  c.op = &mix_op();
  c.attr = AttrBox(MixAttr{o.type, o.first, o.alpha, o.beta, o.factor});
  c.attr_double = AttrBox(MixAttr{DType::f64, o.first, o.alpha, o.beta, o.factor});
  c.inputs = {{.meta = {Shape{o.rows, o.width}, o.type}, .row_indexed = true},
              {.meta = {Shape{o.rows, o.width - o.first}, o.type}, .present = o.b, .row_indexed = true},
              {.meta = {Shape{1}, DType::f32}, .scale = 0.3, .offset = 0.7, .present = o.alpha},
              {.meta = {Shape{1}, DType::f32}, .scale = 0.3, .offset = -0.4, .present = o.beta}};
  c.output_row_indexed = {true};
  c.finite_differences = o.rows <= 5;
  check_op(c);
}

TEST(Mix, Cases) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [rows, width, first] : {std::tuple<int64_t, int64_t, int64_t>{5, 7, 0},
                                             {3, 40, 24},
                                             {0, 16, 0},
                                             {200, 33, 5},
                                             {1, 1, 0},
                                             {70, 64, 0}}) {
      check({rows, width, first, true, true, true, type});       // a x + b x0
      check({rows, width, first, false, true, true, type});      // x + w skip
      check({rows, width, first, true, true, false, type});      // a v, where a layer has no table
      check({rows, width, first, false, false, true, type});     // a sum
      check({rows, width, 0, false, false, false, type, 0.22});  // scale
    }
}

}  // namespace ingot::test::mix_test
