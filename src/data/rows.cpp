// See rows.h and batch.h.
#include "data/rows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/round.h"

namespace ingot::data {
namespace {

/// Ends the current span of the row at `end` (flattened) if it holds anything.
void close_span(int32_t& begin, int32_t end, Batch& batch) {
  if (end > begin) batch.spans.push_back({begin, end});
  begin = end;
}

int32_t row_begin(const Batch& batch) {
  INGOT_CHECK(static_cast<int64_t>(batch.origins.size()) < batch.rows, "the batch is full");
  return static_cast<int32_t>(static_cast<int64_t>(batch.origins.size()) * batch.sequence_length);
}

/// Positions count from the start of each span; valid targets are counted.
void finish_row(int32_t begin, size_t first_span, RowOrigin origin, Batch& batch) {
  for (size_t s = first_span; s < batch.spans.size(); ++s)
    for (int32_t i = batch.spans[s].begin; i < batch.spans[s].end; ++i)
      batch.positions[static_cast<size_t>(i)] = i - batch.spans[s].begin;
  const auto row = std::span(batch.targets)
                       .subspan(static_cast<size_t>(begin), static_cast<size_t>(batch.sequence_length));
  batch.valid_targets += std::count_if(row.begin(), row.end(), [](int32_t t) { return t != kMasked; });
  batch.origins.push_back(origin);
}

/// Masks targets whose tokens, numbers first, first + 1, ... of the split, are prompts.
void mask_prompts(const TokenSplit& split, int64_t first, std::span<int32_t> targets) {
  if (!split.prompts()) return;
  for (size_t i = 0; i < targets.size(); ++i)
    if (!split.in_loss(first + static_cast<int64_t>(i))) targets[i] = kMasked;
}

void append_padding(int32_t begin, int32_t end, Batch& batch) {
  if (begin == end) return;
  batch.spans.push_back({begin, end});
  batch.pieces.push_back({begin, end, -1});
}

}  // namespace

Batch make_batch(int64_t rows, int64_t sequence_length) {
  INGOT_CHECK(rows >= 0 && sequence_length >= 1 && rows <= INT32_MAX / sequence_length, "{} rows of {}", rows,
              sequence_length);
  Batch batch;
  batch.rows = rows;
  batch.sequence_length = sequence_length;
  const auto size = static_cast<size_t>(rows * sequence_length);
  batch.tokens.resize(size);
  batch.targets.assign(size, kMasked);
  batch.positions.resize(size);
  batch.origins.reserve(static_cast<size_t>(rows));
  return batch;
}

void append_window(const TokenSplit& split, int64_t first, const RowOptions& options, RowOrigin origin,
                   Batch& batch) {
  const int64_t S = batch.sequence_length;
  const int64_t inputs = std::min(S, split.tokens() - 1 - first);
  INGOT_CHECK(first >= 0 && inputs >= 1, "window at {} of {} tokens", first, split.tokens());
  const int32_t begin = row_begin(batch);
  const size_t first_span = batch.spans.size();
  std::vector<int32_t> window(static_cast<size_t>(inputs) + 1);
  split.read(first, window);
  std::copy_n(window.begin(), inputs, batch.tokens.begin() + begin);
  std::copy_n(window.begin() + 1, inputs, batch.targets.begin() + begin);
  mask_prompts(split, first + 1,
               std::span(batch.targets).subspan(static_cast<size_t>(begin), static_cast<size_t>(inputs)));

  const auto row_of = [&](int64_t token) { return begin + static_cast<int32_t>(token - first); };
  const int64_t end = first + inputs;
  int32_t span_begin = begin;
  int64_t document = split.document_at(first);
  for (int64_t token = first; token < end; ++document) {
    const int64_t next = split.document_begin(document + 1);
    if (next <= token) continue;  // an empty document
    const int64_t piece_end = std::min(next, end);
    batch.pieces.push_back({row_of(token), row_of(piece_end), document});
    if (options.document_mask) close_span(span_begin, row_of(piece_end), batch);
    if (next <= end && options.masks_document_start())
      batch.targets[static_cast<size_t>(row_of(next - 1))] = kMasked;
    token = piece_end;
  }
  close_span(span_begin, row_of(end), batch);
  append_padding(row_of(end), begin + static_cast<int32_t>(S), batch);
  origin.first_token = first;
  finish_row(begin, first_span, origin, batch);
}

void append_documents(const TokenSplit& split, std::span<const int64_t> documents, const RowOptions& options,
                      RowOrigin origin, Batch& batch, const std::map<int64_t, Trimmed>& trimmed) {
  const int32_t begin = row_begin(batch);
  const size_t first_span = batch.spans.size();
  const auto row_end = begin + static_cast<int32_t>(batch.sequence_length);
  int32_t at = begin;
  int32_t span_begin = begin;
  for (const int64_t document : documents) {
    const int64_t first = split.document_begin(document);
    const auto cut = trimmed.find(document);
    const std::vector<Trimmed::Range> whole = {{0, split.document_begin(document + 1) - first}};
    const std::vector<Trimmed::Range>& ranges = cut == trimmed.end() ? whole : cut->second.kept;
    const int32_t start = at;
    for (const Trimmed::Range& range : ranges) {
      const int64_t size = range.end - range.begin, token = first + range.begin;
      INGOT_CHECK(size <= row_end - at, "document {} of {} tokens does not fit", document, size);
      if (size == 0) continue;
      split.read(token, std::span(batch.tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(size)));
      // Each token is the target of the position before it. Without a mask the documents are one text, as in
      // a window: the next document's start is a target too.
      for (int64_t i = 0; i < size; ++i) {
        const int32_t here = at + static_cast<int32_t>(i);
        const bool starts = here == start;
        if (here == begin || (starts && options.masks_document_start()) || !split.in_loss(token + i))
          continue;
        batch.targets[static_cast<size_t>(here) - 1] = batch.tokens[static_cast<size_t>(here)];
      }
      at += static_cast<int32_t>(size);
    }
    if (at == start) continue;
    batch.pieces.push_back({start, at, document});
    if (options.document_mask) close_span(span_begin, at, batch);
  }
  close_span(span_begin, at, batch);
  append_padding(at, row_end, batch);
  finish_row(begin, first_span, origin, batch);
}

ValidationPass::ValidationPass(std::shared_ptr<const TokenSplit> split, int64_t sequence_length,
                               RowOptions options)
    : split_(std::move(split)), sequence_length_(sequence_length), options_(options) {
  if (sequence_length < 1) fail("sequence length is {}, expected at least 1", sequence_length);
  if (split_->tokens() < 2)
    throw Error(fmt::format("the {} split of '{}' has {} tokens, expected at least 2", split_->name(),
                            split_->source(), split_->tokens()),
                "hold out more text");
  const int64_t all = split_->tokens() - 1;
  windows_ = ceil_div(all, sequence_length);
  targets_ = all;
  for (int64_t t = 1; split_->prompts() && t <= all; ++t) targets_ -= split_->in_loss(t) ? 0 : 1;
  if (options_.masks_document_start()) {
    for (int64_t d = 1; d < split_->documents(); ++d) {
      const int64_t begin = split_->document_begin(d);
      // One target is masked wherever two documents meet; empty documents meet at the same position.
      if (begin > 0 && begin < split_->tokens() && begin != split_->document_begin(d - 1) &&
          split_->in_loss(begin))
        --targets_;
    }
  }
}

Batch ValidationPass::batch(int64_t first, int64_t rows) const {
  INGOT_CHECK(first >= 0 && first <= windows_ && rows >= 0, "windows {} + {} of {}", first, rows, windows_);
  const int64_t here = std::min(rows, windows_ - first);
  Batch batch = make_batch(here, sequence_length_);
  for (int64_t w = first; w < first + here; ++w)
    append_window(*split_, w * sequence_length_, options_, {0, w, w, w, 0}, batch);
  return batch;
}

BatchDiversity diversity(const Batch& batch) {
  BatchDiversity result;
  std::map<std::pair<int32_t, int64_t>, int64_t> tokens;  // by (source, document)
  int64_t total = 0;
  for (const DocumentPiece& piece : batch.pieces) {
    if (piece.document < 0) continue;
    const RowOrigin& origin = batch.origins[static_cast<size_t>(piece.begin / batch.sequence_length)];
    tokens[{origin.source, piece.document}] += piece.end - piece.begin;
    total += piece.end - piece.begin;
  }
  result.documents = static_cast<int64_t>(tokens.size());
  for (const auto& [key, count] : tokens)
    result.largest_share =
        std::max(result.largest_share, static_cast<double>(count) / static_cast<double>(total));
  double squares = 0;
  for (const Span& span : batch.spans) squares += std::pow(span.end - span.begin, 2);
  if (!batch.tokens.empty()) result.span_tokens = squares / static_cast<double>(batch.tokens.size());
  for (const RowOrigin& origin : batch.origins) {
    const auto source = static_cast<size_t>(origin.source);
    if (result.rows_per_source.size() <= source) result.rows_per_source.resize(source + 1);
    ++result.rows_per_source[source];
  }
  return result;
}

}  // namespace ingot::data
