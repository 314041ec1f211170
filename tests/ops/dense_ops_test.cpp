// embedding, shard_index, shard_rows, linear, activation, add, head: values, gradients, invariance, empty and
// odd sizes.
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "ops/activation/activation.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/head/head.h"
#include "ops/linear/linear.h"
#include "ops/shard_index/shard_index.h"
#include "support/op_check.h"

namespace ingot::test::dense_ops_test {

std::vector<int32_t> random_ids(int64_t n, int32_t bound, uint64_t stream) {
  const Random random(3, RandomPurpose::test, stream);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(bound))));
  return ids;
}

TEST(Embedding, Cases) {
  for (const auto& [rows, width, vocabulary] :
       {std::tuple<int64_t, int64_t, int32_t>{9, 5, 4}, {0, 8, 3}, {130, 33, 17}, {1, 1, 1}})
    for (const Stored& table : kStored) {
      OpCase c;
      c.name = fmt::format("embedding {}x{} of {} {}", rows, width, vocabulary, table.name());
      c.op = &embedding_op();
      c.attr = AttrBox(EmbeddingAttr{DType::f32});
      c.attr_double = AttrBox(EmbeddingAttr{DType::f64});
      c.inputs = {
          {.meta = {Shape{rows}, DType::i32}, .ints = random_ids(rows, vocabulary, 1), .row_indexed = true},
          {.meta = {Shape{vocabulary, width}, table.type, table.format}}};
      c.output_row_indexed = {true};
      check_op(c);
    }
}

TEST(Embedding, AbsentIdsGiveZeros) {
  for (const DType type : {DType::f32, DType::bf16}) {
    OpCase c;
    c.name = fmt::format("embedding with absent ids {}", name_of(type));
    c.op = &embedding_op();
    c.attr = AttrBox(EmbeddingAttr{DType::f32, true});
    c.attr_double = AttrBox(EmbeddingAttr{DType::f64, true});
    c.inputs = {{.meta = {Shape{6}, DType::i32}, .ints = {2, -1, 0, 2, -1, -1}, .row_indexed = true},
                {.meta = {Shape{3, 5}, type}}};
    c.output_row_indexed = {true};
    check_op(c);
  }
}

TEST(ShardIndex, Cases) {
  OpCase c;
  c.name = "shard_index";
  c.op = &shard_index_op();
  c.attr = c.attr_double = AttrBox(ShardIndexAttr{10, 5, 7});
  c.inputs = {{.meta = {Shape{6}, DType::i32}, .ints = {9, 10, 14, 15, -1, 0}, .row_indexed = true}};
  c.output_row_indexed = {true};
  check_op(c);
  const std::vector<int32_t> x = {9, 10, 14, 15, -1, 0};
  std::vector<int32_t> y(6);
  const Tensor in[] = {Tensor::of(x.data(), {6})}, out[] = {Tensor::of(y.data(), {6})};
  shard_index_op().kernels.back().forward({c.attr.data(), in, out, {}, {}});
  EXPECT_EQ(y, (std::vector<int32_t>{7, 0, 4, 7, -1, 7}));
}

TEST(ShardRows, Cases) {
  for (const int64_t count : {0, 3}) {
    OpCase c;
    c.name = fmt::format("shard_rows of {}", count);
    c.op = &shard_rows_op();
    c.attr = c.attr_double = AttrBox(ShardRowsAttr{2, count});
    c.inputs = {{.meta = {Shape{6}, DType::i32}, .ints = {9, 10, 14, 15, -1, 0}}};
    check_op(c);
  }
  const std::vector<int32_t> x = {9, 10, 14, 15};
  std::vector<int32_t> y(2);
  const Tensor in[] = {Tensor::of(x.data(), {4})}, out[] = {Tensor::of(y.data(), {2})};
  const ShardRowsAttr attr{1, 2};
  shard_rows_op().kernels.back().forward({&attr, in, out, {}, {}});
  EXPECT_EQ(y, (std::vector<int32_t>{10, 14}));
}

TEST(Embedding, RefusesAnIdOutsideTheTable) {
  int32_t ids[] = {0, 7};
  float table[4] = {}, y[4];
  const Tensor in[] = {Tensor::of(ids, {2}), Tensor::of(table, {2, 2})}, out[] = {Tensor::of(y, {2, 2})};
  const EmbeddingAttr attr;
  const OpCall call{&attr, in, out, {}, {}};
  for (const Kernel& k : embedding_op().kernels) {
    if (k.device == DeviceKind::cpu) {
      EXPECT_THROW(k.forward(call), Error) << k.name;
      continue;
    }
    k.forward(call);  // does not read it; its NaN stops a step before the update
    EXPECT_EQ(std::vector<float>(y, y + 2), std::vector<float>(2)) << k.name;
    EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3])) << k.name;
  }
}

