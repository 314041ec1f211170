// Best-fit-decreasing packing: whole examples into rows of fixed capacity, none cut, few tokens of padding.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ingot::data {

/// Rows of examples, in one array: row r holds examples[begins[r]] .. examples[begins[r + 1] - 1].
struct PackedRows {
  std::vector<int64_t> begins{0};
  std::vector<int64_t> examples;
  int64_t dropped = 0;  ///< examples longer than the capacity, left out
  int64_t rows() const { return static_cast<int64_t>(begins.size()) - 1; }
  std::span<const int64_t> row(int64_t r) const {
    const auto begin = static_cast<size_t>(begins[static_cast<size_t>(r)]);
    return std::span(examples).subspan(begin,
                                       static_cast<size_t>(begins[static_cast<size_t>(r) + 1]) - begin);
  }
};

/// Takes the examples from the longest to the shortest (equal ones in order) and puts each into the fullest
/// row that still has space, else into a new row. Deterministic. O(n log C) time and O(n + C) memory for n
/// examples and capacity C. At most 11/9 of the optimal number of rows plus a constant (Johnson et al., SIAM
/// J. Comput. 1974). Lengths > capacity: Error, or left out and counted with `drop_too_long`. Empty examples
/// are left out silently.
PackedRows pack_best_fit(std::span<const int64_t> lengths, int64_t capacity, bool drop_too_long);

}  // namespace ingot::data
