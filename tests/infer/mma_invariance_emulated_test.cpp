// In bf16 on emulated tensor cores training's forward, prefill in any chunks and token-by-token decoding are
// one function, bit for bit, whatever documents stand beside. Products and attention, over a cache too, are
// those of the tensor cores; convolutions over a cache are the CPU's, whose bits the kernels for whole
// documents have.
#include <gtest/gtest.h>

#include <cmath>

#include "device/gpu/emulator.h"
#include "device/sim/sim_device.h"
#include "ops/head/head.h"
#include "ops/registry.h"
#include "support/model_logprobs.h"
#include "support/sim_orders.h"
#include "support/tape_pass.h"

namespace ingot::test::mma_invariance_emulated_test {

constexpr int64_t kRow = 75;
const std::vector<int64_t> kDocuments = {7, 67, 1, 41, 33, 1};

class MmaInvariance : public ::testing::TestWithParam<std::string> {
 protected:
  MmaInvariance() { set_emulation({.on = true, .seed = 3, .mma = true}); }
  ~MmaInvariance() override { set_emulation({}); }

  Bits training(const data::Batch& batch, HeadMode mode = HeadMode::store) {
    return training_logprobs(*model_, batch, mode, DeviceKind::sim);
  }

  const std::unique_ptr<Model> model_ = small_model(GetParam(), Precision::bf16());
  const data::Batch batch_ = packed_batch(2, kRow, kDocuments, model_->config().vocab);
  const std::vector<Document> documents_ = documents_of(batch_);
};

TEST_P(MmaInvariance, TrainingEqualsPrefillEqualsDecoding) {
  auto before = emulated_launches();
  const Bits all = training(batch_);
  for (const char* kernel : {"mma_product", "mma_attention_forward"})
    EXPECT_GT(emulated_launches()[kernel], before[kernel]) << kernel;
  for (const float v : all) ASSERT_TRUE(std::isfinite(v));
  EXPECT_TRUE(same(all, training(batch_, HeadMode::recompute)));
  CachedSequences sequences(*model_, 1000, LatentDecoding::materialised, DeviceKind::sim);
  for (const Document& d : documents_)
    for (const size_t chunk : {1, 7, 64})
      EXPECT_TRUE(same(part(all, d.begin, d.tokens.size()), scored(sequences, d, chunk)))
          << "document at " << d.begin << " in chunks of " << chunk;
}

/// Where Hopper's instructions take a product they give the same bits, here and in other numbers of rows.
TEST_P(MmaInvariance, HoppersProductsHaveTheSameBits) {
  const Bits all = training(batch_);
  set_emulation({.on = true, .seed = 5, .mma = true, .wgmma = true});
  auto before = emulated_launches();
  EXPECT_TRUE(same(all, training(batch_)));
  EXPECT_GT(emulated_launches()["wgmma_product"], before["wgmma_product"]);
  CachedSequences sequences(*model_, 1000, LatentDecoding::materialised, DeviceKind::sim);
  const Document& d = documents_[3];
  for (const size_t chunk : {1, 7})
    EXPECT_TRUE(same(part(all, d.begin, d.tokens.size()), scored(sequences, d, chunk))) << chunk;
}

TEST_P(MmaInvariance, NeighboursAndMicroBatchesDoNotMatter) {
  const Bits all = training(batch_);
  std::vector<Document> others;
  for (const size_t i : {3, 4, 5, 2, 0, 1}) others.push_back(documents_[i]);
  const data::Batch exchanged = batch_of(others, 2);
  const Bits moved = training(exchanged);
  for (size_t k = 0; k < others.size(); ++k) {
    const Document& d = others[k];
    const Bits own = part(all, d.begin, d.tokens.size());
    EXPECT_TRUE(same(own, part(moved, exchanged.spans[k].begin, d.tokens.size()))) << "exchanged, " << k;
    EXPECT_TRUE(same(own, training(batch_of({d}, 1)))) << "alone, " << k;
  }
}

/// Where logits are so large that log-probabilities show their last bits. Gradients do so everywhere, below.
class MmaChain : public MmaInvariance {};

TEST_P(MmaChain, AnotherOneIsNoticed) {
  // The CPU's products take k in pairs: nearly the same values, other bits.
  const Bits all = training(batch_);
  set_emulation({.on = true, .seed = 3});
  CachedSequences sequences(*model_, 1000, LatentDecoding::materialised, DeviceKind::sim);
  const Document& d = documents_[1];
  const Bits others = scored(sequences, d, 7), own = part(all, d.begin, d.tokens.size());
  EXPECT_FALSE(same(own, others));
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], others[i], 0.3);
}

