// How the rows of whole sequences lie on the n ranks of a context axis. A sequence is divided into 2 n
// chunks; rank r has chunks r and 2 n - 1 - r, so that causal attention is the same work for all. A rank's
// local rows are, sequence by sequence, those of its earlier chunk and then those of its later one.
// ([ZAYA1-AMD] §V-C1; Striped Attention, Brandon et al. 2023)
//
// Halo. Ops that look two tokens back (cca) get each chunk with two rows before it: the last two tokens of
// the preceding chunk. Rows of a chunk that continue a document form one span with those of the two rows that
// belong to the document; the others are a span of their own, whose results nobody reads. So shapes do not
// depend on where documents begin.
//
// Two levels. The chunks of m neighbouring ranks, g m .. g m + m - 1 of 2 n, are adjacent, and so are these
// ranks' later chunks. Together the m ranks have the two chunks that rank g of n / m ranks would have,
// divided as a sequence is.
#pragma once
#include <vector>

#include "ops/sequence/batch_layout.h"

namespace ingot {

/// A document's tokens in one chunk.
struct ContextPiece {
  int64_t row = 0;  ///< first local row
  int64_t rows = 0;
  int64_t first = 0;     ///< number of its first token within the document
  int64_t phase = 0;     ///< of the document (SequenceSpan::phase)
  int64_t document = 0;  ///< index of the span in `whole`
};

class ContextRows {
 public:
  static constexpr int64_t kHalo = 2;

  /// `whole`: documents of whole sequences; `positions`: of all their tokens; `neighbours`: ranks of a group
  /// (m), a divisor of `ranks`. Error where a sequence cannot be cut.
  ContextRows(BatchLayout whole, int64_t sequence_length, const int32_t* positions, int rank, int ranks,
              int neighbours = 1);

  const BatchLayout& whole() const { return whole_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int64_t count() const { return whole_.count / ranks_; }  ///< local rows
  int64_t chunk() const { return chunk_; }                 ///< tokens of a chunk
  int64_t sequences() const { return whole_.count / (2 * ranks_ * chunk_); }
  /// Row of the whole sequences that is local row `row` of `rank`.
  int64_t whole_row(int rank, int64_t row) const;
  /// This rank's entries of a column of the whole sequences (ids, targets, positions).
  std::vector<int32_t> share_of(const int32_t* column) const;
  /// The rank that has a chunk.
  int owner(int64_t chunk) const { return static_cast<int>(chunk < ranks_ ? chunk : 2 * ranks_ - 1 - chunk); }
  /// A rank's documents, ascending by local row.
  const std::vector<ContextPiece>& pieces(int rank) const { return pieces_[static_cast<size_t>(rank)]; }

  /// How the rows of this rank's neighbours lie on them; where all ranks are neighbours: this.
  const ContextRows& inner() const { return levels_.empty() ? *this : levels_[0]; }
  /// How all rows lie on the groups of neighbours; where each has one rank: this.
  const ContextRows& outer() const { return levels_.empty() ? *this : levels_[1]; }

  const BatchLayout& with_halo() const { return with_halo_; }
  const std::vector<int32_t>& halo_positions() const { return halo_positions_; }

 private:
  void cut_documents(int rank);
  void add_halo(const int32_t* positions);

  BatchLayout whole_;
  int rank_, ranks_;
  int64_t chunk_;
  std::vector<std::vector<ContextPiece>> pieces_;
  BatchLayout with_halo_;
  std::vector<int32_t> halo_positions_;
  std::vector<ContextRows> levels_;  ///< inner and outer, where they differ from this
};

}  // namespace ingot
