// The values that pipeline stages send, as the dry run finds them, against the rules that the model's options
// imply, for every preset, every small model, and combinations of the options that change the stream.
#include "models/stage_boundary.h"

#include <gtest/gtest.h>

#include "models/presets.h"
#include "support/small_models.h"

namespace ingot::test::stage_boundary_test {

constexpr int64_t kRows = 24;

struct Expected {
  std::vector<TensorMeta> metas;
  MergeKind merge = MergeKind::none;
};

Expected expected(const ModelConfig& m, const BoundaryPosition& at, int64_t depths) {
  const TensorMeta stream{{kRows, m.width}, DType::f32}, output{{kRows, m.width}, DType::bf16};
  Expected e;
  if (at.modules > 0) {
    const int64_t done = std::min(m.mtp.shared ? m.mtp.depths : at.modules, depths);
    if (done < depths) e.metas.push_back(stream);
    e.metas.insert(e.metas.end(), static_cast<size_t>(1 + done), output);
    return e;
  }
  const int64_t layer = at.layer;
  const bool scaled = m.residual == ResidualKind::scaled;
  const bool left_skip = m.unet_skips && layer - 1 < m.layers / 2;
  const bool deferred =
      layer > 0 ? !left_skip
                : m.position == PositionKind::learned && !m.embedding_norm && !m.input_mix && !scaled;
  e.metas.push_back(stream);
  if (deferred) e.metas.push_back(layer > 0 ? output : stream);
  if (m.moe.experts > 0 && m.moe.router == RouterKind::zaya && layer > 0 && layer < m.layers &&
      m.is_moe(layer - 1))
    e.metas.push_back({{kRows, m.moe.router_width}, DType::f32});
  if (m.input_mix && layer < m.layers) e.metas.push_back(stream);
  if (m.unet_skips)
    e.metas.insert(e.metas.end(), static_cast<size_t>(std::min(layer, m.layers - layer)), stream);
  if (layer > 0 && deferred) e.merge = scaled ? MergeKind::scaled : MergeKind::add;
  if (layer == 0)
    e.merge = deferred ? MergeKind::add : scaled && !m.embedding_norm ? MergeKind::affine : MergeKind::none;
  return e;
}

void check(const ModelConfig& m, const std::string& name) {
  const Decoder decoder(m);
  for (const int64_t depths : {int64_t{0}, m.mtp.depths}) {
    const StageBoundaries& boundaries = decoder.boundaries(Precision::bf16(), depths);
    std::vector<BoundaryPosition> positions;
    for (int64_t layer = 0; layer <= m.layers; ++layer) positions.push_back({layer, 0});
    for (int64_t module = 1; module <= m.mtp.modules(); ++module) positions.push_back({m.layers, module});
    for (const BoundaryPosition& at : positions) {
      const std::string where =
          fmt::format("{}, {} depths, layer {}, module {}", name, depths, at.layer, at.modules);
      const Expected e = expected(m, at, depths);
      const std::vector<TensorMeta> metas = boundaries.at(at).metas(kRows);
      ASSERT_EQ(metas.size(), e.metas.size()) << where;
      for (size_t i = 0; i < metas.size(); ++i)
        EXPECT_EQ(metas[i].str(), e.metas[i].str()) << where << " " << i;
      const Stream s = boundaries.at(at).resume(std::vector<Value>(metas.size()), {});
      EXPECT_EQ(s.merge, e.merge) << where;
    }
  }
}

TEST(StageBoundary, PresetsSendWhatTheirOptionsImply) {
  for (const std::string& name : preset_names()) {
    ModelConfig m = model_preset(name);
    if (m.vocab == 0) m.vocab = 256;
    check(m, name);
  }
}

TEST(StageBoundary, SmallModelsSendWhatTheirOptionsImply) {
  for (const std::string& name : small_model_names()) check(small_model_config(name), name);
}

/// Options of the embedding and of the stream in every combination that a model may have.
TEST(StageBoundary, CombinationsOfOptionsSendWhatTheyImply) {
  int checked = 0;
  for (const char* name : {"gpt2", "llama", "moe", "zaya", "mtp"})
    for (int options = 0; options < 32; ++options) {
      ModelConfig m = small_model_config(name);
      m.layers = 4;
      if (options & 1)
        m.position = m.position == PositionKind::learned ? PositionKind::rope : PositionKind::learned;
      if (options & 2) m.embedding_norm = true;
      if (options & 4) m.input_mix = true;
      if (options & 8) m.unet_skips = true;
      if (options & 16)
        m.residual = m.residual == ResidualKind::scaled ? ResidualKind::plain : ResidualKind::scaled;
      const ConfigNode tree = to_node(m);
      ConfigErrors errors(tree);
      check_config(m, errors);
      try {
        errors.throw_if_any();
      } catch (const Error&) {
        continue;
      }
      check(m, fmt::format("{} {}", name, options));
      ++checked;
    }
  EXPECT_GT(checked, 40);
}

}  // namespace ingot::test::stage_boundary_test