TEST(Linear, Cases) {
  for (const auto& [rows, n_in, n_out] :
       {std::tuple<int64_t, int64_t, int64_t>{5, 7, 3}, {0, 4, 6}, {1, 1, 1}, {67, 130, 49}, {200, 96, 64}})
    for (const Stored& weights : kStored)
      for (const auto& [bias, out] :
           {std::pair{false, weights.type}, {true, weights.type}, {true, DType::f32}}) {
        const DType type = weights.type;
        OpCase c;
        c.name = fmt::format("linear {}x{}->{} {} bias={} {}", rows, n_in, n_out, weights.name(), bias,
                             name_of(out));
        c.op = &linear_op();
        c.attr = AttrBox(LinearAttr{out});
        c.attr_double = AttrBox(LinearAttr{DType::f64});
        c.inputs = {{.meta = {Shape{rows, n_in}, type}, .row_indexed = true},
                    {.meta = {Shape{n_out, n_in}, type, weights.format}, .scale = 0.3},
                    {.meta = {Shape{n_out}, DType::f32}, .present = bias}};
        c.output_row_indexed = {true};
        c.finite_differences = rows <= 5;
        check_op(c);
        if (type == DType::bf16 || out != DType::f32) continue;
        c.name += " rows of bf16";
        c.inputs[0].meta.dtype = DType::bf16;
        check_op(c);
      }
}

TEST(Activation, Cases) {
  for (const ActivationKind kind :
       {ActivationKind::gelu, ActivationKind::gelu_tanh, ActivationKind::relu2, ActivationKind::silu,
        ActivationKind::swiglu, ActivationKind::geglu, ActivationKind::soft_cap})
    for (const auto& [scaled, padded] : {std::pair{false, false}, {true, false}, {true, true}})
      for (const DType type : {DType::f32, DType::bf16})
        for (const auto& [rows, width] : {std::pair<int32_t, int64_t>{5, 7}, {0, 16}, {130, 70}}) {
          OpCase c;
          c.name = fmt::format("activation {} {}x{} {} p={} padded={}", static_cast<int>(kind), rows, width,
                               name_of(type), scaled, padded);
          c.op = &activation_op();
          c.attr = AttrBox(ActivationAttr{kind, type, {2, 1.5, 0.5}});
          c.attr_double = AttrBox(ActivationAttr{kind, DType::f64, {2, 1.5, 0.5}});
          c.inputs = {
              {.meta = {Shape{rows, is_gated(kind) ? 2 * width : width}, type},
               .scale = 1.5,
               .row_indexed = true},
              {.meta = {Shape{rows}, DType::f32},
               .scale = 0.3,
               .offset = 1,
               .present = scaled,
               .row_indexed = true},
              {.meta = {Shape{3}, DType::i32}, .ints = {0, rows / 2, rows - rows / 3}, .present = padded}};
          if (!padded) c.output_row_indexed = {true};
          c.finite_differences = rows <= 5;
          check_op(c);
        }
}

TEST(Add, Cases) {
  for (const bool gated : {false, true})
    for (const DType type : {DType::f32, DType::bf16})
      for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{5, 7}, {0, 16}, {130, 33}}) {
        OpCase c;
        c.name = fmt::format("add {}x{} {} gated={}", rows, width, name_of(type), gated);
        c.op = &add_op();
        c.attr = AttrBox(AddAttr{type, gated});
        c.attr_double = AttrBox(AddAttr{DType::f64, gated});
        c.inputs = {{.meta = {Shape{rows, width}, type}, .row_indexed = true},
                    {.meta = {Shape{rows, width}, type}, .row_indexed = true},
                    {.meta = {Shape{width}, DType::f32}, .present = gated}};
        c.output_row_indexed = {true};
        c.finite_differences = rows <= 5;
        check_op(c);
      }
}

std::vector<double> distributions(int64_t rows, int64_t n) {
  const Random random(5, RandomPurpose::test, 9);
  std::vector<double> q(static_cast<size_t>(rows * n));
  for (int64_t t = 0; t < rows; ++t) {
    double sum = 0;
    for (int64_t v = 0; v < n; ++v) {
      const auto i = static_cast<size_t>(t * n + v);
      // Powers of two sum exactly in every precision.
      q[i] = v + 1 < n
                 ? std::ldexp(1.0, -static_cast<int>(2 + random.below(i, 3)) - static_cast<int>(std::log2(n)))
                 : 1 - sum;
      sum += q[i];
    }
  }
  return q;
}

