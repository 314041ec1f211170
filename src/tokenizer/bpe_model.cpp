// See bpe_model.h.
#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/fallback_bytes.h"
#include "tokenizer/piece_hash.h"

namespace ingot {
namespace {

constexpr int32_t kNoRank = INT32_MAX;
constexpr size_t kShortPiece = 40;  // below: scan for the lowest rank; above: heap
constexpr uint32_t kEnd = UINT32_MAX;

size_t table_size(size_t items) {
  return std::bit_ceil(items * 2 + 2);
}

}  // namespace

BpeScratch::BpeScratch() : shorts_(kShorts) {}

BpeModel::BpeModel(const TokenizerSpec& spec)
    : over_characters_(spec.model == TokenizerSpec::Model::character_bpe) {
  std::fill(std::begin(byte_id_), std::end(byte_id_), -1);
  if (over_characters_)
    add_characters(spec);
  else
    find_bytes(spec);
  add_merges(spec);
  add_whole_pieces(spec);
}

void BpeModel::find_bytes(const TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.vocabulary.size(); ++id) {
    const auto bytes = byte_level::from_alphabet(spec.vocabulary[id]);
    if (bytes && bytes->size() == 1) byte_id_[static_cast<uint8_t>((*bytes)[0])] = static_cast<int32_t>(id);
  }
  for (int b = 0; b < 256; ++b)
    if (byte_id_[b] < 0)
      fail("model.vocab has no token for byte 0x{:02x} ('{}'): not a complete byte-level vocabulary", b,
           byte_level::to_alphabet(std::string(1, static_cast<char>(b))));
}

void BpeModel::add_characters(const TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.vocabulary.size(); ++id) {
    const std::string_view token = spec.vocabulary[id];
    if (const int byte = fallback_byte(token); byte >= 0) byte_id_[byte] = static_cast<int32_t>(id);
    uint32_t previous = 0;
    for (size_t at = 0; at < token.size();) {
      const utf8::Step step = utf8::decode(token.substr(at));
      if (step.status != utf8::Status::valid) fail("model.vocab: token {} is not valid UTF-8", id);
      if (step.length == token.size())
        character_id_[pair_key(0, static_cast<int32_t>(step.code_point))] = static_cast<int32_t>(id) + 1;
      if (at > 0)
        neighbours_[pair_key(static_cast<int32_t>(previous), static_cast<int32_t>(step.code_point))] = true;
      previous = step.code_point;
      at += step.length;
    }
  }
  require_fallback(byte_id_, [&](int c) { return character_id_.find(pair_key(0, c)) != nullptr; });
}

void BpeModel::add_merges(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, int32_t> id_of;
  for (size_t id = 0; id < spec.vocabulary.size(); ++id)
    if (!spec.vocabulary[id].empty()) id_of.emplace(spec.vocabulary[id], static_cast<int32_t>(id));
  merges_ = PairMap<Merged>(spec.merges.size());
  std::vector<bool> is_byte(spec.vocabulary.size());
  for (const int32_t id : byte_id_)
    if (id >= 0) is_byte[static_cast<size_t>(id)] = true;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right] = spec.merges[rank];
    bytes_merge_ = bytes_merge_ || is_byte[static_cast<size_t>(left)] || is_byte[static_cast<size_t>(right)];
    const std::string joined =
        spec.vocabulary[static_cast<size_t>(left)] + spec.vocabulary[static_cast<size_t>(right)];
    const auto token = id_of.find(joined);
    if (token == id_of.end()) fail("model.merges[{}] makes '{}', which is not in model.vocab", rank, joined);
    merges_[pair_key(left, right)] = {static_cast<int32_t>(rank),
                                      token->second};  // a pair named twice: the later rank counts
  }
  if (over_characters_) return;
  byte_pairs_.resize(256 * 256);
  for (size_t left = 0; left < 256; ++left)
    for (size_t right = 0; right < 256; ++right)
      byte_pairs_[left * 256 + right] = find(byte_id_[left], byte_id_[right]);
}

