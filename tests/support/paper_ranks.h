// Dry runs of every rank of a layout: a model's training pass is recorded on the null device with the axis
// types of its values, to check layouts without memory.
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
  int chunks = 1;  ///< virtual stages of a pipeline rank
  /// The last stage has the loss alone: its layers and multi-token prediction modules are one stage earlier.
  bool loss_alone = false;
};
inline void PrintTo(const PaperLayout& l, std::ostream* out) {
  *out << l.name;
}

/// Every axis and option alone, and mixes.
std::vector<PaperLayout> paper_layouts();
/// Whether a rank lacks rows of its sequences outside attention.
bool cuts_documents(const PaperLayout& layout);
/// Whether the layout divides the model's heads, experts, widths and layers evenly.
bool fits(const ModelConfig& config, const PaperLayout& layout);

/// A rank's coordinates and groups.
struct PaperRank {
  PaperRank(const ParameterTable& table, const PipelineLayout& stages, const PaperLayout& layout, int rank);
  Placement placement() const { return pipe.placement(groups.placement()); }
  RecordingWorld world;
  RankGroups groups;
  PipelineGroups pipe;
};

/// A tape on the null device for one rank's share of two sequences; its parameters have no memory.
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

/// One pass of one rank through one (virtual) stage, given the values that the previous stage sent.
struct PaperStage final : PaperTape {
  PaperStage(const Decoder& decoder, const PaperRank& rank, int stage,
             const std::vector<ValueTypes>& received);
  AxisTypes types;
  std::vector<ValueTypes> sent;

 private:
  std::vector<Value> losses_;
};

/// Reduces the gradients of a rank.
using PaperReduce = std::function<void(PaperRank&, GradientBuffer&)>;
/// The reductions of training (train/step.cpp).
void reduce_as_training_does(const ParameterTable& table, PaperRank& rank, GradientBuffer& gradients);

/// Records the model for every rank. Throws what axis_types() and check_gradient_sums() throw. The ranks of a
/// group must record the same collectives in the same order, and losses must be those of a rank's own rows.
/// `seen` gets every tape.
void check_on_paper(const Decoder& decoder, const PaperLayout& layout, const PaperReduce& reduce = {},
                    const std::function<void(PaperStage&)>& seen = {});

}  // namespace ingot::test
