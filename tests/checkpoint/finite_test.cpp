// A value that is not finite is found while a checkpoint is written: it does not count, and older ones stay.
#include "base/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "checkpoint/reader.h"
#include "support/checkpoint_sample.h"
#include "support/fault_fs.h"

namespace ingot::finite_test {

using test::FaultFs;
using test::kFolder;
using test::message_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Finite, TheFirstValueIsFound) {
  std::vector<float> values(10000, std::numeric_limits<float>::max());
  EXPECT_EQ(first_not_finite(values.data(), 10000, DType::f32), -1);
  for (const int64_t at : {9999, 4096, 4095, 17, 0}) {
    values[static_cast<size_t>(at)] = at % 2 == 0 ? -kInfinity : NAN;
    EXPECT_EQ(first_not_finite(values.data(), 10000, DType::f32), at);
  }
  EXPECT_EQ(first_not_finite(values.data(), 0, DType::f32), -1);
  const double wide[] = {1e308, -1e-308, -NAN};
  EXPECT_EQ(first_not_finite(wide, 2, DType::f64), -1);
  EXPECT_EQ(first_not_finite(wide, 3, DType::f64), 2);
  const bf16 narrow[] = {to_bf16(1.f), to_bf16(kInfinity)};
  EXPECT_EQ(first_not_finite(narrow, 2, DType::bf16), 1);
  EXPECT_EQ(value_at(narrow, 1, DType::bf16), kInfinity);
  const int32_t integers[] = {0x7F800000};
  EXPECT_EQ(first_not_finite(integers, 1, DType::i32), -1);
}

TEST(Finite, SuchASaveIsRefusedAndTheOlderOneStays) {
  for (const bool asynchronous : {true, false}) {
    FaultFs fs;
    std::vector<float> weights(3'000'000, 0.5f);  // more than is written at once
    const Tensor tensor(weights.data(), {3'000'000}, DType::f32);
    CheckpointWriter writer(
        fs, kFolder, {.asynchronous = asynchronous, .retention = {.keep_last = 1}, .require_finite = true});
    const auto save = [&](int64_t step) {
      writer.save({.step = step, .pieces = {Piece::whole("head.weight", TensorKind::weight, tensor)}});
      writer.wait();
    };
    save(1);
    weights[2'500'000] = NAN;
    EXPECT_THROW(save(2), NotFinite);
    EXPECT_MESSAGE(save(2), "step 2 is not saved: 'head.weight' holds nan at element 2500000");
    EXPECT_EQ(fs.list(kFolder), (std::vector<std::string>{"latest", "step-00000001"}));
    weights[2'500'000] = 0;
    save(3);
    EXPECT_EQ(CheckpointReader::open(fs, kFolder).step(), 3);
  }
}

}  // namespace ingot::finite_test
