// What an op makes of values that the ranks of an axis hold together. Each op states its rule
// (Op::axis_rule); parallel/axis_types.h derives from the rules the type of every value of a tape on every
// axis, and over which ranks each parameter's gradient is a sum.
//
//   replicate  equal on all ranks, and so is its cotangent
//   shared     equal on all ranks that need it; each rank computes a partial sum of its cotangent
//   rows       each rank has other rows (tokens)
//   halo       as rows, with rows of other ranks before them
//   shards     each rank has its own columns, heads, experts or vocabulary entries
//   partial    the value is the sum over the ranks of what they have
//
// A collective is a pair (source, destination) of types. Its backward follows: cotangents have types as well
// (cotangent_of), so it leads from the type of the destination's cotangent to that of the source's.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/enum.h"

namespace ingot {

class Communicator;

enum class AxisType : uint8_t { replicate, shared, rows, halo, shards, partial };
constexpr auto enum_names(AxisType) {
  return names_in_order<AxisType>("replicated", "shared", "varying by rows", "varying by rows with halo",
                                  "sharded", "partial");
}

struct AxisChange {
  AxisType from = AxisType::replicate, to = AxisType::replicate;
};
AxisType cotangent_of(AxisType type);
inline AxisChange backward_of(const AxisChange& c) {
  return {cotangent_of(c.to), cotangent_of(c.from)};
}
/// Whether a rank needs data of other ranks to get from the source to the destination.
bool needs_transfer(const AxisChange& change);

class AxisTypeSet {
 public:
  constexpr AxisTypeSet() = default;
  constexpr AxisTypeSet(std::initializer_list<AxisType> types) {
    for (const AxisType t : types) bits_ |= 1u << static_cast<unsigned>(t);
  }
  constexpr bool has(AxisType t) const { return (bits_ >> static_cast<unsigned>(t) & 1u) != 0; }
  constexpr bool empty() const { return bits_ == 0; }

 private:
  unsigned bits_ = 0;
};

struct AxisRule {
  /// Activations of one of these types (`shared` beside `shards` counts as shards) give outputs of the same
  /// type. Empty: the op states no rule, and tapes that contain it cannot be checked.
  AxisTypeSet passes = {};
  /// The op looks along sequences, so each rank must have whole ones: rows pass on the data axis only.
  bool along_sequence = false;
  /// What becomes of activations where parameter `input` is sharded along `dim`.
  struct Sharding {
    int input, dim;
    AxisChange change;
  };
  std::vector<Sharding> sharded = {};
  /// A parameter that is added. To a partial sum the first rank alone adds it, so that the sum contains it
  /// once.
  int addend = -1;
  /// Outputs that count rows: partial sums where ranks have other rows of the same sequences.
  std::vector<int> counts = {};
  /// Where `change` holds instead of all the above.
  enum class On : uint8_t {
    nowhere,
    group_axes,  ///< on the axes of the op's group (a collective)
    tensor,      ///< on the tensor axis
    experts,     ///< on the axes over which experts are sharded
    values       ///< on any axis, for values of the type change.from
  } on = On::nowhere;
  AxisChange change = {};
  /// The group of a collective, from the op's attributes; the group is nullptr for one rank.
  const Communicator* (*group)(const void* attr) = nullptr;
};

/// Which types pass through ops of a kind:
inline constexpr AxisTypeSet kRowwise{AxisType::replicate, AxisType::shared,
                                      AxisType::rows};  ///< a row needs whole rows
inline constexpr AxisTypeSet kElementwise{AxisType::replicate, AxisType::shared, AxisType::rows,
                                          AxisType::halo,
                                          AxisType::shards};  ///< no element (or head) sees another
inline constexpr AxisTypeSet kHeadwise{AxisType::replicate, AxisType::shared, AxisType::rows,
                                       AxisType::shards};  ///< no head sees another, but rows do
inline constexpr AxisTypeSet kSummable{AxisType::replicate, AxisType::shared, AxisType::rows,
                                       AxisType::partial};  ///< rowwise, and linear in its activations
inline constexpr AxisTypeSet kAnyAxisType{AxisType::replicate, AxisType::shared, AxisType::rows,
                                          AxisType::halo,      AxisType::shards, AxisType::partial};

}  // namespace ingot
