// Boxes of a global tensor: which part a piece holds, whether pieces cover a tensor exactly, and copies
// between them. This is the reshape seam: writer and reader know tensors only by (name, global offset), never
// by rank or file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace ingot {

/// A box of a global tensor: `offset` holds the first global index in each dimension (same rank as `shape`).
struct Region {
  Shape offset;
  Shape shape;
  static Region whole(const Shape& global);
  bool operator==(const Region&) const = default;
  std::string str() const;  ///< "[0:4, 128:256]"
};

/// True where the region has the tensor's rank and lies inside it.
bool inside(const Region& region, const Shape& global);
/// The common part, or nothing where it is empty. Both of the same rank.
std::optional<Region> intersect(const Region& a, const Region& b);

/// Whether `pieces` (each inside `global`) cover every element exactly once; if not, a sentence that names
/// the first wrong element and how often it is covered. Time and memory grow linearly with the number of
/// pieces.
std::optional<std::string> coverage_fault(const Shape& global, std::span<const Region> pieces);

/// Whether elements can be converted: equal types, or f32, bf16 and f64 among each other.
bool convertible(DType from, DType to);
/// n elements from `in` (any alignment) to `out`; narrowing rounds once, to nearest even. Requires
/// convertible().
void convert_elements(void* out, DType out_type, const std::byte* in, DType in_type, int64_t n);

/// Copies the common part of two regions of one tensor, converting; both buffers are dense, row-major over
/// their region.
void copy_common(void* out, const Region& out_region, DType out_type, const std::byte* in,
                 const Region& in_region, DType in_type);

}  // namespace ingot
