// The head over a sharded vocabulary: statistics and gradients in double equal one rank's, in both modes,
// with shards of unequal size, masked rows, and cotangents of every statistic.
#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "comm/threads.h"
#include "nn/parameter.h"
#include "ops/collective/vocabulary.h"
#include "ops/reference.h"
#include "ops/shard_index/shard_index.h"
#include "tape/backward.h"

namespace ingot::test::vocabulary_ranks_test {

using reference::Array;
constexpr int64_t kRows = 7, kWidth = 5, kVocabulary = 17;

struct Outcome {
  Array logprob, lse, entropy, d_x, d_w;
};

Array draw(int64_t n, uint64_t stream) {
  const Random random(6, RandomPurpose::test, stream);
  Array a(static_cast<size_t>(n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = random.normal(i);
  return a;
}

/// Takes gradients for parameter 0 into `gradient`.
class OneGradient final : public GradientSink {
 public:
  explicit OneGradient(Array& gradient) : gradient_(gradient) {}
  bool wants(int) override { return true; }
  GradSlot slot(int) override {
    return {Tensor::of(gradient_.data(), {static_cast<int64_t>(gradient_.size()) / kWidth, kWidth}), false};
  }
  void finished(int) override {}

 private:
  Array& gradient_;
};

/// The head over rows [first, end) of the vocabulary; comm == nullptr: all of them.
Outcome run_head(HeadMode mode, Communicator* comm, int64_t first, int64_t end) {
  Array x = draw(kRows * kWidth, 1), w = draw(kVocabulary * kWidth, 2);
  const std::vector<int32_t> targets = {0, 16, -1, 5, 6, 11, -1};
  Array d[3] = {draw(kRows, 3), draw(kRows, 4), draw(kRows, 5)};
  Outcome o;
  o.d_w.resize(static_cast<size_t>((end - first) * kWidth));
  OneGradient sink(o.d_w);
  HeapArena arena;
  Tape tape(arena, {.sink = &sink});
  tape.begin_segment("head", -1);
  const Value x_TD = tape.leaf(Tensor::of(x.data(), {kRows, kWidth}), true),
              t = tape.leaf(Tensor::of(targets.data(), {kRows}));
  const Value w_VD = tape.parameter(0, Tensor::of(w.data() + first * kWidth, {end - first, kWidth}));
  const HeadAttr attr{.mode = mode, .entropy = true, .chunk = 3, .cap = {.cap = 4}, .scale = 0.7f};
  HeadResult h;
  if (comm == nullptr) {
    h = head(tape, attr, x_TD, w_VD, t);
  } else {
    const auto from = static_cast<int32_t>(first), count = static_cast<int32_t>(end - first);
    const HeadResult part =
        head(tape, attr, copy_to_axis(tape, comm, x_TD), w_VD, shard_index(tape, {from, count, 0}, t));
    h = merge_vocabulary(tape, comm, part, shard_index(tape, {from, count, -1}, t), t);
  }
  o.logprob = reference::load(h.logprob_T.tensor());
  o.lse = reference::load(h.lse_T.tensor());
  o.entropy = reference::load(h.entropy_T.tensor());
  tape.seed(h.logprob_T, Tensor::of(d[0].data(), {kRows}));
  tape.seed(h.lse_T, Tensor::of(d[1].data(), {kRows}));
  tape.seed(h.entropy_T, Tensor::of(d[2].data(), {kRows}));
  Backward(tape).run();
  o.d_x = reference::load(tape.gradient(x_TD));
  return o;
}

void expect_near(const Array& found, const Array& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-13 * (1 + std::abs(expected[i]))) << what << " " << i;
}

TEST(Vocabulary, PartsEqualTheWhole) {
  for (const HeadMode mode : {HeadMode::store, HeadMode::recompute}) {
    const Outcome one = run_head(mode, nullptr, 0, kVocabulary);
    run_ranks(3, [&](ThreadRank& self) {
      const auto group = self.group("tensor", {0, 1, 2});
      const int64_t first = uneven_begin(kVocabulary, self.rank(), 3),
                    end = uneven_begin(kVocabulary, self.rank() + 1, 3);
      const Outcome part = run_head(mode, group.get(), first, end);
      expect_near(part.logprob, one.logprob, "logprob");
      expect_near(part.lse, one.lse, "lse");
      expect_near(part.entropy, one.entropy, "entropy");
      expect_near(part.d_x, one.d_x, "d_x");
      expect_near(part.d_w, Array(one.d_w.begin() + first * kWidth, one.d_w.begin() + end * kWidth), "d_w");
    });
  }
}

}  // namespace ingot::test::vocabulary_ranks_test