void BpeModel::add_whole_pieces(const TokenizerSpec& spec) {
  std::vector<bool> special(spec.vocabulary.size());
  for (const AddedToken& t : spec.added_tokens)
    if (static_cast<size_t>(t.id) < special.size()) special[static_cast<size_t>(t.id)] = true;
  whole_.resize(table_size(spec.vocabulary.size()));
  const size_t mask = whole_.size() - 1;
  BpeScratch scratch;
  std::vector<int32_t> ids;
  for (size_t id = 0; id < spec.vocabulary.size(); ++id) {
    if (special[id] || spec.vocabulary[id].empty()) continue;  // control tokens never come out of plain text
    const auto bytes = over_characters_ ? std::optional(spec.vocabulary[id])
                                        : byte_level::from_alphabet(spec.vocabulary[id]);
    if (!bytes) continue;
    ids.clear();
    if (!spec.ignore_merges) merge(*bytes, scratch, ids);
    if (!spec.ignore_merges && (ids.size() != 1 || ids[0] != static_cast<int32_t>(id))) continue;
    const uint64_t hash = piece_hash(*bytes);
    size_t slot = hash & mask;
    while (whole_[slot].id >= 0) slot = (slot + 1) & mask;
    whole_[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(id),
                    static_cast<uint32_t>(whole_bytes_.size()), static_cast<uint32_t>(bytes->size())};
    whole_bytes_ += *bytes;
  }
}

BpeModel::Merged BpeModel::find(int32_t left, int32_t right) const {
  const Merged* merged = merges_.find(pair_key(left, right));
  return merged != nullptr ? *merged : Merged{kNoRank, -1};
}

int32_t BpeModel::whole_piece(std::string_view piece, uint64_t hash) const {
  const size_t mask = whole_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t slot = hash & mask; whole_[slot].id >= 0; slot = (slot + 1) & mask) {
    const Whole& w = whole_[slot];
    if (w.tag == tag && w.size == piece.size() &&
        std::memcmp(whole_bytes_.data() + w.offset, piece.data(), piece.size()) == 0)
      return w.id;
  }
  return -1;
}

/// Flattened: in a file this large gcc calls push_back() once a token otherwise, a twentieth of encoding.
[[gnu::flatten]] void BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                                       std::vector<int32_t>& ids) const {
  if (piece.size() > ShortPiece::kMaxBytes) return encode_anew(piece, scratch, ids);
  const ShortPiece key(piece);
  BpeScratch::Short& known = scratch.shorts_[key.hash() % BpeScratch::kShorts];
  if (known.piece == key) {
    for (const int32_t id : known.ids) {
      if (id < 0) break;
      ids.push_back(id);
    }
    return;
  }
  const size_t before = ids.size();
  encode_anew(piece, scratch, ids);
  const size_t count = ids.size() - before;
  if (count > std::size(known.ids)) return;
  known.piece = key;
  std::fill(std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), known.ids),
            std::end(known.ids), -1);
}

[[gnu::noinline]] void BpeModel::encode_anew(std::string_view piece, BpeScratch& scratch,
                                             std::vector<int32_t>& ids) const {
  const uint64_t hash = piece_hash(piece);
  if (const int32_t id = whole_piece(piece, hash); id >= 0) {
    ids.push_back(id);
    return;
  }
  merge(piece, scratch, ids);
}

struct BpeModel::StartBytes {
  const BpeModel& model;
  std::string_view piece;
  uint8_t byte(size_t i) const { return static_cast<uint8_t>(piece[i]); }
  int32_t symbol(size_t i) const { return model.byte_id_[byte(i)]; }
  Merged pair(size_t i) const { return model.byte_pairs_[byte(i) * 256u + byte(i + 1)]; }
};

struct BpeModel::StartSymbols {
  const BpeModel& model;
  const std::vector<int32_t>& symbols;
  int32_t symbol(size_t i) const { return symbols[i]; }
  Merged pair(size_t i) const { return model.find(symbols[i], symbols[i + 1]); }
};

void BpeModel::merge(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (!over_characters_) return merge_from(StartBytes{*this, piece}, piece.size(), scratch, ids);
  start_with_characters(piece, scratch.symbols_);
  merge_from(StartSymbols{*this, scratch.symbols_}, scratch.symbols_.size(), scratch, ids);
}