/// Ids that rows allow: every third row all of them, the others their target and about a third of the rest.
struct AllowedIds {
  AllowedIds(const std::vector<int32_t>& targets, int32_t vocabulary) {
    const Random random(8, RandomPurpose::test, 1);
    for (size_t t = 0; t < targets.size(); ++t) {
      ranges.push_back(static_cast<int32_t>(ids.size()));
      for (int32_t id = 0; id < vocabulary && t % 3 != 2; ++id)
        if (id == targets[t] || random.below(t * 1000 + static_cast<size_t>(id), 3) == 0) ids.push_back(id);
      ranges.push_back(static_cast<int32_t>(ids.size()));
    }
  }
  std::vector<int32_t> ranges, ids;
};

/// How the distribution differs from the softmax of the product.
struct HeadForm {
  SoftCap cap = {};
  float scale = 1;
  bool allowed = false;
};

OpCase head_case(HeadMode mode, int64_t rows, int64_t width, int32_t vocabulary, const Stored& weights,
                 bool entropy, bool teacher, const HeadForm& form = {}) {
  const DType type = weights.type;
  OpCase c;
  c.name = fmt::format("head mode={} {}x{} V={} {} entropy={} teacher={} cap={} scale={} allowed={}",
                       static_cast<int>(mode), rows, width, vocabulary, weights.name(), entropy, teacher,
                       form.cap.cap, form.scale, form.allowed);
  c.op = &head_op();
  c.attr = c.attr_double = AttrBox(HeadAttr{mode, entropy, 16, 0, form.cap, form.scale});
  auto targets = random_ids(rows, vocabulary, 4);
  for (size_t t = 0; t < targets.size(); t += 5) targets[t] = -1;
  c.inputs = {{.meta = {Shape{rows, width}, type}, .row_indexed = true},
              {.meta = {Shape{vocabulary, width}, type, weights.format}, .scale = 0.5},
              {.meta = {Shape{rows}, DType::i32}, .ints = targets, .row_indexed = true},
              {.meta = {Shape{rows, vocabulary}, DType::f32},
               .present = teacher,
               .row_indexed = true,
               .values = distributions(rows, vocabulary)},
              {.meta = {Shape{rows}, DType::f32}, .present = false, .row_indexed = true}};
  const AllowedIds allowed(targets, vocabulary);
  c.inputs.push_back({.meta = {Shape{rows, 2}, DType::i32},
                      .ints = allowed.ranges,
                      .present = form.allowed,
                      .row_indexed = true});
  c.inputs.push_back({.meta = {Shape{static_cast<int64_t>(allowed.ids.size())}, DType::i32},
                      .ints = allowed.ids,
                      .present = form.allowed});
  c.output_row_indexed = {true, true, entropy, teacher, true, false, false};
  // Cotangents of logits are rounded to bf16, 2^-9 of each term at most, and terms cancel: as for results in
  // bf16.
  c.gradient_tolerance = type == DType::bf16 ? 1.0 / 200 : 2e-5;
  c.finite_differences = rows <= 6;
  return c;
}

TEST(Head, StoreAndRecompute) {
  for (const HeadMode mode : {HeadMode::store, HeadMode::recompute})
    for (const Stored& type : kStored)
      for (const bool extra : {false, true}) {
        check_op(head_case(mode, 6, 5, 11, type, extra, extra));
        check_op(head_case(mode, 0, 8, 7, type, extra, extra));
        check_op(head_case(mode, 70, 33, 130, type, extra, extra));
        check_op(head_case(mode, 6, 5, 11, type, extra, extra, {{2, 1.5, 2}}));
        check_op(head_case(mode, 70, 33, 130, type, extra, extra, {{3, 3, 0}}));
      }
}

TEST(Head, OfTheDistributionThatATokenWasDrawnFrom) {
  for (const HeadMode mode : {HeadMode::store, HeadMode::recompute})
    for (const Stored& type : kStored)
      for (const bool entropy : {false, true}) {
        check_op(head_case(mode, 6, 5, 11, type, entropy, true, {{}, 1.5f}));
        check_op(head_case(mode, 6, 5, 11, type, entropy, false, {{2, 1.5, 2}, 0.7f, true}));
        check_op(head_case(mode, 0, 8, 7, type, entropy, false, {{}, 0.7f, true}));
        check_op(head_case(mode, 70, 33, 130, type, entropy, false, {{}, 1.5f, true}));
      }
}

