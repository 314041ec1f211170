// See view.h.
#include "data/view.h"

#include "base/error.h"

namespace ingot::data {
namespace {

std::string marked_text(const Batch& batch, const DocumentPiece& piece, const Decode& decode) {
  const auto masked = [&](int32_t i) { return batch.targets[static_cast<size_t>(i)] == kMasked; };
  std::string text;
  for (int32_t begin = piece.begin; begin < piece.end;) {
    int32_t end = begin + 1;
    while (end < piece.end && masked(end) == masked(begin)) ++end;
    const std::string part =
        decode(std::span(batch.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    text += masked(begin) ? "[[" + part + "]]" : part;
    begin = end;
  }
  return text;
}

}  // namespace

std::string describe(const Batch& batch, std::span<const std::string> source_names, const Decode& decode) {
  std::string out = fmt::format("batch: {} rows of {} tokens, {} valid targets, {} attention spans\n",
                                batch.rows, batch.sequence_length, batch.valid_targets, batch.spans.size());
  size_t p = 0;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const RowOrigin& o = batch.origins[static_cast<size_t>(row)];
    out +=
        fmt::format("row {}: sample {}, source '{}' sample {}, sequence {}, first token {}\n", row, o.sample,
                    source_names[static_cast<size_t>(o.source)], o.source_sample, o.sequence, o.first_token);
    const int64_t row_end = (row + 1) * batch.sequence_length;
    for (; p < batch.pieces.size() && batch.pieces[p].begin < row_end; ++p) {
      const DocumentPiece& piece = batch.pieces[p];
      if (piece.document < 0) {
        out += fmt::format("  padding: {} tokens\n", piece.end - piece.begin);
      } else {
        out += fmt::format("  document {}, positions {} to {}: {}\n", piece.document,
                           batch.positions[static_cast<size_t>(piece.begin)],
                           batch.positions[static_cast<size_t>(piece.end) - 1],
                           marked_text(batch, piece, decode));
      }
    }
  }
  return out;
}

}  // namespace ingot::data