void BpeModel::start_with_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
  symbols.clear();
  for (size_t at = 0; at < piece.size();) {
    const utf8::Step step = utf8::decode(piece.substr(at));
    const int32_t* id = step.status == utf8::Status::valid
                            ? character_id_.find(pair_key(0, static_cast<int32_t>(step.code_point)))
                            : nullptr;
    if (id != nullptr)
      symbols.push_back(*id - 1);
    else
      for (size_t i = 0; i < step.length; ++i)
        symbols.push_back(byte_id_[static_cast<uint8_t>(piece[at + i])]);
    at += step.length;
  }
}

void BpeModel::encode_characters(std::string_view piece, BpeScratch& scratch,
                                 std::vector<int32_t>& ids) const {
  size_t begin = 0;
  uint32_t previous = 0;
  for (size_t at = 0; at < piece.size();) {
    const utf8::Step step = utf8::decode(piece.substr(at));
    const uint64_t pair = pair_key(static_cast<int32_t>(previous), static_cast<int32_t>(step.code_point));
    if (at > begin && !bytes_merge_ && neighbours_.find(pair) == nullptr) {
      encode(piece.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    previous = step.code_point;
    at += step.length;
  }
  if (begin < piece.size()) encode(piece.substr(begin), scratch, ids);
}

template <class Start>
void BpeModel::merge_from(const Start& start, size_t n, BpeScratch& scratch,
                          std::vector<int32_t>& ids) const {
  if (n <= kShortPiece) return merge_few(start, n, ids);
  merge_many(start, n, scratch, ids);
}

template <class Start>
void BpeModel::merge_few(const Start& start, size_t n, std::vector<int32_t>& ids) const {
  int32_t symbol[kShortPiece];
  Merged pair[kShortPiece];  // pair[i]: what symbol[i], symbol[i+1] merge to
  for (size_t i = 0; i < n; ++i) symbol[i] = start.symbol(i);
  for (size_t i = 0; i + 1 < n; ++i) pair[i] = start.pair(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pair[i].rank < pair[best].rank) best = i;
    if (pair[best].rank == kNoRank) break;
    symbol[best] = pair[best].id;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbol[i] = symbol[i + 1];
      pair[i] = pair[i + 1];
    }
    --n;
    if (best > 0) pair[best - 1] = find(symbol[best - 1], symbol[best]);
    if (best + 1 < n) pair[best] = find(symbol[best], symbol[best + 1]);
  }
  ids.insert(ids.end(), symbol, symbol + n);
}

template <class Start>
void BpeModel::merge_many(const Start& start, size_t count, BpeScratch& scratch,
                          std::vector<int32_t>& ids) const {
  INGOT_CHECK(count < kEnd / 2, "{} symbols", count);
  const auto n = static_cast<uint32_t>(count);
  std::vector<Node>& nodes = scratch.nodes_;
  std::vector<uint64_t>& heap = scratch.heap_;  // rank << 32 | position, smallest on top
  nodes.resize(n);
  heap.clear();
  const auto entry = [](int32_t rank, uint32_t at) { return (static_cast<uint64_t>(rank) << 32) | at; };
  for (uint32_t i = 0; i < n; ++i) {
    const int32_t rank = i + 1 < n ? start.pair(i).rank : kNoRank;
    nodes[i] = {start.symbol(i), rank, i == 0 ? kEnd : i - 1, i + 1 < n ? i + 1 : kEnd};
    if (rank != kNoRank) heap.push_back(entry(rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto rerank = [&](uint32_t at) {
    Node& node = nodes[at];
    node.rank = node.next == kEnd ? kNoRank : find(node.symbol, nodes[node.next].symbol).rank;
    if (node.rank == kNoRank) return;
    heap.push_back(entry(node.rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto at = static_cast<uint32_t>(heap.back());
    const auto rank = static_cast<int32_t>(heap.back() >> 32);
    heap.pop_back();
    Node& node = nodes[at];
    if (node.rank != rank) continue;  // this pair is gone
    Node& right = nodes[node.next];
    node.symbol = find(node.symbol, right.symbol).id;
    right.rank = kNoRank;
    node.next = right.next;
    if (node.next != kEnd) nodes[node.next].previous = at;
    rerank(at);
    if (node.previous != kEnd) rerank(node.previous);
  }
  for (uint32_t at = 0; at != kEnd; at = nodes[at].next) ids.push_back(nodes[at].symbol);
}

}  // namespace ingot
