// Training's forward, scoring, prefill in any chunks and token-by-token decoding are one function, bit for
// bit: for every kind of model, in fp32 and bf16, with other documents and sequences in the batch, on one and
// two threads. The comparison also detects faults: packing without masks, another order of summation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "infer/packed_model.h"
#include "support/model_logprobs.h"
#include "support/other_threads.h"
#include "tape/op.h"

namespace ingot::test::model_invariance_test {

constexpr int64_t kRow = 150;
// Documents at odd offsets, two rows; the long ones cross pages of 64 tokens and tiles of every kernel.
const std::vector<int64_t> kDocuments = {7, 101, 1, 41, 133, 17};

class ModelInvariance : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  ModelInvariance() : before_(kernel_policy()) { set_kernel_policy(KernelPolicy::any); }
  ~ModelInvariance() override { set_kernel_policy(before_); }
  std::unique_ptr<Model> make() const {
    return small_model(std::get<0>(GetParam()),
                       std::get<1>(GetParam()) ? Precision::bf16() : Precision::f32());
  }
  KernelPolicy before_;
};

TEST_P(ModelInvariance, TrainingEqualsScoringInAnyChunks) {
  const auto model = make();
  const data::Batch batch = packed_batch(2, kRow, kDocuments, model->config().vocab);
  const Bits training = training_logprobs(*model, batch, HeadMode::store);
  ASSERT_EQ(training.size(), static_cast<size_t>(2 * kRow));
  for (const float v : training) ASSERT_TRUE(std::isfinite(v));
  EXPECT_TRUE(same(training, training_logprobs(*model, batch, HeadMode::recompute)));
  {
    const OtherThreads others;
    EXPECT_TRUE(same(training, training_logprobs(*model, batch, HeadMode::store))) << "other threads";
  }
  CachedSequences generator(*model);
  for (const Document& d : documents_of(batch))
    for (const size_t chunk : {1, 7, 64, 1000})
      EXPECT_TRUE(same(part(training, d.begin, d.tokens.size()), scored(generator, d, chunk)))
          << "document at " << d.begin << " in chunks of " << chunk;
}

TEST_P(ModelInvariance, PackedWeightsHaveTheBitsOfTraining) {
  const auto model = make();
  const data::Batch batch = packed_batch(2, kRow, kDocuments, model->config().vocab);
  const Bits training = training_logprobs(*model, batch, HeadMode::store);
  const bool narrow = std::get<1>(GetParam());
  PackedModel packed(*model, narrow ? WeightForm::bf16 : WeightForm::f32);
  EXPECT_TRUE(same(training, training_logprobs(packed.model(), batch, HeadMode::recompute)))
      << "whole documents";
  CachedSequences generator(packed.model());
  for (const Document& d : documents_of(batch))
    for (const size_t chunk : {1, 3, 64, 1000})
      EXPECT_TRUE(same(part(training, d.begin, d.tokens.size()), scored(generator, d, chunk)))
          << "document at " << d.begin << " in chunks of " << chunk;
}

TEST_P(ModelInvariance, Int8IsTheModelOfItsRoundedMatrices) {
  const auto model = make();
  const data::Batch batch = packed_batch(2, kRow, kDocuments, model->config().vocab);
  PackedModel packed(*model, WeightForm::int8);
  const Bits whole = training_logprobs(packed.model(), batch, HeadMode::store);
  CachedSequences generator(packed.model());
  for (const Document& d : documents_of(batch))
    for (const size_t chunk : {1, 3, 1000})
      EXPECT_TRUE(same(part(whole, d.begin, d.tokens.size()), scored(generator, d, chunk)))
          << "document at " << d.begin << " in chunks of " << chunk;
  if (std::get<1>(GetParam())) return;
  size_t rounded = 0;
  for (int i = 0; i < model->weights().size(); ++i) {
    const Tensor w = model->weights().master(i);
    const PackedWeights* p = packed.model().weights().compute(i).packed();
    if (p == nullptr) continue;
    rounded += p->type() == DType::u8 ? 1 : 0;
    for (int64_t e = 0; e < p->experts(); ++e)
      for (int64_t n = 0; n < p->n(); ++n) p->column(e, n, w.as<float>() + (e * p->n() + n) * p->k());
  }
  EXPECT_GT(rounded, 3u);
  EXPECT_TRUE(same(whole, training_logprobs(*model, batch, HeadMode::store)));
}

TEST_P(ModelInvariance, NeighboursInThePackingDoNotMatter) {
  const auto model = make();
  const data::Batch batch = packed_batch(2, kRow, kDocuments, model->config().vocab);
  const Bits training = training_logprobs(*model, batch, HeadMode::store);
  const auto documents = documents_of(batch);
  // Each document alone in a batch, and the documents in another order.
  const size_t order[] = {3, 2, 1, 0, 5, 4};
  std::vector<Document> others;
  for (const size_t i : order) others.push_back(documents[i]);
  const data::Batch shuffled = batch_of(others, 2);
  const Bits moved = training_logprobs(*model, shuffled, HeadMode::store);
  for (size_t k = 0; k < 6; ++k) {
    const Document& d = others[k];
    const Bits own = part(training, d.begin, d.tokens.size());
    EXPECT_TRUE(same(own, part(moved, shuffled.spans[k].begin, d.tokens.size())));
    EXPECT_TRUE(same(own, training_logprobs(*model, batch_of({d}, 1), HeadMode::store)));
  }
}

