// Which parts of a model stand in which virtual stage of a pipeline, and the text that says so.
//
//   layout := stage ('|' stage)*      stage := symbol*      symbol := E | t | m | L
//
// E: embedding; t: a layer of the decoder; m: a module of multi-token prediction; L: final norm, head and
// loss. Commas mean nothing. Repetition is textual: first every `(text)*n`, which has no parentheses inside,
// becomes n copies of the text; then every `c*n` n copies of the character c; `|` may be repeated too.
// Virtual stage s is chunk s / ranks of rank s % ranks. So "Et*3|(tt|)*29,m|L" over 16 ranks are 32 stages
// with 61 layers. Source: spec megatron-moe §1.16.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

/// The parts of one virtual stage; all zero is a stage that passes values on.
struct StageParts {
  bool embedding = false;
  int64_t first_layer = 0, layers = 0;
  int64_t first_module = 0, modules = 0;  ///< of multi-token prediction
  bool loss = false;
  bool operator==(const StageParts&) const = default;
};

/// As Placement::parts.
std::vector<int64_t> layer_groups_of(const StageParts& stage);

struct PipelineLayout {
  int ranks = 1;
  std::vector<StageParts> stages;  ///< virtual stages in the order of the model

  int chunks() const { return static_cast<int>(stages.size()) / ranks; }
  const StageParts& at(int rank, int chunk) const {
    return stages[static_cast<size_t>(chunk * ranks + rank)];
  }
  std::vector<int64_t> layer_groups_of(int rank) const;
  std::string str() const;  ///< the text without repetitions of groups: "Et*3|t*2|L"
  bool operator==(const PipelineLayout&) const = default;
};

/// Throws Error that says where and what, for text that is no layout, for another number of layers or modules
/// than the model has, and for layouts that cannot run: E first and L last, each once; every t before any m;
/// m only in the last chunk of a rank; the number of stages a multiple of the ranks, each rank with something
/// to hold.
PipelineLayout parse_pipeline_layout(std::string_view text, int ranks, int64_t layers, int64_t modules);

/// Layers shared out evenly, the remainder to the stages in the middle, since the first embeds and the last
/// has the head and the modules. Throws Error where a stage would be without a layer.
PipelineLayout even_pipeline_layout(int ranks, int chunks, int64_t layers, int64_t modules);

}  // namespace ingot
