// See context_rows.h.
#include "ops/sequence/context_rows.h"

#include <algorithm>

namespace ingot {

ContextRows::ContextRows(BatchLayout whole, int64_t sequence_length, const int32_t* positions, int rank,
                         int ranks, int neighbours)
    : whole_(std::move(whole)), rank_(rank), ranks_(ranks), chunk_(sequence_length / (2 * ranks)) {
  if (sequence_length % (2 * ranks) != 0 || chunk_ < kHalo)
    throw Error(
        fmt::format("sequences of {} tokens cannot be divided into {} chunks for {} context ranks",
                    sequence_length, 2 * ranks, ranks),
        fmt::format("the length must be a multiple of {} and at least {}", 2 * ranks, 2 * ranks * kHalo));
  INGOT_CHECK(whole_.count % sequence_length == 0, "{} rows of sequences of {}", whole_.count,
              sequence_length);
  pieces_.resize(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) cut_documents(r);
  add_halo(positions);
  if (neighbours == 1 || neighbours == ranks) return;
  const int groups = ranks / neighbours;
  INGOT_CHECK(groups * neighbours == ranks, "{} ranks in groups of {}", ranks, neighbours);
  levels_.emplace_back(BatchLayout{whole_.count / groups, {}}, sequence_length / groups, positions,
                       rank % neighbours, neighbours);
  levels_.emplace_back(whole_, sequence_length, positions, rank / neighbours, groups);
}

int64_t ContextRows::whole_row(int rank, int64_t row) const {
  const int64_t sequence = row / (2 * chunk_), i = row % (2 * chunk_);
  const int64_t chunk = i < chunk_ ? rank : 2 * ranks_ - 1 - rank;
  return (sequence * 2 * ranks_ + chunk) * chunk_ + i % chunk_;
}

std::vector<int32_t> ContextRows::share_of(const int32_t* column) const {
  std::vector<int32_t> share;
  for (int64_t row = 0; row < count(); ++row) share.push_back(column[whole_row(rank_, row)]);
  return share;
}

void ContextRows::cut_documents(int rank) {
  for (int64_t row = 0; row < count(); row += chunk_) {
    const int64_t begin = whole_row(rank, row), end = begin + chunk_;
    for (size_t s = 0; s < whole_.spans.size(); ++s) {
      const SequenceSpan& d = whole_.spans[s];
      INGOT_CHECK(d.state == nullptr, "cached sequences have no context ranks");
      const int64_t from = std::max(begin, d.row_begin), to = std::min(end, d.row_begin + d.rows);
      if (from < to)
        pieces_[static_cast<size_t>(rank)].push_back(
            {row + from - begin, to - from, from - d.row_begin, d.phase, static_cast<int64_t>(s)});
    }
  }
}

void ContextRows::add_halo(const int32_t* positions) {
  const auto span = [&](int64_t rows) {
    if (rows > 0) with_halo_.spans.push_back({with_halo_.count, rows});
    with_halo_.count += rows;
  };
  for (const ContextPiece& p : pieces(rank_)) {
    const bool opens = p.row % chunk_ == 0;  // a chunk
    const int64_t before = opens ? std::min(kHalo, p.first) : 0;
    if (opens) {
      span(kHalo - before);
      halo_positions_.insert(halo_positions_.end(), kHalo, 0);  // turns results that nobody reads
    }
    span(before + p.rows);
    for (int64_t i = 0; i < p.rows; ++i) halo_positions_.push_back(positions[whole_row(rank_, p.row + i)]);
  }
}

}  // namespace ingot