TEST_P(MmaInvariance, GradientsDoNotDependOnTheOrderOfThreadsAndStreams) {
  std::vector<std::string> first;
  for (const SimOrder& order : {SimOrder{}, SimOrder{true, 1}})
    for (const HeadMode mode : {HeadMode::store, HeadMode::gradient}) {
      set_emulation({.on = true, .seed = order.seed + (mode == HeadMode::store ? 5 : 6), .mma = true});
      const InSimOrder in_order(order);
      HeapArena arena(sim_device());
      const Pass p = pass(*model_, {.device = DeviceKind::sim}, mode, &arena);
      if (first.empty()) first = p.gradients;
      EXPECT_EQ(first, p.gradients) << sim_order_text(order);
    }
  const Pass cpu = pass(*model_, {});
  EXPECT_NE(first, cpu.gradients);
  for (size_t i = 0; i < first.size(); ++i) {
    ASSERT_EQ(first[i].size(), cpu.gradients[i].size());
    std::vector<float> a(first[i].size() / 4), b(a.size());
    std::memcpy(a.data(), first[i].data(), first[i].size());
    std::memcpy(b.data(), cpu.gradients[i].data(), first[i].size());
    double apart = 0, size = 0;
    for (size_t k = 0; k < a.size(); ++k)
      apart += std::pow(double{a[k]} - double{b[k]}, 2), size += std::pow(double{b[k]}, 2);
    EXPECT_LE(apart, 0.01 * size) << model_->decoder().table()[static_cast<int>(i)].name;
  }
}

/// The last has a head whose products are capped.
INSTANTIATE_TEST_SUITE_P(Models, MmaInvariance,
                         ::testing::Values("gpt2", "llama", "moe", "zaya", "llama-unrotated"));
INSTANTIATE_TEST_SUITE_P(Models, MmaChain, ::testing::Values("gpt2", "llama", "moe"));

/// Training's product caps logits, sampling's is followed by an op that does.
TEST(MmaHead, GivesSamplingTheLogitsOfTraining) {
  constexpr int64_t kTokens = 20, kWidth = 32, kVocabulary = 72;
  const Random random(5, RandomPurpose::test, 1);
  std::vector<bf16> x, w;
  for (uint64_t i = 0; i < kTokens * kWidth; ++i) x.push_back(to_bf16(static_cast<float>(random.normal(i))));
  for (uint64_t i = 0; i < kVocabulary * kWidth; ++i)
    w.push_back(to_bf16(static_cast<float>(random.normal(9000 + i))));
  const std::vector<int32_t> targets(kTokens, 3);
  const SoftCap cap{2, 1.5, 2};
  for (const bool wgmma : {false, true}) {
    set_emulation({.on = true, .seed = 3, .mma = true, .wgmma = wgmma});
    auto before = emulated_launches();
    HeapArena arena(sim_device());
    Tape tape(arena, {.device = DeviceKind::sim, .copies_leaves = true, .record = false});
    const Value x_TD = tape.leaf(Tensor::of(x.data(), {kTokens, kWidth})),
                w_VD = tape.leaf(Tensor::of(w.data(), {kVocabulary, kWidth})),
                targets_T = tape.leaf(Tensor::of(targets.data(), {kTokens}));
    const auto head = tape.apply(head_op(), HeadAttr{.mode = HeadMode::store, .cap = cap},
                                 {x_TD, w_VD, targets_T, {}, {}, {}, {}});
    const HostCopy training(head[head_slot::logits].tensor()),
        sampling(head_logits(tape, cap, x_TD, w_VD).tensor());
    EXPECT_EQ(0, std::memcmp(training.as<float>(), sampling.as<float>(), kTokens * kVocabulary * 4)) << wgmma;
    EXPECT_NE(training.as<float>()[0], 0.0f);
    for (const char* kernel : {"activation_forward", "head_statistics"})
      EXPECT_EQ(emulated_launches()[kernel] - before[kernel], 1) << kernel;
    EXPECT_EQ(emulated_launches()["head_logits"], before["head_logits"]);
  }
  set_emulation({});
}

TEST(MmaFingerprint, SaysThatTensorCoresAreOn) {
  const auto on_sim = [](DType compute) { return kernel_set_fingerprint(compute, DeviceKind::sim); };
  const std::string off = on_sim(DType::bf16);
  EXPECT_EQ(off, kernel_set_fingerprint(DType::bf16, DeviceKind::cpu));
  set_emulation({.on = true, .seed = 1});
  EXPECT_EQ(off, on_sim(DType::bf16));
  set_emulation({.on = true, .seed = 1, .mma = true});
  EXPECT_NE(off, on_sim(DType::bf16));
  EXPECT_EQ(off, on_sim(DType::f32)) << "products of f32 do not run on them";
  EXPECT_EQ(off, kernel_set_fingerprint(DType::bf16, DeviceKind::cpu));
  set_emulation({});
  EXPECT_NE(off, kernel_set_fingerprint(DType::bf16, DeviceKind::cuda));
  EXPECT_EQ(off, kernel_set_fingerprint(DType::f32, DeviceKind::cuda));
}

}  // namespace ingot::test::mma_invariance_emulated_test
