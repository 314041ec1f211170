// A small training state for checkpoint tests: tensors of every kind and type, cut into odd pieces, whose
// values are a function of (seed, name, global index). So a reader's answer can be checked without keeping
// what was saved.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "base/philox.h"
#include "checkpoint/writer.h"
#include "support/support.h"

namespace ingot::test {

/// Byte `index` of a tensor's elements.
inline uint8_t sample_byte(uint64_t seed, const std::string& name, int64_t index) {
  return static_cast<uint8_t>(
      Random(seed, RandomPurpose::test, hash64(name)).bits(static_cast<uint64_t>(index / 4)) >>
      (8 * (index % 4)));
}

struct SampleState {
  std::vector<std::vector<uint8_t>> memory;
  SaveRequest request;

  /// Adds a tensor cut at `cuts` along its first and at half along its second dimension.
  void add(uint64_t seed, const std::string& name, TensorKind kind, DType dtype, const Shape& shape,
           const std::vector<int64_t>& cuts) {
    std::vector<Region> regions{Region::whole(shape)};
    if (!cuts.empty()) {
      regions.clear();
      int64_t begin = 0;
      for (size_t i = 0; i <= cuts.size(); ++i) {
        const int64_t end = i < cuts.size() ? cuts[i] : shape[0];
        const int64_t middle = shape.rank() > 1 ? shape[1] / 2 : 0;
        if (shape.rank() == 1) regions.push_back({{begin}, {end - begin}});
        if (shape.rank() == 2) {
          regions.push_back({{begin, 0}, {end - begin, middle}});
          regions.push_back({{begin, middle}, {end - begin, shape[1] - middle}});
        }
        begin = end;
      }
    }
    for (const Region& region : regions) {
      const int64_t bytes = size_of(dtype);
      std::vector<uint8_t>& data = memory.emplace_back(static_cast<size_t>(region.shape.numel() * bytes) + 1);
      const int64_t columns = region.shape.rank() > 1 ? region.shape[1] : region.shape.numel();
      for (int64_t i = 0; i < region.shape.numel(); ++i) {
        const int64_t global = region.shape.rank() > 1 ? (region.offset[0] + i / columns) * shape[1] +
                                                             region.offset[1] + i % columns
                               : region.shape.rank() == 1 ? region.offset[0] + i
                                                          : 0;
        for (int64_t b = 0; b < bytes; ++b)
          data[static_cast<size_t>(i * bytes + b)] = sample_byte(seed, name, global * bytes + b);
      }
      request.pieces.push_back({name, kind, dtype, shape, region, data.data()});
    }
  }
};

inline SampleState sample_state(int64_t step) {
  const auto seed = static_cast<uint64_t>(step);
  SampleState s;
  s.request.step = step;
  s.add(seed, "embed.weight", TensorKind::weight, DType::f32, Shape{37, 8}, {5, 6, 30});
  s.add(seed, "layers.0.norm", TensorKind::weight, DType::bf16, Shape{19}, {7});
  s.add(seed, "temperature", TensorKind::weight, DType::f64, Shape{}, {});
  s.add(seed, "embed.weight.momentum", TensorKind::optimizer, DType::f32, Shape{37, 8}, {});
  s.add(seed, "router.bias", TensorKind::buffer, DType::i64, Shape{5}, {});
  s.add(seed, "nothing", TensorKind::buffer, DType::u8, Shape{0, 3}, {});
  s.request.blobs = {{"sampler", "{\"position\": " + std::to_string(step * 1000) + "}"},
                     {"config", "{\"lr\": 0.1}"}};
  return s;
}

inline const std::string kFolder = "/run/checkpoints";

inline SaveReport save_now(FileSystem& fs, const SaveRequest& request, CheckpointWriterOptions options = {}) {
  CheckpointWriter writer(fs, kFolder, std::move(options));
  writer.save(request);
  return writer.wait().value();
}

}  // namespace ingot::test

#define EXPECT_MESSAGE(body, part)                                                    \
  do {                                                                                \
    const std::string message = ::ingot::test::message_of([&] { body; });             \
    EXPECT_NE(message.find(part), std::string::npos) << "found: '" << message << "'"; \
  } while (false)
