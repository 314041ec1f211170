// See token_shard.h.
#include "data/token_shard.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/round.h"

static_assert(std::endian::native == std::endian::little, "shards are mapped as they lie on disk");

namespace ingot::data {
namespace {

struct ShardHeader {
  char magic[8] = {'I', 'N', 'G', 'O', 'T', 'T', 'O', 'K'};
  uint32_t version = 1;
  uint32_t token_bytes = 0;
  uint64_t vocabulary = 0;
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t text_bytes = 0;
  char tokenizer_hash[32] = {};
  uint32_t prompts = 0;  // 1: a bitmap follows the tokens
  char reserved[44] = {};
};
static_assert(sizeof(ShardHeader) == 128);

int64_t padded(int64_t bytes) {
  return round_up(bytes, 8);
}

int64_t bitmap_bytes(int64_t tokens, bool prompts) {
  return prompts ? padded((tokens + 7) / 8) : 0;
}

int64_t shard_file_bytes(int64_t tokens, int64_t documents, int64_t token_bytes, bool prompts) {
  return static_cast<int64_t>(sizeof(ShardHeader)) + padded(tokens * token_bytes) +
         bitmap_bytes(tokens, prompts) + (documents + 1) * 8;
}

template <class T>
void append_tokens(std::span<const int32_t> tokens, std::vector<std::byte>& data) {
  const size_t old = data.size();
  data.resize(old + tokens.size() * sizeof(T));
  std::byte* out = data.data() + old;
  for (const int32_t token : tokens) {
    const T narrow = static_cast<T>(token);
    std::memcpy(out, &narrow, sizeof(T));
    out += sizeof(T);
  }
}

template <class T>
void widen(const std::byte* in, std::span<int32_t> out) {
  for (int32_t& token : out) {
    T narrow;
    std::memcpy(&narrow, in, sizeof(T));
    token = static_cast<int32_t>(narrow);
    in += sizeof(T);
  }
}

}  // namespace

ShardWriter::ShardWriter(int64_t vocabulary, std::string tokenizer_hash, bool prompts)
    : vocabulary_(vocabulary),
      token_bytes_(token_bytes_for(vocabulary)),
      tokenizer_hash_(std::move(tokenizer_hash)),
      prompts_(prompts) {
  INGOT_CHECK(tokenizer_hash_.size() == 32, "tokenizer hash '{}'", tokenizer_hash_);
}

int64_t ShardWriter::tokens() const {
  return static_cast<int64_t>(data_.size()) / token_bytes_;
}

void ShardWriter::add(std::span<const int32_t> tokens, int64_t text_bytes, int64_t prompt) {
  INGOT_CHECK(prompt == 0 || prompts_, "a prompt of {} tokens in a shard without prompts", prompt);
  std::vector<bool> in_loss(prompts_ ? tokens.size() : 0, true);
  std::fill_n(in_loss.begin(), prompt, false);
  add(tokens, text_bytes, in_loss);
}

void ShardWriter::add(std::span<const int32_t> tokens, int64_t text_bytes, const std::vector<bool>& in_loss) {
  INGOT_CHECK(in_loss.size() == (prompts_ ? tokens.size() : 0), "{} tokens, {} bits", tokens.size(),
              in_loss.size());
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocabulary_)
      fail("the tokenizer gave token {}, expected 0 to {} (its vocabulary)", token, vocabulary_ - 1);
  const int64_t first = this->tokens(), end = first + static_cast<int64_t>(tokens.size());
  starts_.push_back(static_cast<uint64_t>(first));
  in_loss_.resize(static_cast<size_t>(bitmap_bytes(end, prompts_)));
  for (int64_t t = first; prompts_ && t < end; ++t)
    if (in_loss[static_cast<size_t>(t - first)])
      in_loss_[static_cast<size_t>(t / 8)] |= std::byte{1} << static_cast<int>(t % 8);
  token_bytes_ == 2 ? append_tokens<uint16_t>(tokens, data_) : append_tokens<uint32_t>(tokens, data_);
  text_bytes_ += text_bytes;
}

ShardInfo ShardWriter::finish(FileSystem& fs, const std::string& folder, const std::string& file) {
  ShardInfo info{file, tokens(), documents(), text_bytes_, 0, {}};
  info.file_bytes = shard_file_bytes(info.tokens, info.documents, token_bytes_, prompts_);
  ShardHeader header;
  header.token_bytes = static_cast<uint32_t>(token_bytes_);
  header.vocabulary = static_cast<uint64_t>(vocabulary_);
  header.tokens = static_cast<uint64_t>(info.tokens);
  header.documents = static_cast<uint64_t>(info.documents);
  header.text_bytes = static_cast<uint64_t>(text_bytes_);
  header.prompts = prompts_ ? 1 : 0;
  std::memcpy(header.tokenizer_hash, tokenizer_hash_.data(), sizeof header.tokenizer_hash);
  starts_.push_back(header.tokens);
  data_.resize(static_cast<size_t>(padded(static_cast<int64_t>(data_.size()))));

  Hasher hasher;
  const auto out = fs.create(folder + "/" + file);
  const auto put = [&](const void* data, size_t size) {
    hasher.update(data, size);
    out->append(data, size);
  };
  put(&header, sizeof header);
  put(data_.data(), data_.size());
  put(in_loss_.data(), in_loss_.size());
  put(starts_.data(), starts_.size() * sizeof(uint64_t));
  out->sync();
  out->close();
  info.hash = hasher.hex();
  data_.clear();
  in_loss_.clear();
  starts_.clear();
  text_bytes_ = 0;
  return info;
}

