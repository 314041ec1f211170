// The documents of a batch as a list of words, which kernels read where it lies. On a device they find
// documents there in place of taking them with their launch, so that a graph of launches, whose sizes follow
// from the list's capacity, takes others at each replay. Plain.
#pragma once
#include <cstdint>

#include "device/gpu/anywhere.h"

namespace ingot {

/// Words: how many documents there are; the first row of each and, behind the last, the rows of all; from
/// word 2 + capacity on the phase of each (AttentionWindow). Documents touch each other and have rows.
struct DocumentList {
  const int32_t* words = nullptr;  ///< nullptr: no list
  int64_t capacity = 0;            ///< of documents

  INGOT_ANYWHERE int64_t count() const { return words[0]; }
  INGOT_ANYWHERE int64_t first_row(int64_t document) const { return words[1 + document]; }
  INGOT_ANYWHERE int64_t rows(int64_t document) const {
    return int64_t{words[2 + document]} - words[1 + document];
  }
  INGOT_ANYWHERE int64_t phase(int64_t document) const { return words[2 + capacity + document]; }

  /// Tiles of `size` numbers, of which each row has `per_row`, begin anew at each document. A document's
  /// tiles have numbers from here on, those between its last one and the next document's first belong to
  /// none. So where it begins does not depend on the lengths of those before it, and no sum over them is
  /// needed.
  INGOT_ANYWHERE int64_t first_tile(int64_t document, int64_t per_row, int64_t size) const {
    return first_row(document) * per_row / size + document;
  }
  /// Numbers of tiles, of so many rows and as many documents as there may be.
  INGOT_ANYWHERE int64_t most_tiles(int64_t rows, int64_t per_row, int64_t size) const {
    return (rows * per_row + size - 1) / size + capacity;
  }
  /// The last document whose tiles begin at this number or before; -1: there are no documents.
  INGOT_ANYWHERE int64_t of_tile(int64_t tile, int64_t per_row, int64_t size) const {
    int64_t low = 0;
    for (int64_t high = count(); high - low > 1;) {
      const int64_t middle = (low + high) / 2;
      if (first_tile(middle, per_row, size) <= tile)
        low = middle;
      else
        high = middle;
    }
    return count() > 0 ? low : -1;
  }
  /// The document of a row.
  INGOT_ANYWHERE int64_t of_row(int64_t row) const {
    int64_t low = 0;
    for (int64_t high = count(); high - low > 1;) {
      const int64_t middle = (low + high) / 2;
      if (first_row(middle) <= row)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};
constexpr int64_t document_words(int64_t capacity) {
  return 2 + 2 * capacity;
}

}  // namespace ingot
