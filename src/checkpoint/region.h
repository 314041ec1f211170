// Regions (boxes) of a global tensor: whether pieces cover the tensor exactly, and copies between pieces.
// Because writer and reader address tensors by name and global offset, never by rank or file, a checkpoint
// can be read in any layout.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace ingot {

/// A box of a global tensor. `offset` is its first global index in each dimension and has the rank of
/// `shape`.
struct Region {
  Shape offset;
  Shape shape;
  static Region whole(const Shape& global);
  bool operator==(const Region&) const = default;
  /// "[0:4, 128:256]"
  std::string str() const;
};

/// Whether the region has the tensor's rank and is inside it.
bool inside(const Region& region, const Shape& global);
/// The intersection, or nothing if it is empty. Both have the same rank.
std::optional<Region> intersect(const Region& a, const Region& b);

/// Checks that `pieces` (each inside `global`) cover every element exactly once. If not, returns a sentence
/// that names the first wrong element and how often it is covered. Time and memory grow about linearly with
/// the number of pieces.
std::optional<std::string> coverage_fault(const Shape& global, std::span<const Region> pieces);

/// Whether elements can be converted: equal types, or f32, bf16 and f64 among each other.
bool convertible(DType from, DType to);
/// Converts n elements from `in` (any alignment) to `out`; narrowing rounds once, to nearest even. Requires
/// convertible().
void convert_elements(void* out, DType out_type, const std::byte* in, DType in_type, int64_t n);

/// Copies and converts the intersection of two regions of one tensor. Each buffer is dense and row-major over
/// its region.
void copy_common(void* out, const Region& out_region, DType out_type, const std::byte* in,
                 const Region& in_region, DType in_type);

}  // namespace ingot
