// Text to token ids and back: BPE over bytes or with byte fallback, and unigram models, as Hugging Face's
// tokenizers library does it (same ids, checked against it), and a character tokenizer for small
// experiments. A Tokenizer never changes after it is made;
// copies share one set of tables; every const method may be called from many threads at once. Formats and
// what is exact: docs/tokenizer.md.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_system.h"

namespace ingot {

struct TokenizerSpec;
class Tokenizer;

/// Counts the special tokens that texts spell and that stay text. Any threads may count in one.
class SpelledSpecials {
 public:
  void add(int32_t id);
  int64_t count() const { return count_; }
  /// "the prompt spells special tokens 3 times, e.g. <|im_end|>; they are text ...": a warning that names
  /// `option`, which makes them tokens. "" if none were counted.
  std::string warning(const Tokenizer& tokenizer, std::string_view where, std::string_view option) const;

 private:
  std::atomic<int64_t> count_{0};
  std::atomic<int32_t> lowest_id_{INT32_MAX};
};

/// Bytes of a text.
struct SpecialRange {
  size_t begin, end;
};

struct EncodeOptions {
  /// true: the text of a special token ("<|endoftext|>") becomes its id; false: it is text like any other, so
  /// a document cannot forge control tokens. Added tokens that are not special are always recognised.
  bool parse_special = false;
  /// With parse_special: only special tokens that lie wholly in one of these ranges become ids; elsewhere
  /// they are text, so a message inside a chat template cannot forge them. Null: the whole text.
  const std::vector<SpecialRange>* special_ranges = nullptr;
  SpelledSpecials* spelled = nullptr;  ///< without parse_special: counts the special tokens that stay text
  bool add_bos = false;  ///< put the begin-of-text token first; an Error if the tokenizer has none
  bool add_eos = false;  ///< put the end-of-text token last; an Error if the tokenizer has none
};

/// Ids of the usual roles; absent if the tokenizer names none.
struct TokenRoles {
  std::optional<int32_t> bos, eos, pad;
};

class Tokenizer {
 public:
  /// Reads a tokenizer.json, a SentencePiece model (*.model), or a folder with tokenizer.json (else
  /// tokenizer.model) and, if there, tokenizer_config.json (which names the roles; without it they follow
  /// from the template and from usual names, see docs/tokenizer.md).
  /// Errors name the file, the field, what was expected and found.
  static Tokenizer load(const std::string& path);
  /// The same from memory; `name` stands for the path in messages.
  static Tokenizer from_json(std::string_view text, const std::string& name = "tokenizer.json");
  static Tokenizer from_sentencepiece(std::string_view bytes, const std::string& name = "tokenizer.model");
  static Tokenizer from_spec(TokenizerSpec spec);
  /// Whether load() finds a file there: a path to one, or a folder with one.
  static bool holds_tokenizer(FileSystem& fs, const std::string& path);
  /// Character tokenizer over the distinct characters of `text` (valid UTF-8), ids in order of code points,
  /// then the special tokens. Encoding a character that is not among them is an Error.
  static Tokenizer from_characters(std::string_view text, std::span<const std::string> special_tokens = {});

  /// A path that ends in ".json": that file. Else: a folder, made if absent, with tokenizer.json and
  /// tokenizer_config.json, which Hugging Face's library loads. Each file is replaced atomically,
  /// tokenizer.json last: where it is, the tokenizer is whole.
  void save(const std::string& path, FileSystem& fs = real_file_system()) const;

  /// Ids of `text`, any bytes: what is not valid UTF-8 is encoded byte by byte (BPE) or refused (characters).
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// Appends to `ids` instead.
  void encode_to(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const;
  /// encode() of many texts, in parallel; the result does not depend on the number of threads.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 EncodeOptions options = {}) const;

  /// The exact bytes: decode_bytes(encode(x)) == x for any bytes x, unless the tokenizer normalizes, drops or
  /// adds text (NFC, a "Removed" split, add_prefix_space, tokens that strip white space; over characters, a
  /// text with U+2581, which is their space). Where the tokenizer puts a space before a text, it is taken off
  /// again. An unknown id is an Error.
  std::string decode_bytes(std::span<const int32_t> ids) const;
  /// The same as text: ill-formed UTF-8 (a token cut in the middle of a character) is replaced by U+FFFD.
  std::string decode(std::span<const int32_t> ids) const;

  /// Number of embedding rows that the ids need: the largest id plus one.
  int32_t vocab_size() const;
  /// Bytes that `id` stands for; valid as long as a copy of this tokenizer lives. An unknown id is an Error.
  std::string_view token_bytes(int32_t id) const;
  /// Id of the added (special) token with this text, if there is one.
  std::optional<int32_t> special_id(std::string_view content) const;
  bool is_special(int32_t id) const;
  const TokenRoles& roles() const;
  /// The token to put before whatever begins a sequence: what the template (post_processor) puts before a
  /// text. Where tokenizer_config.json says add_bos_token or add_eos_token, that counts instead, as in
  /// transformers.
  std::optional<int32_t> begin_token() const;
  /// 32 hex digits over the canonical tokenizer.json: equal for tokenizers that encode alike. Token shards
  /// record it.
  const std::string& content_hash() const;
  const TokenizerSpec& spec() const;

  struct Impl;  ///< tokenizer_impl.h, for this folder only

 private:
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  /// from_spec(), whose errors name the file.
  static Tokenizer compiled(TokenizerSpec spec, const std::string& name);
  std::shared_ptr<const Impl> impl_;
};

/// Turns ids into text as they are generated: only whole characters come out, bytes of an unfinished one wait
/// for the next id. The pieces joined are decode() of all ids, which continue a text: a space in front stays.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// Text that `id` completes, often all of its own; may be empty.
  std::string push(int32_t id);
  /// What is left at the end: U+FFFD if a character stayed unfinished, else nothing.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  std::string waiting_;
};

}  // namespace ingot
