// What ops make of values that the ranks of an axis hold together: one table, a row per op, from which parallel/axis_types.h
// derives the type of every value of a tape, and over which ranks each parameter's gradient is a sum.
//
//   replicate  equal on all ranks, and so is its cotangent
//   shared     equal on all ranks that need it; each computes a part of its cotangent
//   rows       varying: each rank has other rows (tokens)
//   halo       varying: as rows, with rows of other ranks before them
//   parts      varying: each rank has its columns, heads, experts or words
//   partial    the ranks' values are summands of the value
//
// A collective is a pair (source, destination) of types. Its backward is derived: cotangents have types as well (cotangent_of),
// so it goes from that of the destination to that of the source; and the types say which way data must travel.
#pragma once
#include <initializer_list>
#include <vector>

#include "base/enum.h"
#include "tape/op.h"

namespace ingot {

class Communicator;

enum class AxisType : uint8_t { replicate, shared, rows, halo, parts, partial };
constexpr auto enum_names(AxisType) {
  return names_in_order<AxisType>("replicated", "shared", "varying by rows", "varying by rows with halo",
                                  "varying by parts", "partial");
}

struct AxisChange {
  AxisType from = AxisType::replicate, to = AxisType::replicate;
};
AxisType cotangent_of(AxisType type);
inline AxisChange backward_of(const AxisChange& c) {
  return {cotangent_of(c.to), cotangent_of(c.from)};
}
/// Whether the destination has what the source does not have on the same rank.
bool needs_transfer(const AxisChange& change);

class AxisTypeSet {
 public:
  constexpr AxisTypeSet(std::initializer_list<AxisType> types) {
    for (const AxisType t : types) bits_ |= 1u << static_cast<unsigned>(t);
  }
  constexpr bool has(AxisType t) const { return (bits_ >> static_cast<unsigned>(t) & 1u) != 0; }

 private:
  unsigned bits_ = 0;
};

struct AxisRule {
  /// Activations of one of these types (`shared` beside `parts` counts as parts) give outputs of the same.
  AxisTypeSet passes;
  /// Looks along sequences, so each rank must have whole ones: rows pass on the data axis only.
  bool along_sequence = false;
  /// What becomes of activations where parameter `input` is cut along `dim`.
  struct Cut {
    int input, dim;
    AxisChange change;
  };
  std::vector<Cut> cuts = {};
  /// A parameter that is added: of a partial sum the first rank alone adds it, so that the sum has it once.
  int addend = -1;
  /// Outputs that count rows: summands where ranks have other rows of the same sequences.
  std::vector<int> counts = {};
  /// Where `change` holds instead of all this.
  enum class On : uint8_t {
    nowhere,
    group_axes,  ///< a collective: on the axes of its group
    tensor,      ///< on the tensor axis
    experts,     ///< on the axes over which experts are dealt out
    values       ///< on any axis, for values of the type change.from
  } on = On::nowhere;
  AxisChange change = {};
  /// The group of a collective, from the op's attributes; nullptr: one rank.
  const Communicator* (*group)(const void* attr) = nullptr;
};

/// The op's row; nullptr: it has none.
const AxisRule* axis_rule(const Op& op);
/// Gives a row to an op of a program that uses the library. Error where it has one. Before anything runs.
void set_axis_rule(const Op& op, AxisRule rule);

/// Ops whose elements, or heads, do not see each other; and whose rows do not, but columns do.
inline constexpr AxisTypeSet kElementwise{AxisType::replicate, AxisType::shared, AxisType::rows,
                                          AxisType::halo, AxisType::parts};
inline constexpr AxisTypeSet kRowwise{AxisType::replicate, AxisType::shared, AxisType::rows};

}  // namespace ingot
