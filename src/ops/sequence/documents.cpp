// See documents.h.
#include "ops/sequence/documents.h"

#include <algorithm>

namespace ingot {

int64_t count_documents(const BatchLayout& layout) {
  return std::count_if(layout.spans.begin(), layout.spans.end(),
                       [](const SequenceSpan& s) { return s.rows > 0; });
}

void write_documents(const BatchLayout& layout, std::span<int32_t> words) {
  const int64_t capacity = (std::ssize(words) - 2) / 2, count = count_documents(layout);
  INGOT_CHECK(document_words(capacity) == std::ssize(words) && count <= capacity,
              "{} documents in a list of {} words", count, words.size());
  std::fill(words.begin(), words.end(), 0);
  words[0] = static_cast<int32_t>(count);
  size_t d = 0;
  for (const SequenceSpan& s : layout.spans) {
    if (s.rows == 0) continue;
    INGOT_CHECK(s.state == nullptr, "a sequence with a cache in a list of documents");
    words[1 + d] = static_cast<int32_t>(s.row_begin);
    words[2 + static_cast<size_t>(capacity) + d] = static_cast<int32_t>(s.phase);
    ++d;
  }
  words[1 + d] = static_cast<int32_t>(layout.count);
}

DocumentList documents_of(const OpCall& call, uint32_t input) {
  if (call.in.size() <= input || !call.in[input].defined()) return {};
  const Tensor& t = call.in[input];
  return {static_cast<const int32_t*>(t.data), (t.numel() - 2) / 2};
}

CallSpans::CallSpans(const OpCall& call, const BatchLayout* layout, uint32_t input) {
  const int64_t rows = call.in[0].dim(0);
  const DocumentList list = documents_of(call, input);
  if (list.words == nullptr) {
    spans_ = spans_of(layout, rows, whole_);
    return;
  }
  INGOT_CHECK(0 <= list.count() && list.count() <= list.capacity && list.first_row(list.count()) == rows,
              "{} documents of {} rows in a list for {} of {}", list.count(), list.first_row(list.count()),
              list.capacity, rows);
  for (int64_t d = 0; d < list.count(); ++d)
    listed_.push_back({list.first_row(d), list.rows(d), 0, nullptr, list.phase(d)});
  spans_ = listed_;
}

}  // namespace ingot
