// Opens a model for inference: each matrix that products read is in memory once, packed into panels
// (WeightFormat), in the model's compute type, in f32 if it multiplies f32 rows, or as int8. Masters are read
// from a mapped checkpoint one parameter at a time and freed again, so the peak of memory is all packed
// weights and one master.
//
// Results have the bits of the model as training runs it; with int8 the bits of the model whose matrices are
// the ones that were rounded to int8 (docs/numerics.md rule 9). Not thread-safe while it opens; const methods
// are thread-safe.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "device/gemm/gemm.h"
#include "exchange/stored_model.h"
#include "models/model.h"

namespace ingot {

/// The type in which matrices are stored. int8: numbers with block scales; routers, adapters and vectors keep
/// the model's own precision.
enum class WeightForm : uint8_t { f32, bf16, int8 };
constexpr auto enum_names(WeightForm) {
  return names_in_order<WeightForm>("f32", "bf16", "int8");
}

class PackedModel {
 public:
  /// The weights of a checkpoint; without a form in the precision that the model was trained in.
  explicit PackedModel(const StoredModel& stored, std::optional<WeightForm> form = {});
  /// A copy of a model in memory.
  PackedModel(const Model& from, WeightForm form);
  /// Random matrices for measurements: uniform, with the standard deviation of initial values, and much
  /// faster to make. With int8 the model computes in f32.
  PackedModel(const ModelConfig& config, WeightForm form, uint64_t seed);

  /// Takes over the weights of a model of the same configuration, an update of the one it was made from: into
  /// the same memory. Not while a forward pass runs.
  void refresh(const Model& from);

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  /// Memory of all weights.
  int64_t bytes() const { return bytes_; }
  /// Bytes of weights that one token reads. Of an expert layer top_k experts count; the embedding counts only
  /// if the head is tied to it.
  int64_t bytes_per_token() const { return bytes_per_token_; }

 private:
  /// What the ops of a forward pass read a parameter as.
  struct Use {
    bool product = false, lookup = false, other = false;
    bool f32_rows = false;  ///< the rows that the product multiplies by it are f32 in every precision
    bool packs() const { return product && !other; }
  };
  struct PackedParameter {
    PackedWeights weights;
    WeightFormat format;
  };
  PackedModel(const ModelConfig& config, const Precision& precision, bool int8);
  static std::vector<Use> uses_of(const Model& model);
  void copy_from(const Model& from);
  void store(int i);
  int64_t pack(int i);

  std::unique_ptr<Model> model_;
  bool int8_ = false;
  std::vector<Use> uses_;                  ///< by parameter
  std::map<int, PackedParameter> packed_;  ///< by parameter; tensors point to its formats
  int64_t bytes_ = 0, bytes_per_token_ = 0;
};

}  // namespace ingot
