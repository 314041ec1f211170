// See merge_learner.h. The distinct pieces ("words" in the reference) are flat arrays of symbols, changed in
// place. Every pair has an exact count and a list of the pieces that may contain it. A heap holds each pair
// once for every time that it gained pieces; an entry's count is corrected when it reaches the top, because
// counts only fall in between.
#include "tokenizer/merge_learner.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pair_map.h"

namespace ingot {
namespace {

constexpr int kProgressEvery = 64;
constexpr size_t kAhead = 8;

struct Word {
  size_t begin;
  uint32_t size;
  int64_t count;
};

struct Candidate {
  int64_t count;
  uint64_t pair;   // left << 32 | right: the order of ties
  uint32_t words;  // index into lists_
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

class Learner {
 public:
  Learner(const PieceCounter& pieces, const BpeTrainOptions& options, TokenizerSpec& spec)
      : options_(options), spec_(spec), max_length_(options.max_token_length) {
    for (size_t id = 0; id < spec.vocabulary.size(); ++id) name(static_cast<int32_t>(id));
    read_words(pieces);
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (size_t i = word.begin; i + 1 < word.begin + word.size; ++i)
        change(pair_key(symbols_[i], symbols_[i + 1]), w, word.count);
    }
    enqueue_born();
  }

  void run() {
    const auto goal = static_cast<size_t>(options_.vocab_size);
    while (spec_.vocabulary.size() < goal && !heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      Candidate top = heap_.back();
      heap_.pop_back();
      const int64_t now = pairs_[top.pair].count;
      if (top.count != now) {
        top.count = now;
        if (now > 0) push(top);
        continue;
      }
      if (now < std::max<int64_t>(options_.min_frequency, 1)) break;
      merge(top);
      if (options_.progress && merged_.size() % kProgressEvery == 0) report();
    }
    if (options_.progress) report();
    drop_repeated_merges();
  }

 private:
  struct Pair {
    int64_t count = 0;
    int32_t born = -1;  // list of pieces in which this step made the pair; -1: none
  };

  void report() const {
    options_.progress(static_cast<int32_t>(spec_.vocabulary.size()), options_.vocab_size);
  }

  /// Remembers token `id`: its text, and its length in bytes.
  void name(int32_t id) {
    const std::string& token = spec_.vocabulary[static_cast<size_t>(id)];
    id_of_.emplace(token, id);
    const auto characters =
        std::count_if(token.begin(), token.end(), [](char c) { return (c & 0xC0) != 0x80; });
    length_.push_back(static_cast<int32_t>(characters));
  }

  void read_words(const PieceCounter& pieces) {
    int32_t byte_id[256];
    for (int b = 0; b < 256; ++b)
      byte_id[b] = id_of_.at(byte_level::to_alphabet(std::string(1, static_cast<char>(b))));
    pieces.for_each([&](std::string_view piece, int64_t count) {
      if (piece.size() < 2) return;  // no pairs
      INGOT_CHECK(piece.size() < UINT32_MAX && words_.size() < UINT32_MAX);
      words_.push_back({symbols_.size(), static_cast<uint32_t>(piece.size()), count});
      for (const char c : piece) symbols_.push_back(byte_id[static_cast<uint8_t>(c)]);
    });
  }

  void change(uint64_t pair, uint32_t word, int64_t by) {
    Pair& p = pairs_[pair];
    p.count += by;
    if (by < 0) return;
    if (p.born < 0) {
      p.born = static_cast<int32_t>(new_list());
      born_.push_back(pair);
    }
    auto& list = lists_[static_cast<size_t>(p.born)];
    if (list.empty() || list.back() != word) list.push_back(word);
  }

  uint32_t new_list() {
    if (free_lists_.empty()) {
      lists_.emplace_back();
      return static_cast<uint32_t>(lists_.size() - 1);
    }
    const uint32_t list = free_lists_.back();
    free_lists_.pop_back();
    return list;
  }

  void push(const Candidate& c) {
    heap_.push_back(c);
    std::push_heap(heap_.begin(), heap_.end());
  }

