// The implementation of Tokenizer: the spec compiled to tables, and the scratch buffers that calls use.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"
#include "tokenizer/unigram_model.h"

namespace ingot {

struct EncodeScratch {
  RegexScratch regex;
  BpeScratch bpe;
  UnigramScratch unigram;
  std::string prefixed;
};

/// Text between added tokens as a model over characters sees it; `at_start`: the whole text begins here.
std::string mark_spaces(SpaceRule rule, std::string_view text, bool at_start);

struct Tokenizer::Impl {
  explicit Impl(TokenizerSpec s);

  void build_tokens();
  void choose_roles();
  std::optional<int32_t> find_token(std::string_view content) const;

  TokenizerSpec spec;
  std::vector<AddedToken> before;  // found before normalization
  std::vector<AddedToken> after;   // found after it
  AddedTokenFinder before_finder;
  AddedTokenFinder after_finder;
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // not of characters
  std::unique_ptr<BpeModel> bpe;                // over bytes or characters
  std::unique_ptr<UnigramModel> unigram;
  std::unordered_map<uint32_t, int32_t> id_of_character;
  std::vector<std::string> bytes;  // by id; "" for a hole
  std::vector<bool> special;       // by id
  TokenRoles roles;
  std::optional<int32_t> begin;  // what Tokenizer::begin_token() says
  std::string hash;

  /// Borrowed by one call; the pool grows to the number of calls at once.
  std::unique_ptr<EncodeScratch> borrow() const;
  void give_back(std::unique_ptr<EncodeScratch> scratch) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<EncodeScratch>> pool_;  // guarded by mutex_
};

}  // namespace ingot
