// See unigram_model.h.
#include "tokenizer/unigram_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/fallback_bytes.h"

namespace ingot {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least score

/// A score as the tokenizers library reads it: its JSON reader (serde_json) rounds the digits to a double and
/// divides that by a power of ten, up to one unit in the last place off. Two ways to write a piece have equal
/// sums as often as their tokens are the same in another order, and this unit decides between them.
double read_by_tokenizers(double score) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, std::abs(score), std::chars_format::scientific);
  uint64_t digits = 0;
  int exponent = 0;
  const char* c = text;
  for (bool fraction = false; *c != 'e'; ++c) {
    if (*c == '.') {
      fraction = true;
      continue;
    }
    digits = 10 * digits + static_cast<uint64_t>(*c - '0');
    exponent -= fraction;
  }
  int power = 0;
  c += c[1] == '+' ? 2 : 1;
  std::from_chars(c, end.ptr, power);
  exponent += power;
  const double scale = std::pow(10.0, std::abs(exponent)), value = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? value / scale : value * scale, score);
}

}  // namespace

UnigramModel::UnigramModel(const TokenizerSpec& spec) : nodes_(1), scores_(spec.scores) {
  if (scores_.size() != spec.vocabulary.size())
    fail("model.vocab: {} tokens have {} scores", spec.vocabulary.size(), scores_.size());
  std::fill(std::begin(byte_id_), std::end(byte_id_), -1);
  std::vector<bool> special(spec.vocabulary.size());
  for (const AddedToken& t : spec.added_tokens)
    if (static_cast<size_t>(t.id) < special.size() && t.special) special[static_cast<size_t>(t.id)] = true;
  double least = 0;
  for (size_t id = 0; id < scores_.size(); ++id) {
    if (spec.vocabulary[id].empty()) continue;
    if (!std::isfinite(scores_[id])) fail("model.vocab[{}]: the score is not finite", id);
    scores_[id] = read_by_tokenizers(scores_[id]);
    least = std::min(least, scores_[id]);
    const int byte = fallback_byte(spec.vocabulary[id]);
    if (byte >= 0) byte_id_[byte] = static_cast<int32_t>(id);
    // Control tokens and the names of bytes never come out of plain text.
    if (byte < 0 && !special[id] && static_cast<int32_t>(id) != spec.unknown)
      add(spec.vocabulary[id], static_cast<int32_t>(id));
  }
  unknown_score_ = least - kUnknownPenalty;
  require_fallback(byte_id_, [&](int c) {
    const char text = static_cast<char>(c);
    return find({&text, 1}) >= 0;
  });
}

void UnigramModel::add(std::string_view token, int32_t id) {
  int32_t node = 0;
  for (const char c : token) {
    int32_t& next = child_[pair_key(node, static_cast<uint8_t>(c))];
    if (next == 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].id = id;
}

int32_t UnigramModel::find(std::string_view token) const {
  int32_t node = 0;
  for (const char c : token) {
    const int32_t* next = child_.find(pair_key(node, static_cast<uint8_t>(c)));
    if (next == nullptr) return -1;
    node = *next;
  }
  return nodes_[static_cast<size_t>(node)].id;
}

void UnigramModel::encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const {
  for (const char c : bytes) {
    const int32_t id = byte_id_[static_cast<uint8_t>(c)];
    ids.push_back(id >= 0 ? id : find({&c, 1}));
  }
}

void UnigramModel::encode(std::string_view piece, UnigramScratch& scratch, std::vector<int32_t>& ids) const {
  using Best = UnigramScratch::Best;
  std::vector<Best>& best = scratch.best;
  best.assign(piece.size() + 1, {0, -1, -1});
  const auto reach = [&](size_t end, double score, size_t begin, int32_t id) {
    Best& b = best[end];
    if (b.begin >= 0 && score <= b.score) return;
    b = {score, static_cast<int32_t>(begin), id};
  };
  for (size_t at = 0; at < piece.size();) {
    const double so_far = best[at].score;
    const size_t character = utf8::decode(piece.substr(at)).length;
    bool alone = false;  // the character is a token
    int32_t node = 0;
    for (size_t end = at; end < piece.size();) {
      const int32_t* next = child_.find(pair_key(node, static_cast<uint8_t>(piece[end])));
      if (next == nullptr) break;
      node = *next;
      ++end;
      const int32_t id = nodes_[static_cast<size_t>(node)].id;
      if (id < 0) continue;
      reach(end, so_far + scores_[static_cast<size_t>(id)], at, id);
      alone = alone || end == at + character;
    }
    if (!alone) reach(at + character, so_far + unknown_score_, at, -1);
    at += character;
  }
  std::vector<Best>& path = scratch.path;
  path.clear();
  for (auto end = static_cast<int32_t>(piece.size()); end > 0; end = best[static_cast<size_t>(end)].begin)
    path.push_back({0, end, best[static_cast<size_t>(end)].id});
  int32_t begin = 0;
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    if (step->id >= 0)
      ids.push_back(step->id);
    else
      encode_bytes(piece.substr(static_cast<size_t>(begin), static_cast<size_t>(step->begin - begin)), ids);
    begin = step->begin;
  }
}

}  // namespace ingot
