// How the T rows of a call divide into documents (training, evaluation) or into new tokens of cached
// sequences (inference): the ragged layout of a packed batch. Ops that look along the sequence (attention,
// cca) take a `const BatchLayout*` in their attributes; every other op sees rows only. A BatchLayout must
// outlive the tapes recorded with it. The folder ops/sequence has no ops: it has what those ops share.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"

namespace ingot {

class SequenceState;

/// One document, or the next `rows` tokens of one sequence. Tokens of different spans never see each other.
struct SequenceSpan {
  int64_t row_begin = 0;  ///< first row in the call
  int64_t rows = 0;
  int64_t past = 0;  ///< tokens of the sequence before row_begin, all held by `state`; 0 without a state
  SequenceState* state =
      nullptr;  ///< read and appended to; nullptr: the document is whole and nothing is cached
  int64_t phase =
      0;  ///< number of the document's first token in its packed row: where blocks of windows begin
};

/// The spans are ascending, touch each other and cover the rows 0 .. count; empty spans are legal.
struct BatchLayout {
  int64_t count = 0;
  std::vector<SequenceSpan> spans;
};

/// The spans of a call of `rows` rows. nullptr means: one whole document; `whole` then holds it. Fails with
/// INGOT_CHECK where the spans do not cover the rows.
inline std::span<const SequenceSpan> spans_of(const BatchLayout* rows, int64_t count, SequenceSpan& whole) {
  if (rows == nullptr) {
    whole = {0, count, 0, nullptr};
    return {&whole, 1};
  }
  INGOT_CHECK(rows->count == count, "the call has {} rows, BatchLayout says {}", count, rows->count);
  int64_t next = 0;
  for (const SequenceSpan& s : rows->spans) {
    INGOT_CHECK(s.row_begin == next && s.rows >= 0 && s.past >= 0 && (s.state != nullptr || s.past == 0),
                "span of {} rows at {} after {} tokens; expected to begin at row {}", s.rows, s.row_begin,
                s.past, next);
    next += s.rows;
  }
  INGOT_CHECK(next == count, "spans cover {} of {} rows", next, count);
  return rows->spans;
}

}  // namespace ingot
