// Runs a small model forward and backward on a tape with chosen options: for tests that options change
// nothing but memory and time.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/small_models.h"
#include "support/support.h"
#include "tape/backward.h"
#include "train/objective.h"
#include "train/step.h"

namespace ingot::test {

class AnyKernel : public ::testing::Test {
 protected:
  AnyKernel() : before_(kernel_policy()) { set_kernel_policy(KernelPolicy::any); }
  ~AnyKernel() override { set_kernel_policy(before_); }
  KernelPolicy before_;
};

/// The outcome of one forward and backward pass.
struct Pass {
  std::vector<std::string> gradients;  ///< bytes, by parameter; "" where nothing was written
  int64_t peak = 0, live_after = 0;
  size_t segments = 0;
  std::vector<int> finished;  ///< in order
};

inline const std::vector<int64_t> kDocuments = {5, 27, 1, 31};

/// Fills memory with NaN when it is allocated and when it is released, so that wrong reads show in the
/// results.
class PoisonArena final : public Arena {
 public:
  Block allocate(int64_t bytes, const char* category) override {
    const Block b = heap_.allocate(bytes, category);
    if (b.data != nullptr) std::memset(b.data, 0xFF, static_cast<size_t>(b.bytes));
    count(b.bytes);
    return b;
  }
  void release(const Block& b) override {
    if (b.data != nullptr) std::memset(b.data, 0xFF, static_cast<size_t>(b.bytes));
    count(-b.bytes);
    heap_.release(b);
  }

 private:
  HeapArena heap_;
};

inline Pass pass(Model& model, TapeOptions options, HeadMode head = HeadMode::store, Arena* arena = nullptr) {
  HeapArena heap;
  Arena& memory = arena != nullptr ? *arena : heap;
  Pass p;
  GradientBuffer gradients(model.decoder().table(), {}, DType::f32);
  gradients.on_finished = [&](int i) { p.finished.push_back(i); };
  options.sink = &gradients;
  const data::Batch batch = packed_batch(1, 64, kDocuments, model.config().vocab);
  const std::vector<ShiftedTargets> ahead = shifted_targets(batch, model.config().mtp);
  const MicroBatch mb = micro_batch(batch, 0, 1, ahead);
  const std::vector<float> d(64, -1.0f);
  const float aux = 0.5f;
  {
    Tape tape(memory, options);
    Context c{tape, model.weights(), &mb.rows, tape.leaf(mb.positions)};
    model.equip(c);
    {
      const Decoder& decoder = model.decoder();
      std::vector<BalanceLosses> balance;
      Stream s = decoder.embed(c, tape.leaf(mb.ids));
      decoder.blocks(c, s, 0, decoder.config().layers, balance);
      decoder.finish(c, s);
      const auto predict = [&](const Tensor& targets) {
        const Value weight_T = head == HeadMode::gradient ? tape.leaf(Tensor::of(d.data(), {64})) : Value();
        const HeadResult h = decoder.head(c, {.mode = head}, std::exchange(s.hidden_TD.back(), {}),
                                          tape.leaf(targets), {}, weight_T);
        tape.seed(h.logprob_T, Tensor::of(d.data(), {64}));
      };
      predict(mb.targets);
      for (const MtpInputs& a : mb.mtp) {
        decoder.predict_ahead(c, s, tape.leaf(a.ids), balance);
        predict(a.targets);
      }
      for (const BalanceLosses& b : balance) {
        tape.seed(b.aux, Tensor::of(&aux, {1}));
        if (b.sequence.defined()) tape.seed(b.sequence, Tensor::of(&aux, {1}));
      }
    }
    Backward backward(tape);
    while (backward.next() != nullptr) {
      ++p.segments;
      backward.advance();
    }
    backward.run_deferred();
    EXPECT_EQ(p.segments, tape.segments().size());
  }
  p.peak = memory.peak_bytes();
  p.live_after = memory.live_bytes();
  for (int i = 0; i < model.weights().size(); ++i) {
    const Tensor g = gradients.gradient(i);
    p.gradients.emplace_back(
        gradients.written(i) ? std::string(static_cast<char*>(g.data), static_cast<size_t>(g.bytes())) : "");
  }
  return p;
}

inline Pass pass(const std::string& name, TapeOptions options = {}) {
  const auto model = small_model(name, Precision::f32());
  return pass(*model, options);
}

/// Names of the parameters whose gradients differ.
inline std::string differing(const Pass& a, const Pass& b, const std::string& name) {
  const Decoder decoder(small_model_config(name));
  std::string text;
  for (size_t i = 0; i < a.gradients.size(); ++i)
    if (a.gradients[i] != b.gradients[i]) text += decoder.table()[static_cast<int>(i)].name + " ";
  return text;
}

}  // namespace ingot::test