/// Logits after every token of `tokens`, fed in chunks beside `others` sequences that grow at other speeds,
/// by up to `most` tokens a call.
std::vector<Bits> decoded(const Model& model, const std::vector<int32_t>& tokens, size_t chunk, size_t others,
                          bool first, size_t most = 4) {
  CachedSequences g(model, 1000);
  std::vector<SequenceState> states;
  for (size_t s = 0; s <= others; ++s) states.push_back(g.create());
  const size_t mine = first ? 0 : others;
  const Random random(77, RandomPurpose::test);
  std::vector<Bits> out;
  for (size_t at = 0, call = 0; at < tokens.size(); at += chunk, ++call) {
    std::vector<SequenceState*> who;
    std::vector<std::vector<int32_t>> what;
    for (size_t s = 0; s <= others; ++s) {
      who.push_back(&states[s]);
      std::vector<int32_t> extra(1 + (call * 3 + s) % most);
      for (size_t i = 0; i < extra.size(); ++i)
        extra[i] = static_cast<int32_t>(
            random.below(call * 100 + s * 10 + i, static_cast<uint64_t>(model.config().vocab)));
      what.push_back(s == mine ? std::vector<int32_t>(tokens.begin() + static_cast<int64_t>(at),
                                                      tokens.begin() + static_cast<int64_t>(std::min(
                                                                           at + chunk, tokens.size())))
                               : extra);
    }
    const std::vector<std::span<const int32_t>> spans(what.begin(), what.end());
    out.push_back(g.extend(who, spans)[mine]);
  }
  return out;
}

TEST_P(ModelInvariance, DecodingBesideOthersEqualsDecodingAlone) {
  const auto model = make();
  const data::Batch batch = packed_batch(1, 80, {80}, model->config().vocab);
  const auto alone = decoded(*model, batch.tokens, 1, 0, true);
  ASSERT_EQ(alone.size(), 80u);
  const auto compare = [&](const std::vector<Bits>& other, size_t chunk, const char* what) {
    for (size_t i = 0; i < other.size(); ++i)
      EXPECT_TRUE(same(other[i], alone[std::min((i + 1) * chunk, batch.tokens.size()) - 1]))
          << what << ", call " << i;
  };
  compare(decoded(*model, batch.tokens, 1, 2, true), 1, "first of three");
  compare(decoded(*model, batch.tokens, 1, 2, false), 1, "last of three");
  compare(decoded(*model, batch.tokens, 7, 1, true), 7, "chunks of 7, first of two");
  compare(decoded(*model, batch.tokens, 64, 2, false), 64, "chunks of 64, last of three");
  const OtherThreads others;
  compare(decoded(*model, batch.tokens, 7, 2, true), 7, "other threads");
}

TEST_P(ModelInvariance, PackedDecodingBesideOthersEqualsDecodingAlone) {
  const auto model = make();
  const PackedModel packed(*model, std::get<1>(GetParam()) ? WeightForm::bf16 : WeightForm::f32);
  const data::Batch batch = packed_batch(1, 24, {24}, model->config().vocab);
  const auto alone = decoded(*model, batch.tokens, 1, 0, true);
  for (const size_t others :
       {1, 3, 5, 130}) {  // one row each: of few rows, of more, and of more than a block
    const std::vector<int32_t> some(batch.tokens.begin(), batch.tokens.begin() + (others > 100 ? 3 : 24));
    const auto beside = decoded(packed.model(), some, 1, others, false, 1);
    for (size_t i = 0; i < beside.size(); ++i)
      EXPECT_TRUE(same(beside[i], alone[i])) << others << " others, token " << i;
  }
}

TEST_P(ModelInvariance, AMissingMaskIsNoticed) {
  const auto model = make();
  data::Batch batch = packed_batch(2, kRow, kDocuments, model->config().vocab);
  const Bits masked = training_logprobs(*model, batch, HeadMode::store);
  batch.spans = {{0, kRow}, {kRow, 2 * kRow}};  // attention now sees the document before
  const Bits open = training_logprobs(*model, batch, HeadMode::store);
  EXPECT_TRUE(same(part(masked, 0, 7), part(open, 0, 7))) << "the first document has none before it";
  EXPECT_FALSE(same(part(masked, 7, 101), part(open, 7, 101)));
}

TEST_P(ModelInvariance, AnotherOrderOfSummationIsNoticed) {
  // The reference kernels compute the same function and sum in another order and type: nearly the same
  // values, other bits. If these compared equal, the tests above would be blind.
  const auto model = make();
  const data::Batch batch = packed_batch(1, 64, {64}, model->config().vocab);
  const Bits fast = training_logprobs(*model, batch, HeadMode::store);
  set_kernel_policy(KernelPolicy::reference);
  CachedSequences generator(*model);
  const Bits reference = scored(generator, documents_of(batch).front(), 7);
  EXPECT_FALSE(same(fast, reference));
  const double tolerance = std::get<1>(GetParam()) ? 0.3 : 1e-4;
  for (size_t i = 0; i < fast.size(); ++i) EXPECT_NEAR(fast[i], reference[i], tolerance);
}

INSTANTIATE_TEST_SUITE_P(Models, ModelInvariance,
                         ::testing::Combine(::testing::ValuesIn(small_model_names()), ::testing::Bool()),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param) + (std::get<1>(info.param) ? "_bf16" : "_f32");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace ingot::test::model_invariance_test
