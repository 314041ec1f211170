// The head against PyTorch (fixtures of tools/oracle/make_objectives.py): cross entropy with z-loss, DPO and
// distillation as functions of the head's statistics, and their gradients with respect to logits. With the
// identity as the head's weight, hidden states are the logits and have the same gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file_system.h"
#include "checkpoint/safetensors.h"
#include "ops/head/head.h"
#include "ops/reference.h"
#include "support/support.h"
#include "tape/backward.h"
#include "train/objective.h"

namespace ingot::objective_oracle_test {

using reference::Array;

class ObjectiveFixture {
 public:
  explicit ObjectiveFixture(const std::string& name)
      : file_(real_file_system(), test::fixture("objectives/" + name + ".safetensors")) {}
  Array floats(const std::string& name) const { return reference::load(tensor(name)); }
  std::vector<int32_t> ints(const std::string& name) const { return reference::load_ints(tensor(name)); }

 private:
  Tensor tensor(const std::string& name) const {
    const SafetensorsEntry* e = file_.find(name);
    INGOT_CHECK(e != nullptr, "no '{}'", name);
    const auto data = file_.data(*e);
    memory_.emplace_back(data.begin(), data.end());
    Shape shape;
    for (const int64_t n : e->shape) shape.push_back(n);
    return Tensor(memory_.back().data(), shape, *dtype_of_safetensors(e->dtype));
  }
  SafetensorsFile file_;
  mutable std::vector<std::vector<std::byte>> memory_;
};

/// The head over given logits, its statistics, and the gradient that cotangents lead to.
class LogitsHead {
 public:
  LogitsHead(const Array& logits, std::vector<int32_t> targets, const Array& teacher_probabilities = {})
      : targets_(std::move(targets)),
        rows_(static_cast<int64_t>(targets_.size())),
        vocabulary_(static_cast<int64_t>(logits.size()) / rows_),
        logits_(logits.begin(), logits.end()),
        identity_(static_cast<size_t>(vocabulary_ * vocabulary_)),
        teacher_(teacher_probabilities.begin(), teacher_probabilities.end()),
        tape_(arena_, {}) {
    for (int64_t v = 0; v < vocabulary_; ++v) identity_[static_cast<size_t>(v * vocabulary_ + v)] = 1;
    x_ = tape_.leaf(Tensor::of(logits_.data(), {rows_, vocabulary_}), true);
    const Value teacher =
        teacher_.empty() ? Value() : tape_.leaf(Tensor::of(teacher_.data(), {rows_, vocabulary_}));
    head_ = head(tape_, {.mode = HeadMode::store}, x_,
                 tape_.leaf(Tensor::of(identity_.data(), {vocabulary_, vocabulary_})),
                 tape_.leaf(Tensor::of(targets_.data(), {rows_})), teacher);
  }
  std::span<const float> logprob() const { return {head_.logprob_T.tensor().as<float>(), targets_.size()}; }
  std::span<const float> lse() const { return {head_.lse_T.tensor().as<float>(), targets_.size()}; }
  std::span<const float> kl() const { return {head_.kl_T.tensor().as<float>(), targets_.size()}; }
  Array gradient(ObjectiveResult& r) {
    const auto seed = [&](const Value& v, std::vector<float>& d) {
      if (!d.empty()) tape_.seed(v, Tensor::of(d.data(), {rows_}));
    };
    seed(head_.logprob_T, r.d_logprob);
    seed(head_.lse_T, r.d_lse);
    seed(head_.kl_T, r.d_kl);
    Backward(tape_).run();
    return reference::load(tape_.gradient(x_));
  }

 private:
  std::vector<int32_t> targets_;
  int64_t rows_, vocabulary_;
  std::vector<float> logits_, identity_, teacher_;
  HeapArena arena_;
  Tape tape_;
  Value x_;
  HeadResult head_;
};

void expect_close(const Array& found, const Array& expected, double scale_found) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] * scale_found - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  EXPECT_LE(worst, 1e-5 * largest);
}

Array softmax_rows(const Array& logits, size_t width) {
  Array p(logits.size());
  for (size_t t = 0; t < logits.size(); t += width) {
    double top = logits[t], sum = 0;
    for (size_t v = 0; v < width; ++v) top = std::max(top, logits[t + v]);
    for (size_t v = 0; v < width; ++v) sum += p[t + v] = std::exp(logits[t + v] - top);
    for (size_t v = 0; v < width; ++v) p[t + v] /= sum;
  }
  return p;
}

TEST(Objectives, CrossEntropyWithZLoss) {
  const ObjectiveFixture f("head");
  const auto targets = f.ints("targets");
  LogitsHead head(f.floats("logits"), targets);
  double valid = 0;
  for (const int32_t t : targets) valid += t >= 0;
  ObjectiveResult r = cross_entropy(head.logprob(), head.lse(), targets, 0.01);
  EXPECT_NEAR(r.loss / valid, f.floats("cross_entropy")[0] + 0.01 * f.floats("z_loss")[0], 1e-5);
  expect_close(head.gradient(r), f.floats("with_z.grad_logits"), 1 / valid);
}

TEST(Objectives, DirectPreference) {
  const ObjectiveFixture f("preference");
  const auto targets = f.ints("targets"), starts = f.ints("document_starts");
  LogitsHead policy(f.floats("logits"), targets), frozen(f.floats("reference_logits"), targets);
  std::vector<int32_t> sequence(targets.size(), -1);
  for (size_t d = 0; d < starts.size(); ++d) {
    const auto end = d + 1 < starts.size() ? static_cast<size_t>(starts[d + 1]) : targets.size();
    for (auto t = static_cast<size_t>(starts[d]); t < end; ++t)
      if (targets[t] >= 0) sequence[t] = static_cast<int32_t>(d);
  }
  ObjectiveResult r = dpo(policy.logprob(), frozen.logprob(), sequence, 0.1);
  double total = 0;
  for (const double pair : f.floats("dpo.loss_per_pair")) total += pair;
  EXPECT_NEAR(r.loss, total, 1e-5 * total);
  const double pairs = static_cast<double>(f.floats("dpo.loss_per_pair").size());
  expect_close(policy.gradient(r), f.floats("dpo.grad_logits"), 1 / pairs);
}

TEST(Objectives, ForwardDivergenceToATeacher) {
  const ObjectiveFixture f("distillation");
  const auto valid = f.ints("valid");
  std::vector<int32_t> targets;
  double count = 0;
  for (const int32_t v : valid) targets.push_back(v != 0 ? 0 : -1), count += v != 0;
  const Array student = f.floats("student_logits");
  LogitsHead head(student, targets,
                  softmax_rows(f.floats("teacher_logits"), student.size() / targets.size()));
  ObjectiveResult r = distillation(head.logprob(), head.kl(), targets, 1.0);
  EXPECT_NEAR(r.loss / count, f.floats("forward_kl.1.loss")[0], 1e-5);
  expect_close(head.gradient(r), f.floats("forward_kl.1.grad_logits"), 1 / count);
}

}  // namespace ingot::objective_oracle_test
