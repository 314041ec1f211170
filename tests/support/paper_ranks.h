// Ranks on paper: a model's training pass recorded on the null device for every rank of a layout, with the types of its values.
#pragma once
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "models/stage_boundary.h"
#include "parallel/gradient_reducer.h"
#include "parallel/gradient_sums.h"
#include "parallel/pipeline_groups.h"

namespace ingot::test {

struct PaperLayout {
  std::string name;
  GridShape grid;
  RankOptions options = {};
  int chunks = 1;  ///< stages of a pipeline rank
  bool loss_alone =
      false;  ///< the last stage's layers and modules of multi-token prediction stand in the one before
};
inline void PrintTo(const PaperLayout& l, std::ostream* out) {
  *out << l.name;
}

/// Every axis and form alone, and mixes.
std::vector<PaperLayout> paper_layouts();
/// Whether a rank lacks rows of its sequences outside of attention.
bool cuts_documents(const PaperLayout& layout);
/// Whether heads, experts, widths and layers can be shared out so.
bool fits(const ModelConfig& config, const PaperLayout& layout);

/// A rank's place.
struct PaperRank {
  PaperRank(const ParameterTable& table, const PipelineLayout& stages, const PaperLayout& layout, int rank);
  Placement placement() const { return pipe.placement(groups.placement()); }
  RecordingWorld world;
  RankGroups groups;
  PipelineGroups pipe;
};

/// A tape on the null device, of a rank whose parameters have no memory, for its share of two sequences.
struct PaperTape {
  PaperTape(const ParameterTable& table, const PaperRank& rank);
  int64_t rows() const { return chunks ? chunks->count() : whole.count; }
  Value leaf(const Shape& shape, DType type, bool requires_grad = false);
  BatchLayout whole;
  std::vector<int32_t> positions;
  std::optional<ContextRows> chunks;
  WeightSet weights;
  GradientBuffer sink;
  CountingArena arena;
  Tape tape;
  Context c;
};

/// One pass of one rank through one (virtual) stage, from what the stage before sent.
struct PaperStage final : PaperTape {
  PaperStage(const Decoder& decoder, const PaperRank& rank, int stage,
             const std::vector<ValueTypes>& received);
  AxisTypes types;
  std::vector<ValueTypes> sent;

 private:
  std::vector<Value> losses_;
};

/// What a rank does to its gradients.
using PaperReduce = std::function<void(PaperRank&, GradientBuffer&)>;
/// What training does (train/step.cpp).
void reduce_as_training_does(const ParameterTable& table, PaperRank& rank, GradientBuffer& gradients);

/// Records the model for every rank. Throws what axis_types() and check_gradient_sums() throw; the ranks of a group must record the
/// same collectives in the same order, and losses must be those of own rows. `seen`: every tape.
void check_on_paper(const Decoder& decoder, const PaperLayout& layout, const PaperReduce& reduce = {},
                    const std::function<void(PaperStage&)>& seen = {});

}  // namespace ingot::test