TEST(Head, RefusesATargetThatItsRowDoesNotAllow) {
  const std::vector<float> x = {1, 2}, w = {1, 0, 0, 1, 1, 1};
  const std::vector<int32_t> target = {1};
  const auto run = [&](std::vector<int32_t> range, std::vector<int32_t> ids) {
    HeapArena arena;
    Tape tape(arena, {.record = false});
    const HeadAllowed allowed{tape.leaf(Tensor::of(range.data(), {1, 2})),
                              tape.leaf(Tensor::of(ids.data(), {static_cast<int64_t>(ids.size())}))};
    const HeadResult h =
        head(tape, {}, tape.leaf(Tensor::of(x.data(), {1, 2})), tape.leaf(Tensor::of(w.data(), {3, 2})),
             tape.leaf(Tensor::of(target.data(), {1})), {}, {}, allowed);
    return std::pair{h.logprob_T.tensor().as<float>()[0], h.best_T.tensor().as<int32_t>()[0]};
  };
  EXPECT_EQ(run({0, 1}, {1, 2}), std::pair(0.0f, 1));  // the only id: certain
  EXPECT_EQ(run({0, 2}, {1, 2}).second, 2);
  EXPECT_EQ(run({1, 1}, {1, 2}).second, 2);
  EXPECT_THROW(run({0, 2}, {0, 2}), InternalError);  // not the target
  EXPECT_THROW(run({0, 2}, {2, 1}), InternalError);  // not ascending
  EXPECT_THROW(run({0, 2}, {1, 3}), InternalError);  // outside the vocabulary
  EXPECT_THROW(run({0, 3}, {1, 2}), InternalError);  // outside the list
}

struct HeadSizes {
  int64_t rows, width, vocabulary;
};

/// The values of x and weight (bf16 values, the same for every type) and the cotangents.
struct HeadProblem {
  HeadSizes sizes;
  std::vector<float> x, w;
  float z_coefficient;
  HeadForm form;
  float other = 0.25f;  ///< the contribution that the weight's gradient is added to
};

HeadProblem head_problem(HeadSizes s, float z_coefficient, const HeadForm& form) {
  const Random random(6, RandomPurpose::test, 1);
  HeadProblem p{s, std::vector<float>(s.rows * s.width), std::vector<float>(s.vocabulary * s.width),
                z_coefficient, form};
  for (size_t i = 0; i < p.x.size(); ++i) p.x[i] = to_float(to_bf16(static_cast<float>(random.normal(i))));
  for (size_t i = 0; i < p.w.size(); ++i)
    p.w[i] = to_float(to_bf16(static_cast<float>(random.normal(9000 + i))));
  return p;
}

/// Gradients of x and weight for d_logprob = row weight and the cotangent of the z-loss, by one kernel in one
/// mode, with operands of type T.
template <class T>
struct HeadGradients {
  HeadGradients(const HeadProblem& p, HeadMode mode, const Kernel& kernel) {
    constexpr int64_t kChunk = 16;
    const auto [rows, width, vocabulary] = p.sizes;
    std::vector<T> x = values(p.x), w = values(p.w), kept_x(x.size());
    std::vector<float> row_weight(rows), d_lse(rows), logprob(rows), lse(rows), logits(rows * vocabulary),
        scratch(kChunk * (vocabulary + width));
    for (size_t i = 0; i < row_weight.size(); ++i) row_weight[i] = static_cast<float>(i % 3) / 8;
    auto targets = random_ids(rows, static_cast<int32_t>(vocabulary), 4);
    targets[3] = -1;
    const bool gradient = mode == HeadMode::gradient;
    const HeadAttr attr{mode, false, kChunk, gradient ? p.z_coefficient : 0.0, p.form.cap, p.form.scale};
    AllowedIds allowed(targets, static_cast<int32_t>(vocabulary));
    const auto allowed_ids = static_cast<int64_t>(allowed.ids.size());
    std::vector<int32_t> best(rows);
    const Tensor in[] = {Tensor::of(x.data(), {rows, width}),
                         Tensor::of(w.data(), {vocabulary, width}),
                         Tensor::of(targets.data(), {rows}),
                         Tensor(),
                         gradient ? Tensor::of(row_weight.data(), {rows}) : Tensor(),
                         p.form.allowed ? Tensor::of(allowed.ranges.data(), {rows, 2}) : Tensor(),
                         p.form.allowed ? Tensor::of(allowed.ids.data(), {allowed_ids}) : Tensor()};
    const Tensor none = Tensor::of(logprob.data(), {0});
    const Tensor out[] = {Tensor::of(logprob.data(), {rows}),
                          Tensor::of(lse.data(), {rows}),
                          none,
                          none,
                          Tensor::of(best.data(), {rows}),
                          Tensor::of(logits.data(), {mode == HeadMode::store ? rows : 0, vocabulary}),
                          Tensor::of(kept_x.data(), {gradient ? rows : 0, width})};
    std::vector<T> grad_x(x.size());
    d_w.assign(w.size(), p.other);
    const GradSlot to_x{Tensor::of(grad_x.data(), {rows, width})},
        to_w{Tensor::of(d_w.data(), {vocabulary, width}), true};
    const GradSlot early[] = {{}, to_w, {}, {}, {}, {}, {}};
    kernel.forward(
        {&attr, in, out, {}, gradient ? std::span(early) : std::span<const GradSlot>(), scratch.data()});
    for (size_t t = 0; t < lse.size(); ++t) d_lse[t] = 2 * p.z_coefficient * lse[t] * row_weight[t];
    std::vector<Tensor> d_out(7);
    d_out[0] = Tensor::of(row_weight.data(), {rows}), d_out[1] = Tensor::of(d_lse.data(), {rows});
    const GradSlot d_in[] = {to_x, gradient ? GradSlot{} : to_w, {}, {}, {}, {}, {}};
    kernel.backward_input({&attr, in, out, d_out, d_in, scratch.data()});
    for (const T v : grad_x) d_x.push_back(to_float(v));
  }

