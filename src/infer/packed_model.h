// A model opened for inference: every matrix that products read lies in memory once, packed for them
// (device/gemm/gemm.h), in the model's compute type (in f32 where their rows are f32 in every precision) or as
// int8. Masters come from a memory-mapped checkpoint one parameter at a time and go again, so memory peaks at
// the packed weights and one parameter.
//
// With weights in the model's own type results have the bits of the model as training runs it; with int8,
// those of the model whose matrices are what was rounded to int8 (docs/numerics.md rule 9).
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "device/gemm/packed_registry.h"
#include "exchange/stored_model.h"
#include "models/model.h"

namespace ingot {

/// int8: matrices as int8 numbers with scales; routers, adapters and everything else in the model's own
/// precision.
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
  /// Random matrices (even, with the standard deviation of initial ones, and much quicker than those) for
  /// measurements; int8 computes in f32.
  PackedModel(const ModelConfig& config, WeightForm form, uint64_t seed);

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  /// Memory of all weights.
  int64_t bytes() const { return bytes_; }
  /// Bytes of weights that one token reads: of an expert layer top_k experts, of the embedding nothing unless
  /// the head is tied to it.
  int64_t bytes_per_token() const { return bytes_per_token_; }

 private:
  PackedModel(const ModelConfig& config, const Precision& precision, bool int8);
  /// The master of parameter i is there.
  void take(int i);

  std::unique_ptr<Model> model_;
  bool int8_ = false;
  struct Use {
    bool product = false, look_up = false, other = false;
    bool f32_rows = false;  ///< what the product multiplies by it is f32 in every precision
    bool packs() const { return product && !other; }
  };
  static std::vector<Use> uses_of(const Model& model);
  std::vector<Use> uses_;  ///< by parameter
  std::vector<PackedRegistration> places_;
  int64_t bytes_ = 0, bytes_per_token_ = 0;
};

}  // namespace ingot
