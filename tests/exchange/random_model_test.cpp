// Random weights in a model's shape: values by (seed, name, element), the same in memory and on disk, and
// `ingot model --random`.
#include "exchange/random_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "exchange/stored_model.h"
#include "infer/packed_model.h"
#include "models/presets.h"
#include "support/cached_sequences.h"
#include "support/support.h"
#include "support/tiny_run.h"

namespace ingot::test::random_model_test {

ModelConfig small() {
  ModelConfig m = model_preset("zaya-tiny");
  m.vocab = 50, m.layers = 2;
  return m;
}

std::vector<float> values(const ParameterSpec& spec, uint64_t seed, int64_t first, int64_t count) {
  std::vector<float> v(static_cast<size_t>(count));
  random_values(spec, seed, first, Tensor::of(v.data(), {count}));
  return v;
}

TEST(RandomValues, FollowFromSeedNameAndElement) {
  ParameterSpec spec;
  spec.name = "layers.0.mlp.up.weight";
  spec.shape = {300, 400};
  spec.init = {Init::Kind::normal, 0.02};
  const int64_t count = spec.shape.numel();
  const std::vector<float> all = values(spec, 7, 0, count);
  const std::vector<float> tail = values(spec, 7, 1001, count - 1001);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), all.begin() + 1001));
  double sum = 0, squares = 0;
  for (const float x : all) sum += x, squares += static_cast<double>(x) * x;
  const double n = static_cast<double>(count);
  EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n));  // five standard errors
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.02 * 5 / std::sqrt(n));
  EXPECT_NE(values(spec, 8, 0, 8), values(spec, 7, 0, 8));
  spec.name = "layers.1.mlp.up.weight";
  EXPECT_NE(values(spec, 7, 0, 8), std::vector<float>(all.begin(), all.begin() + 8));
  spec.init = {Init::Kind::constant, 1.5};
  EXPECT_EQ(values(spec, 7, 3, 2), (std::vector<float>{1.5f, 1.5f}));
}

std::vector<float> scores(const PackedModel& packed) {
  CachedSequences generator(packed.model());
  SequenceState sequence = generator.create();
  const std::vector<int32_t> tokens = {1, 5, 3, 2, 8, 1, 0, 4, 49}, targets = {5, 3, 2, 8, 1, 0, 4, 49, 7};
  return generator.score(sequence, tokens, targets);
}

TEST(RandomModel, OnDiskIsTheOneInMemory) {
  const TempDir folder;
  const std::string path = write_random_model(real_file_system(), small(), DType::f32, 3, folder / "f32");
  EXPECT_EQ(path, folder / "f32/checkpoints/step-00000000");
  const StoredModel stored = open_stored_model(real_file_system(), folder / "f32");
  EXPECT_TRUE(stored.imported);
  const std::vector<float> expected = scores(PackedModel(small(), WeightForm::f32, 3));
  EXPECT_EQ(scores(PackedModel(stored)), expected);
  EXPECT_NE(scores(PackedModel(small(), WeightForm::f32, 4)), expected);
  for (const float s : expected) EXPECT_LT(s, 0);
}

TEST(RandomModel, InBf16EveryTensorIsTheRoundedOne) {
  const TempDir folder;
  write_random_model(real_file_system(), small(), DType::bf16, 3, folder / "bf16");
  const StoredModel stored = open_stored_model(real_file_system(), folder / "bf16");
  EXPECT_EQ(stored.precision.compute, DType::bf16);
  const Decoder decoder(small());
  for (int i = 0; i < decoder.table().size(); ++i) {
    const ParameterSpec& spec = decoder.table()[i];
    const std::vector<float> exact = values(spec, 3, 0, spec.shape.numel());
    std::vector<float> found(exact.size());
    ASSERT_EQ(stored.reader.tensors().at(spec.name).meta.dtype, DType::bf16) << spec.name;
    stored.reader.read(spec.name, Region::whole(spec.shape), DType::f32, found.data());
    for (size_t k = 0; k < exact.size(); ++k)
      ASSERT_EQ(found[k], to_float(to_bf16(exact[k]))) << spec.name << " " << k;
  }
}

TEST(RandomModel, LeavesWhatIsThere) {
  const TempDir folder;
  write_text(folder / "mine.txt", "mine");
  EXPECT_THROW(write_random_model(real_file_system(), small(), DType::bf16, 1, folder.path()), Error);
  EXPECT_EQ(read_text(folder / "mine.txt"), "mine");
}

TEST(RandomModel, TheProgramWritesOneThatOpens) {
  const TempDir folder;
  const ProcessResult r = run_process(
      {INGOT_BINARY, "model", "zaya-tiny", "--random=" + folder / "model", "--dtype=f32", "--seed=5"});
  ASSERT_EQ(r.exit_code, 0) << r.output;
  EXPECT_NE(r.output.find(folder / "model/checkpoints/step-00000000"), std::string::npos) << r.output;
  const StoredModel stored = open_stored_model(real_file_system(), folder / "model");
  EXPECT_EQ(stored.config.vocab, 8192);
  EXPECT_EQ(scores(PackedModel(stored)), scores(PackedModel(stored.config, WeightForm::f32, 5)));
  const ProcessResult wrong =
      run_process({INGOT_BINARY, "model", "zaya-tiny", "--random=" + folder / "next", "--dtype=int4"});
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_NE(wrong.output.find("bf16 or f32"), std::string::npos) << wrong.output;
}

}  // namespace ingot::test::random_model_test