  static std::vector<T> values(const std::vector<float>& from) {
    std::vector<T> to;
    for (const float v : from)
      if constexpr (std::is_same_v<T, bf16>)
        to.push_back(to_bf16(v));
      else
        to.push_back(v);
    return to;
  }

  std::vector<float> d_x, d_w;
};

const std::pair<float, HeadForm> kHeadLosses[] = {{0.0f, {}},
                                                  {0.25f, {}},
                                                  {0.25f, {{3, 2, 3}}},
                                                  {0.0f, {{}, 1.5f, true}},
                                                  {0.25f, {{3, 2, 3}, 0.7f, true}}};

TEST(Head, ModesGiveTheSameBits) {
  const Kernel &fast = head_op().kernels.front(), &reference = head_op().kernels.back();
  for (const auto& [z, form] : kHeadLosses) {
    const HeadProblem p = head_problem({70, 33, 130}, z, form);
    const HeadGradients<float> expected(p, HeadMode::recompute, fast),
        exact(p, HeadMode::gradient, reference);
    const HeadGradients<bf16> expected_bf16(p, HeadMode::recompute, fast);
    for (const HeadMode mode : {HeadMode::store, HeadMode::gradient}) {
      const HeadGradients<float> found(p, mode, fast);
      EXPECT_EQ(found.d_x, expected.d_x);
      EXPECT_EQ(found.d_w, expected.d_w);
      const HeadGradients<bf16> found_bf16(p, mode, fast);
      EXPECT_EQ(found_bf16.d_x, expected_bf16.d_x);
      EXPECT_EQ(found_bf16.d_w, expected_bf16.d_w);
    }
    for (size_t i = 0; i < exact.d_x.size(); ++i) EXPECT_NEAR(expected.d_x[i], exact.d_x[i], 1e-5);
    for (size_t i = 0; i < exact.d_w.size(); ++i) EXPECT_NEAR(expected.d_w[i], exact.d_w[i], 1e-5);
  }
}

/// If x is the unit matrix, the weight's gradient consists of the cotangents of the logits.
TEST(Head, CotangentsOfBf16OperandsAreThoseOfF32RoundedOnce) {
  const Kernel& fast = head_op().kernels.front();
  for (const auto& [z, form] : kHeadLosses) {
    HeadProblem p = head_problem({70, 70, 130}, z, form);
    p.other = 0;
    for (size_t i = 0; i < p.x.size(); ++i) p.x[i] = i % 71 == 0 ? 1.0f : 0.0f;
    for (const HeadMode mode : {HeadMode::store, HeadMode::recompute, HeadMode::gradient}) {
      const HeadGradients<float> f32(p, mode, fast);
      const HeadGradients<bf16> rounded(p, mode, fast);
      for (size_t i = 0; i < f32.d_w.size(); ++i)
        ASSERT_EQ(rounded.d_w[i], to_float(to_bf16(f32.d_w[i]))) << i;
    }
  }
}

}  // namespace ingot::test::dense_ops_test
