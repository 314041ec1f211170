// The layout of a pipeline: which parts of the model are in which virtual stage, and the text that says so.
//
//   layout := stage ('|' stage)*      stage := symbol*      symbol := E | t | m | L
//
// E is the embedding, t a layer of the decoder, m a multi-token prediction module, L final norm, head and
// loss. Commas are ignored. Repetition is textual: first every `(text)*n`, without nested parentheses,
// becomes n copies of the text; then every `c*n` becomes n copies of the character c; `|` may be repeated
// too. Virtual stage s is chunk s / ranks of rank s % ranks. So "Et*3|(tt|)*29,m|L" over 16 ranks has 32
// stages with 61 layers. Source: Megatron Core's pipeline-model-parallel-layout, [Megatron-MoE].
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/stage.h"

namespace ingot {

/// The layer groups of a stage, in the order of the model (nn/parameter.h).
std::vector<int64_t> layer_groups_of(const StageParts& stage);

struct PipelineLayout {
  int ranks = 1;
  std::vector<StageParts> stages;  ///< virtual stages, in the order of the model

  int chunks() const { return static_cast<int>(stages.size()) / ranks; }
  const StageParts& at(int rank, int chunk) const {
    return stages[static_cast<size_t>(chunk * ranks + rank)];
  }
  int64_t layers_of(int rank) const;
  std::vector<int64_t> layer_groups_of(int rank) const;
  std::string str() const;  ///< the text without repetitions of groups: "Et*3|t*2|L"
  bool operator==(const PipelineLayout&) const = default;
};

/// Throws Error that says where and what is wrong: text that is no layout, another number of layers or
/// modules than the model has, or a layout that cannot run. E must be first and L last, each once; every t
/// before any m; m only in the last chunk of a rank; the number of stages a multiple of the ranks; and every
/// rank must have something.
PipelineLayout parse_pipeline_layout(std::string_view text, int ranks, int64_t layers, int64_t modules);

/// Layers divided evenly; the remainder goes to the stages in the middle, since the first also has the
/// embedding and the last the head and the modules. Throws Error where a stage would have no layer.
PipelineLayout even_pipeline_layout(int ranks, int chunks, int64_t layers, int64_t modules);

}  // namespace ingot
