// The documents of a call where the device may be asked for it again with others: as a tensor, an optional
// input of the ops that look along the sequence, in place of the BatchLayout of their attributes.
#pragma once
#include <span>
#include <vector>

#include "device/documents.h"
#include "ops/sequence/batch_layout.h"
#include "tape/op.h"

namespace ingot {

/// Documents of so many rows that scratch memory always suffices for.
constexpr int64_t most_documents(int64_t rows) {
  return rows / 8 + 16;
}

/// Of the layout those that have rows. None has a state.
int64_t count_documents(const BatchLayout& layout);
/// Writes them as the words of a DocumentList; there are document_words(capacity) of them.
void write_documents(const BatchLayout& layout, std::span<int32_t> words);

/// The list that is an input of a call, i32 [document_words(capacity)], where the call has it; without words
/// where it does not. For launches: the words may lie on a device.
DocumentList documents_of(const OpCall& call, uint32_t input);

/// For kernels of the CPU: the spans of a call, from its list of documents, if it has one, or from the layout
/// of its attributes.
class CallSpans {
 public:
  CallSpans(const OpCall& call, const BatchLayout* layout, uint32_t input);
  CallSpans(const CallSpans&) = delete;
  CallSpans& operator=(const CallSpans&) = delete;
  std::span<const SequenceSpan> spans() const { return spans_; }

 private:
  SequenceSpan whole_;
  std::vector<SequenceSpan> listed_;
  std::span<const SequenceSpan> spans_;
};

}  // namespace ingot
