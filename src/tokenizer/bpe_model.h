// Byte-pair encoding of one piece of text: the bytes' tokens are merged, always the adjacent pair of lowest
// rank, the leftmost first, until no pair has a rank (huggingface/tokenizers, models/bpe). Short pieces are
// merged by scanning, long ones with a heap (n log n); short pieces seen lately, and pieces that are one
// token, are looked up.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pair_map.h"
#include "tokenizer/piece_hash.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {

/// Buffers and the cache of recent pieces for one call at a time; belongs to one BpeModel.
class BpeScratch {
 public:
  BpeScratch();

 private:
  friend class BpeModel;
  /// A piece of up to 15 bytes with what it becomes, if that is at most four ids: half a cache line, found in
  /// one look.
  struct Short {
    ShortPiece piece;
    int32_t ids[4] = {-1, -1, -1, -1};  // -1 behind the last
  };
  static constexpr size_t kShorts = 1 << 15;
  std::vector<Short> shorts_;  // by hash; the newest stays

  struct Node {
    int32_t symbol;
    int32_t rank;  // of (this, next); kNoRank where they do not merge
    uint32_t previous, next;
  };
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
  struct Merged {
    int32_t rank, id;
  };
  Merged find(int32_t left, int32_t right) const;
  void add_merges(const TokenizerSpec& spec);
  void add_whole_pieces(const TokenizerSpec& spec);
  int32_t whole_piece(std::string_view piece, uint64_t hash) const;
  void encode_anew(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void merge(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;

  int32_t byte_id_[256];
  std::vector<Merged> byte_pairs_;  // merges of two bytes, by left * 256 + right
  PairMap<Merged> merges_;
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
