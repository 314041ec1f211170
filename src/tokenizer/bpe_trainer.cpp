// See bpe_trainer.h: counts pieces and builds the tokenizer around the learned merges. merge_learner.cpp has
// the merge loop.
#include "tokenizer/bpe_trainer.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/merge_learner.h"
#include "tokenizer/piece_counter.h"
#include "tokenizer/pre_tokenizer.h"

namespace ingot {
namespace {

TokenizerSpec spec_of(const BpeTrainOptions& options) {
  TokenizerSpec spec;
  set_pattern(spec, options.pattern);
  return spec;
}

}  // namespace

struct BpeTrainer::Impl {
  explicit Impl(BpeTrainOptions o) : options(std::move(o)), spec(spec_of(options)), pre_tokenizer(spec) {}

  void count(std::string_view text, RegexScratch& scratch, PieceCounter& counter) const {
    scratch.begin_text(text.size());
    while (!text.empty()) {
      const size_t good = utf8::valid_prefix(text);
      pre_tokenizer.split(text.substr(0, good), scratch, [&](std::string_view piece) { counter.add(piece); });
      text.remove_prefix(good);
      size_t bad = 0;
      while (bad < text.size()) {
        const utf8::Step step = utf8::decode(text.substr(bad));
        if (step.status == utf8::Status::valid) break;
        bad += step.length;
      }
      if (bad > 0) counter.add(text.substr(0, bad));
      text.remove_prefix(bad);
    }
  }

  /// A counter and a scratch for one range of documents at a time.
  struct Worker {
    PieceCounter counter;
    RegexScratch scratch;
  };
  std::unique_ptr<Worker> take_worker() {
    const std::lock_guard lock(mutex);
    if (workers.empty()) return std::make_unique<Worker>();
    auto worker = std::move(workers.back());
    workers.pop_back();
    return worker;
  }
  void give_worker(std::unique_ptr<Worker> worker) {
    const std::lock_guard lock(mutex);
    workers.push_back(std::move(worker));
  }

  BpeTrainOptions options;
  TokenizerSpec spec;  // splits only
  PreTokenizer pre_tokenizer;
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> workers;  // all of them between calls; guarded by mutex during one
};

BpeTrainer::BpeTrainer(BpeTrainOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  const BpeTrainOptions& o = impl_->options;
  const auto least = static_cast<int64_t>(256 + o.special_tokens.size());
  if (o.vocab_size < least)
    throw Error(
        fmt::format("vocab_size is {}, a byte-level vocabulary with {} special tokens needs at least {}",
                    o.vocab_size, o.special_tokens.size(), least));
  std::set<std::string> seen;
  for (const std::string& token : o.special_tokens) {
    if (token.empty() || utf8::valid_prefix(token) != token.size())
      fail("special token '{}' is empty or not valid UTF-8", utf8::repair(token));
    if (!seen.insert(token).second) fail("special token '{}' is named twice", token);
    if (const auto bytes = byte_level::from_alphabet(token); bytes && bytes->size() == 1)
      fail("special token '{}' is the name of a byte; use a longer one", token);
  }
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::span<const std::string_view> documents) {
  parallel_for(static_cast<int64_t>(documents.size()), 1, [&](int64_t begin, int64_t end) {
    auto worker = impl_->take_worker();
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      impl_->count(documents[i], worker->scratch, worker->counter);
    impl_->give_worker(std::move(worker));
  });
}

Tokenizer BpeTrainer::train() const {
  const BpeTrainOptions& options = impl_->options;
  PieceCounter all;
  for (const auto& worker : impl_->workers)
    worker->counter.for_each([&](std::string_view piece, int64_t count) { all.add(piece, count); });
  if (all.size() == 0) throw Error("there is no text to train a tokenizer on");

  TokenizerSpec spec = impl_->spec;
  for (size_t i = 0; i < options.special_tokens.size(); ++i) {
    spec.vocabulary.push_back(options.special_tokens[i]);
    spec.added_tokens.push_back({static_cast<int32_t>(i), options.special_tokens[i], true, false});
  }
  std::vector<uint32_t> alphabet;
  for (int b = 0; b < 256; ++b) alphabet.push_back(byte_level::code_point_of(static_cast<uint8_t>(b)));
  std::sort(alphabet.begin(), alphabet.end());
  for (const uint32_t c : alphabet) utf8::append(spec.vocabulary.emplace_back(), c);
  learn_merges(all, options, spec);
  const auto size = static_cast<int32_t>(spec.vocabulary.size());
  if (size < options.vocab_size)
    log::warn("the text yields a vocabulary of {} tokens, {} were asked for", size, options.vocab_size);
  return Tokenizer::from_spec(std::move(spec));
}

}  // namespace ingot
