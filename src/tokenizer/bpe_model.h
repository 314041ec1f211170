// Byte-pair encoding of one piece of text: the bytes' tokens are merged, always the adjacent pair of lowest
// rank, the leftmost first, until no pair has a rank (huggingface/tokenizers, models/bpe). Short pieces are
// merged by scanning, long ones with a heap (n log n); pieces that are one token, and recently seen ones, are
// looked up.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_spec.h"

namespace ingot {

/// Buffers and the cache of recent pieces for one call at a time; belongs to one BpeModel.
class BpeScratch {
 public:
  BpeScratch();

 private:
  friend class BpeModel;
  static constexpr size_t kEntries = 1 << 14;
  static constexpr size_t kMaxBytes = 30;
  static constexpr size_t kMaxIds = 8;
  struct Entry {
    uint8_t size = 0;  // of the piece; 0: empty entry
    uint8_t count = 0;
    char piece[kMaxBytes];
    int32_t ids[kMaxIds];
  };
  struct Node {
    int32_t symbol;
    int32_t rank;  // of (this, next); kNoRank where they do not merge
    uint32_t previous, next;
  };
  std::vector<Entry> cache_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;
};

class BpeModel {
 public:
  /// Throws Error if a byte has no token or a merge does not fit the vocabulary.
  explicit BpeModel(const TokenizerSpec& spec);

  /// Appends the ids of `piece` (any bytes, at most 2^31 - 1).
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  using Node = BpeScratch::Node;
  struct Merge {
    uint64_t pair = UINT64_MAX;  // left << 32 | right
    int32_t rank = 0;
    int32_t id = 0;
  };
  struct Merged {
    int32_t rank, id;
  };
  Merged find(int32_t left, int32_t right) const;
  void add_merges(const TokenizerSpec& spec);
  void add_whole_pieces(const TokenizerSpec& spec);
  int32_t whole_piece(std::string_view piece, uint64_t hash) const;
  void merge(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  int32_t byte_id_[256];
  std::vector<Merged> byte_pairs_;  // merges of two bytes, by left * 256 + right
  std::vector<Merge> merges_;       // open addressing, a power of two
  // Pieces that are exactly one token: open addressing over ids, their bytes in one string.
  struct Whole {
    uint32_t tag = 0;  // high half of the hash
    int32_t id = -1;
    uint32_t offset = 0, size = 0;
  };
  std::vector<Whole> whole_;
  std::string whole_bytes_;
};

}  // namespace ingot
