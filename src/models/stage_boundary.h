// The values that one stage of the model sends to the next, found by a dry run: the whole model is recorded
// once on the null device, and a value of the stream is live at a boundary if an op after it reads the value.
#pragma once
#include <compare>
#include <map>

#include "models/stage.h"

namespace ingot {

/// Where a pipeline may divide the model: before a layer or after the last one (`modules` 0), or, with
/// multi-token prediction, after the final norm and so many modules.
struct BoundaryPosition {
  int64_t layer = 0, modules = 0;
  auto operator<=>(const BoundaryPosition&) const = default;
};
BoundaryPosition position_before(const StageParts& parts);
BoundaryPosition position_after(const StageParts& parts);

/// How many depths a pass predicts ahead: multi-token prediction modules run in training only.
int64_t predicted_depths(const ModelConfig& config, const TapeOptions& tape);

/// One boundary. Values are in the order of Stream::visit.
class StageBoundary {
 public:
  /// Shapes and types of the live values for `rows` rows of the stream.
  std::vector<TensorMeta> metas(int64_t rows) const;
  /// The live values of a stream at this boundary.
  std::vector<Value> live_values(const Stream& stream) const;
  /// The stream of the next stage: `values` are the live values, `ids_T` comes from the batch.
  Stream resume(const std::vector<Value>& values, const Value& ids_T) const;

 private:
  friend class StageBoundaries;
  /// Without values: the lengths of its lists and the deferred merge.
  Stream stream_;
  struct LiveValue {
    size_t index;  ///< among all values of the stream
    int64_t width;
    DType dtype;
  };
  std::vector<LiveValue> live_;
};

class StageBoundaries {
 public:
  StageBoundaries(const Decoder& decoder, const Precision& precision, int64_t depths);
  const StageBoundary& at(const BoundaryPosition& position) const { return boundaries_.at(position); }

 private:
  std::map<BoundaryPosition, StageBoundary> boundaries_;
};

}  // namespace ingot
