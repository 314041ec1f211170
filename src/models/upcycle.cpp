// See upcycle.h.
#include "models/upcycle.h"

#include "tensor/convert.h"

namespace ingot {
namespace {

using Array = std::vector<double>;

std::ptrdiff_t at(int64_t i) {
  return static_cast<std::ptrdiff_t>(i);
}

/// "layers.3.mlp.down.weight" of "layers.3.moe.experts.down.weight".
std::string dense_name(const std::string& name, const std::string& part, const std::string& replacement) {
  std::string text = name;
  return text.replace(text.find(part), part.size(), replacement);
}

Array dense_values(const WeightSet& dense, const std::string& name) {
  const int index = dense.table().find(name);
  INGOT_CHECK(index >= 0, "the dense model has no '{}'", name);
  return to_doubles(dense.master(index));
}

/// Rows of each shard: `halves` blocks (gate, up) of hidden rows, cut into G pieces each; expert j takes
/// piece j mod G.
Array rows_of_experts(const Array& matrix, int64_t halves, int64_t width, int64_t granularity, int64_t first,
                      int64_t count) {
  const auto block = static_cast<int64_t>(matrix.size()) / halves, piece = block / granularity;
  INGOT_CHECK(piece % width == 0, "{} values per shard, rows of {}", piece, width);
  Array out;
  for (int64_t j = first; j < first + count; ++j)
    for (int64_t h = 0; h < halves; ++h) {
      const auto begin = matrix.begin() + at(h * block + j % granularity * piece);
      out.insert(out.end(), begin, begin + at(piece));
    }
  return out;
}

/// Columns of each shard, times the granularity.
Array columns_of_experts(const Array& matrix, int64_t rows, int64_t granularity, int64_t first,
                         int64_t count) {
  const int64_t columns = static_cast<int64_t>(matrix.size()) / rows, piece = columns / granularity;
  Array out;
  for (int64_t j = first; j < first + count; ++j)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < piece; ++c)
        out.push_back(static_cast<double>(granularity) *
                      matrix[static_cast<size_t>(r * columns + j % granularity * piece + c)]);
  return out;
}

/// Each of the first rows / G rows, G times.
Array repeated_rows(const Array& matrix, int64_t rows, int64_t granularity) {
  const int64_t width = static_cast<int64_t>(matrix.size()) / rows;
  Array out;
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = matrix.begin() + at(r / granularity * width);
    out.insert(out.end(), begin, begin + at(width));
  }
  return out;
}

}  // namespace

ModelConfig upcycled_config(const ModelConfig& dense, const UpcycleOptions& o) {
  if (dense.moe.experts > 0)
    fail("the model has {} experts already; only a dense model can be upcycled", dense.moe.experts);
  if (dense.lora.rank > 0)
    throw Error("the model has adapters, which experts cannot have",
                "merge them into the weights first: ingot export, then ingot import");
  if (dense.mlp_bias)
    fail("the MLP has biases, which experts do not have; only a model without them can be upcycled");
  if (o.granularity < 1 || o.expansion < 1)
    fail("granularity = {} and expansion = {} must be at least 1", o.granularity, o.expansion);
  if (dense.mlp_hidden() % o.granularity != 0)
    fail("the MLP's width {} cannot be cut into {} equal experts", dense.mlp_hidden(), o.granularity);
  if (o.top_k < 2 || o.top_k % o.granularity != 0 || o.top_k > o.granularity * o.expansion)
    fail(
        "top_k = {} must be a multiple of granularity = {}, at least 2 and at most the {} experts: only "
        "complete groups give "
        "the dense model's output, and one weight alone would be 1 whatever the router says",
        o.top_k, o.granularity, o.granularity * o.expansion);
  ModelConfig m = dense;
  m.moe = {};
  m.moe.experts = o.granularity * o.expansion;
  m.moe.top_k = o.top_k;
  m.moe.hidden = dense.mlp_hidden() / o.granularity;
  m.moe.score = RouteScore::softmax_last;
  return m;
}

void upcycle(const WeightSet& dense, const UpcycleOptions& o, uint64_t seed, WeightSet& experts) {
  const Placement& place = experts.placement();
  INGOT_CHECK(place.tensor_size == 1 && place.expert_tensor_size == 1 && dense.placement().tensor_size == 1,
              "weights are cut on the tensor axis");
  experts.initialize(seed);
  for (int i = 0; i < experts.size(); ++i) {
    const ParameterSpec& spec = experts.table()[i];
    const Tensor to = experts.master(i);
    const bool up = spec.name.ends_with(".moe.experts.gate_up.weight"),
               down = spec.name.ends_with(".moe.experts.down.weight");
    if (up || down) {
      const int64_t count = to.dim(0), first = place.expert_rank * count, width = spec.shape[2];
      const bool gated =
          up && dense.table().find(dense_name(spec.name, "moe.experts.gate_up", "mlp.gate_up")) >= 0;
      store_rounded(to,
                    down ? columns_of_experts(
                               dense_values(dense, dense_name(spec.name, "moe.experts.down", "mlp.down")),
                               spec.shape[1], o.granularity, first, count)
                         : rows_of_experts(dense_values(dense, dense_name(spec.name, "moe.experts.gate_up",
                                                                          gated ? "mlp.gate_up" : "mlp.up")),
                                           gated ? 2 : 1, width, o.granularity, first, count));
    } else if (spec.name.ends_with(".moe.router.weight")) {
      store_rounded(to, repeated_rows(to_doubles(to), spec.shape[0], o.granularity));
    } else {
      store_rounded(to, dense_values(dense, spec.name));
    }
  }
  experts.refresh_compute();
}

}  // namespace ingot