Shard::Shard(FileSystem& fs, const std::string& folder, const ShardInfo& info,
             const DatasetManifest& manifest, bool verify)
    : path_(folder + "/" + info.file),
      tokens_(info.tokens),
      documents_(info.documents),
      token_bytes_(manifest.token_bytes),
      vocabulary_(manifest.vocabulary) {
  const int64_t expected = shard_file_bytes(tokens_, documents_, token_bytes_, manifest.prompts);
  if (info.file_bytes != expected)
    fail("the manifest of '{}' gives it {} bytes, but {} tokens and {} documents need {}", path_,
         info.file_bytes, tokens_, documents_, expected);
  map_ = fs.map(path_);
  const auto found = static_cast<int64_t>(map_->bytes().size());
  if (found != expected)
    throw Error(fmt::format("'{}' has {} bytes, expected {}", path_, found, expected),
                "the file was cut or changed; tokenize this source again");
  data_ = map_->bytes().data() + sizeof(ShardHeader);
  const std::byte* const after_tokens = data_ + padded(tokens_ * token_bytes_);
  in_loss_ = manifest.prompts ? after_tokens : nullptr;
  index_ = after_tokens + bitmap_bytes(tokens_, manifest.prompts);
  check_header(info, manifest);
  if (verify) check_content(info);
}

void Shard::check_header(const ShardInfo& info, const DatasetManifest& manifest) const {
  ShardHeader h;
  std::memcpy(&h, map_->bytes().data(), sizeof h);
  if (std::memcmp(h.magic, ShardHeader{}.magic, sizeof h.magic) != 0)
    fail("'{}' does not begin with 'INGOTTOK': it is no token shard", path_);
  if (h.version != ShardHeader{}.version) fail("'{}' has shard version {}, expected 1", path_, h.version);
  const auto compare = [&](const char* what, uint64_t found, int64_t expected) {
    if (found != static_cast<uint64_t>(expected))
      throw Error(fmt::format("'{}': its header says {} {}, expected {} from the manifest", path_, what,
                              found, expected),
                  "the file belongs to another dataset or was changed; tokenize this source again");
  };
  compare("token width", h.token_bytes, token_bytes_);
  compare("vocabulary", h.vocabulary, vocabulary_);
  compare("token count", h.tokens, tokens_);
  compare("document count", h.documents, documents_);
  compare("text bytes", h.text_bytes, info.text_bytes);
  compare("prompts", h.prompts, manifest.prompts ? 1 : 0);
  const std::string hash(h.tokenizer_hash, sizeof h.tokenizer_hash);
  if (hash != manifest.tokenizer_hash)
    fail("'{}' was made with tokenizer {}, expected {} from the manifest", path_, hash,
         manifest.tokenizer_hash);
  if (document_begin(documents_) != tokens_ || document_begin(0) != 0)
    fail("'{}': its document index does not span its {} tokens", path_, tokens_);
}

void Shard::check_content(const ShardInfo& info) const {
  const std::string found = hash128_hex(map_->bytes().data(), map_->bytes().size());
  if (found != info.hash)
    throw Error(fmt::format("'{}' has hash {}, expected {}", path_, found, info.hash),
                "the file was changed or damaged; tokenize this source again");
  for (int64_t d = 0; d < documents_; ++d)
    if (document_begin(d + 1) < document_begin(d)) fail("'{}': document {} ends before it begins", path_, d);
}

void Shard::read(int64_t begin, std::span<int32_t> out) const {
  INGOT_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tokens_, "begin = {}", begin);
  const std::byte* in = data_ + begin * token_bytes_;
  token_bytes_ == 2 ? widen<uint16_t>(in, out) : widen<uint32_t>(in, out);
  uint32_t largest = 0;
  for (const int32_t token : out) largest = std::max(largest, static_cast<uint32_t>(token));
  if (largest >= static_cast<uint64_t>(vocabulary_))
    throw Error(fmt::format("'{}' holds token {} near token number {}, expected 0 to {}", path_, largest,
                            begin, vocabulary_ - 1),
                "the file was changed or damaged; tokenize this source again");
}

bool Shard::in_loss(int64_t token) const {
  INGOT_CHECK(token >= 0 && token < tokens_, "token = {} of {}", token, tokens_);
  return in_loss_ == nullptr ||
         (in_loss_[token / 8] >> static_cast<int>(token % 8) & std::byte{1}) != std::byte{0};
}

int64_t Shard::document_begin(int64_t document) const {
  INGOT_CHECK(document >= 0 && document <= documents_, "document = {} of {}", document, documents_);
  uint64_t begin;
  std::memcpy(&begin, index_ + document * 8, sizeof begin);
  if (begin > static_cast<uint64_t>(tokens_))
    fail("'{}': document {} begins at token {} of {}", path_, document, begin, tokens_);
  return static_cast<int64_t>(begin);
}

int64_t Shard::document_at(int64_t token) const {
  INGOT_CHECK(token >= 0 && token < tokens_, "token = {} of {}", token, tokens_);
  int64_t low = 0;  // begins at or before the token
  int64_t high = documents_;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_begin(middle) <= token ? low : high) = middle;
  }
  return low;
}

}  // namespace ingot::data