  void enqueue_born() {
    for (const uint64_t pair : born_) {
      Pair& p = pairs_[pair];
      if (p.count > 0) push({p.count, pair, static_cast<uint32_t>(p.born)});
      p.born = -1;
    }
    born_.clear();
  }

  void merge(const Candidate& top) {
    const auto left = static_cast<int32_t>(top.pair >> 32);
    const auto right = static_cast<int32_t>(top.pair & UINT32_MAX);
    const std::string token =
        spec_.vocabulary[static_cast<size_t>(left)] + spec_.vocabulary[static_cast<size_t>(right)];
    const auto known = id_of_.find(token);  // "aa"+"aaa" and "aaa"+"aa" make one token
    int32_t id;
    if (known != id_of_.end()) {
      id = known->second;
    } else {
      id = static_cast<int32_t>(spec_.vocabulary.size());
      spec_.vocabulary.push_back(token);
      name(id);
    }
    merged_.push_back({left, right});
    const std::vector<uint32_t> list = std::move(lists_[top.words]);
    lists_[top.words] = {};
    free_lists_.push_back(top.words);
    for (size_t i = 0; i < list.size(); ++i) {  // pieces are scattered in memory: prefetch the next ones
      if (i + 2 * kAhead < list.size()) __builtin_prefetch(&words_[list[i + 2 * kAhead]]);
      if (i + kAhead < list.size()) __builtin_prefetch(&symbols_[words_[list[i + kAhead]].begin]);
      merge_in_word(list[i], left, right, id);
    }
    enqueue_born();
  }

  /// Word::merge of the reference: counts of the pairs that touch a merged one change, and pairs that would
  /// make a token of max_token_length or more are never counted.
  void merge_in_word(uint32_t w, int32_t left, int32_t right, int32_t id) {
    Word& word = words_[w];
    int32_t* s = symbols_.data() + word.begin;
    const auto fits = [&](int32_t a, int32_t b) {
      return max_length_ == 0 ||
             length_[static_cast<size_t>(a)] + length_[static_cast<size_t>(b)] < max_length_;
    };
    uint32_t out = 0;
    for (uint32_t i = 0; i < word.size; ++i) {
      if (s[i] != left || i + 1 == word.size || s[i + 1] != right) {
        s[out++] = s[i];
        continue;
      }
      if (out > 0) {
        change(pair_key(s[out - 1], left), w, -word.count);
        if (fits(s[out - 1], id)) change(pair_key(s[out - 1], id), w, word.count);
      }
      if (i + 2 < word.size) {
        change(pair_key(right, s[i + 2]), w, -word.count);
        if (fits(id, s[i + 2])) change(pair_key(id, s[i + 2]), w, word.count);
      }
      s[out++] = id;
      ++i;
    }
    word.size = out;
  }

  /// A pair that was merged twice keeps its later rank, as in the reference's map.
  void drop_repeated_merges() {
    PairMap<size_t> last(merged_.size());
    for (size_t i = 0; i < merged_.size(); ++i) last[pair_key(merged_[i][0], merged_[i][1])] = i;
    for (size_t i = 0; i < merged_.size(); ++i)
      if (last[pair_key(merged_[i][0], merged_[i][1])] == i) spec_.merges.push_back(merged_[i]);
  }

  const BpeTrainOptions& options_;
  TokenizerSpec& spec_;
  const int32_t max_length_;
  std::unordered_map<std::string, int32_t> id_of_;
  std::vector<int32_t> length_;  // bytes by token id
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  PairMap<Pair> pairs_;
  std::vector<std::vector<uint32_t>> lists_;
  std::vector<uint32_t> free_lists_;
  std::vector<uint64_t> born_;  // pairs that gained pieces in this step
  std::vector<Candidate> heap_;
  std::vector<std::array<int32_t, 2>> merged_;
};

}  // namespace

void learn_merges(const PieceCounter& pieces, const BpeTrainOptions& options, TokenizerSpec& spec) {
  Learner(pieces, options, spec).run();
}

}  // namespace ingot
