// What a model is made of, without memory: the list of its parameters. Each has a global name and shape, an
// initialisation rule, and a shard rule (which dimension lies on which axis). Everything else follows:
// counts, flat buffers, optimizer groups, checkpoint pieces, slices of a rank.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/enum.h"
#include "tensor/tensor.h"

namespace ingot {

/// Parts for accounting, and for what an optimizer or precision rule may ask.
enum class ParamRole : uint8_t {
  embedding,
  head,
  matrix,
  expert,
  norm,
  bias,
  scale,
  conv,
  temperature,
  router
};

/// Initial values: a pure function of (seed, name, global element index), so that every layout starts from
/// one model.
struct Init {
  enum class Kind : uint8_t {
    constant,
    normal,
    truncated,  ///< normal, drawn again beyond 3 standard deviations
    uniform     ///< in [-value, value)
  } kind = Kind::constant;
  double value = 0;  ///< the constant, the standard deviation, or half the range
  static Init constant(double v) { return {Kind::constant, v}; }
  static Init normal(double std) { return {Kind::normal, std}; }
  static Init truncated(double std) { return {Kind::truncated, std}; }
  static Init uniform(double half_range) { return {Kind::uniform, half_range}; }
};

/// Layer groups: the embedding, each layer (multi-token prediction modules continue the count), and the head.
/// A pipeline assigns them to stages.
constexpr int64_t kEmbeddingGroup = -2, kHeadGroup = -1;
/// Orders layer groups as a forward pass runs them.
constexpr int64_t depth_of_layer_group(int64_t layer_group) {
  return layer_group == kHeadGroup ? INT64_MAX : layer_group;
}

/// Axes on which parameters can be cut. expert_tensor: the ranks that share the width of each expert.
enum class ShardAxis : uint8_t { none, tensor, expert, expert_tensor };

/// Which dimension is cut, and how: a packed dimension (q|k|v) is cut block by block.
struct ShardRule {
  ShardAxis axis = ShardAxis::none;
  int dim = 0;
  std::vector<int64_t> blocks = {};  ///< global extents along dim that are cut separately; empty: one block
  bool uneven =
      false;  ///< an extent that does not divide is legal: rank r of n begins at floor(r extent / n)
};

/// What each tensor rank's gradient of an unsharded parameter is where all tensor ranks see the same rows.
/// Under sequence parallelism they see different rows, and every such gradient is a partial sum.
enum class TensorGradient : uint8_t {
  whole,   ///< all ranks compute the same
  partial  ///< it lies between enter and leave of a cut sublayer: their sum is the gradient
};

/// What ranks with the same parameters shard: nothing; the optimizer's state (ZeRO-1) and, where products
/// read copies, the masters; or weights and gradients too, which are then gathered only while they are
/// needed.
enum class ShardLevel : uint8_t { none, optimizer, full };
constexpr auto enum_names(ShardLevel) {
  return names_in_order<ShardLevel>("none", "optimizer", "full");
}
/// What one bucket of a flat buffer holds (nn/flat_layout.h): a tensor group, about bucket_bytes of one, or a
/// layer group.
enum class FlatBuckets : uint8_t { tensor_group, bytes, layer_group };

/// How ranks shard a flat buffer.
struct FlatSharding {
  /// Size of the shard group of everything but experts, and this rank in it; the same for experts.
  int ranks = 1, rank = 0;
  int expert_ranks = 1, expert_rank = 0;
  FlatBuckets buckets = FlatBuckets::tensor_group;
  int64_t bucket_bytes = 0;
  bool whole_tensors = false;  ///< no matrix is divided between shards
  ShardLevel level = ShardLevel::none;
};

/// Where a rank stands on the axes that cut parameters.
struct Placement {
  int tensor_size = 1, tensor_rank = 0;
  int expert_size = 1, expert_rank = 0;
  int expert_tensor_size = 1, expert_tensor_rank = 0;
  int size(ShardAxis a) const {
    const int sizes[] = {1, tensor_size, expert_size, expert_tensor_size};
    return sizes[static_cast<int>(a)];
  }
  int rank(ShardAxis a) const {
    const int ranks[] = {0, tensor_rank, expert_rank, expert_tensor_rank};
    return ranks[static_cast<int>(a)];
  }
  std::vector<int64_t> layer_groups = {};  ///< that the rank holds; empty: all
  bool sequence_parallel = false;  ///< tensor ranks have other rows: gradients of what is not cut are parts
  FlatSharding sharding = {};
};

/// A low-rank pair beside a matrix (nn/lora.h): y += scale (x A^T) B^T, block of rows by block.
struct Adapter {
  int a = -1, b = -1;  ///< indices of A and B; -1: none
  double scale = 0;
  std::vector<int64_t> blocks = {};  ///< rows of B that belong to each A
};

struct ParameterSpec {
  std::string name;
  Shape shape;  ///< global
  ParamRole role = ParamRole::matrix;
  Init init;
  int64_t matrices = 1;             ///< stacked matrices along the first dimension (experts)
  std::vector<int64_t> row_splits;  ///< row blocks that a matrix optimizer treats apart (q|k|v)
  ShardRule shard;
  TensorGradient tensor_gradient = TensorGradient::whole;
  double width_multiple =
      1;                  ///< muP: fan-in as a multiple of the base model's, where learning rates follow it
  bool trainable = true;  ///< false: frozen, without gradient and optimizer state
  Adapter adapter = {};
  std::vector<int64_t> layer_groups = {};  ///< that read it; whoever holds the first one owns it
  ShardRule width_shard = {};              ///< a second cut, of another dimension (experts' widths)
  bool full_precision = false;             ///< products read the master, whatever the compute type
};

/// Whether a rank holds a layer group.
bool holds_layer_group(const Placement& placement, int64_t layer_group);
/// Whether a rank holds (its slice of) a parameter. What it does not hold is an empty tensor everywhere.
bool holds(const Placement& placement, const ParameterSpec& spec);
/// Whether each tensor rank's gradient of a parameter is a part of the sum (it may have none at all).
bool summed_over_tensor_ranks(const Placement& placement, const ParameterSpec& spec);

/// A rank's part of a parameter as one rectangular piece: local and global corner, and extents (same rank as
/// the shape).
struct ParameterPiece {
  std::vector<int64_t> local_offset, global_offset, extent;
};

/// "layers.3.": the names of a layer's parameters and buffers begin with it.
std::string layer_prefix(int64_t layer);

class ParameterTable {
 public:
  /// Parameters added from now on are read by this layer group, unless their spec says otherwise.
  void begin_layer_group(int64_t layer_group) { layer_group_ = layer_group; }
  /// Returns the index by which the tape and weight sets know it. Names are unique.
  int add(ParameterSpec spec);
  int size() const { return static_cast<int>(specs_.size()); }
  const ParameterSpec& operator[](int i) const { return specs_[static_cast<size_t>(i)]; }
  /// Index of a name, or -1.
  int find(std::string_view name) const;
  /// Another initialisation, or width multiple, for parameter i.
  void set_init(int i, const Init& init) { specs_[static_cast<size_t>(i)].init = init; }
  void set_width_multiple(int i, double m) { specs_[static_cast<size_t>(i)].width_multiple = m; }
  void set_adapter(int i, Adapter adapter) { specs_[static_cast<size_t>(i)].adapter = std::move(adapter); }
  void set_layer_groups(int i, std::vector<int64_t> layer_groups) {
    specs_[static_cast<size_t>(i)].layer_groups = std::move(layer_groups);
  }
  void freeze(int i) { specs_[static_cast<size_t>(i)].trainable = false; }
  /// Freezes what the name patterns match; Error for one that matches nothing, naming the nearest.
  void freeze(const std::vector<std::string>& patterns);
  int64_t total() const;
  int64_t trainable() const;
  int64_t total(ParamRole role) const;

 private:
  std::vector<ParameterSpec> specs_;
  std::unordered_map<std::string, int> index_;  ///< by name
  int64_t elements_ = 0;
  int64_t layer_group_ = kEmbeddingGroup;
};

/// Where the part of rank `rank` of `size` begins in an uneven cut of `extent`; rank == size: the end.
constexpr int64_t uneven_begin(int64_t extent, int rank, int size) {
  return extent * rank / size;
}
/// Shape of a rank's part, [0] where it holds nothing; an Error if an extent does not divide.
Shape local_shape(const ParameterSpec& spec, const Placement& placement);
/// row_splits of a rank's shard: where rows are sharded, each block is divided alike. Empty where the
/// sharding has other blocks.
std::vector<int64_t> local_row_splits(const ParameterSpec& spec, const Placement& placement);
/// The pieces of a rank's part, in local order; they tile it exactly. None where it holds nothing.
std::vector<ParameterPiece> pieces_of(const ParameterSpec& spec, const Placement& placement);
/// Writes the initial values of a rank's part into `local` (f32 or f64).
void initialize(const ParameterSpec& spec, const Placement& placement, uint64_t seed, const Tensor& local);

}  // namespace ingot
