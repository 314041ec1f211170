// Divisions of rows into documents, shared by the tests of the ops along the sequence.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/sequence/documents.h"
#include "support/op_check.h"

namespace ingot::test {

/// Documents of these lengths, one after another.
inline BatchLayout make_rows(const std::vector<int64_t>& lengths) {
  BatchLayout rows;
  for (const int64_t n : lengths) {
    rows.spans.push_back({rows.count, n, 0, nullptr});
    rows.count += n;
  }
  return rows;
}

/// Positions that restart with every document.
inline std::vector<int32_t> make_positions(const BatchLayout& rows) {
  std::vector<int32_t> positions;
  for (const SequenceSpan& s : rows.spans)
    for (int64_t t = 0; t < s.rows; ++t) positions.push_back(static_cast<int32_t>(s.past + t));
  return positions;
}

/// The input that lists those documents, of this capacity.
inline CaseInput list_of(const BatchLayout& rows, int64_t capacity) {
  std::vector<int32_t> words(static_cast<size_t>(document_words(capacity)));
  write_documents(rows, words);
  return {.meta = {{document_words(capacity)}, DType::i32}, .ints = std::move(words)};
}

inline std::string describe(const BatchLayout& rows) {
  std::string text;
  for (const SequenceSpan& s : rows.spans) text += (text.empty() ? "" : "+") + std::to_string(s.rows);
  return text.empty() ? "0" : text;
}

}  // namespace ingot::test
