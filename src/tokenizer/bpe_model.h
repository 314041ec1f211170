// Byte-pair encoding of one piece of text: the tokens of its bytes, or in a model over characters those of
// its characters (of the bytes of characters without a token), are merged, always the adjacent pair of lowest
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
  std::vector<int32_t> symbols_;  // of the characters of a piece
};

class BpeModel {
 public:
  /// Throws Error if a byte has no token or a merge does not fit the vocabulary.
  explicit BpeModel(const TokenizerSpec& spec);

  /// Appends the ids of `piece` (any bytes, at most 2^31 - 1).
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  /// The same for a long piece (valid UTF-8) of a model over characters: it is cut between characters that no
  /// token has beside each other, which changes nothing and lets parts be looked up.
  void encode_characters(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  using Node = BpeScratch::Node;
  struct Merged {
    int32_t rank, id;
  };
  Merged find(int32_t left, int32_t right) const;
  void find_bytes(const TokenizerSpec& spec);
  void add_characters(const TokenizerSpec& spec);
  void add_merges(const TokenizerSpec& spec);
  void add_whole_pieces(const TokenizerSpec& spec);
  int32_t whole_piece(std::string_view piece, uint64_t hash) const;
  void encode_anew(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void merge(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  /// The tokens of the characters.
  void start_with_characters(std::string_view piece, std::vector<int32_t>& symbols) const;
  /// `start.symbol(i)`: the i-th of n tokens to merge, `start.pair(i)`: what it and the next merge to.
  template <class Start>
  void merge_few(const Start& start, size_t n, std::vector<int32_t>& ids) const;
  template <class Start>
  void merge_many(const Start& start, size_t n, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  template <class Start>
  void merge_from(const Start& start, size_t n, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  struct StartBytes;
  struct StartSymbols;

  bool over_characters_;
  int32_t byte_id_[256];
  PairMap<int32_t> character_id_;   // by pair_key(0, code point); 0: none, else id + 1
  PairMap<bool> neighbours_;        // characters that some token has beside each other
  bool bytes_merge_ = false;        // some merge is of a byte's token: texts are not cut
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
