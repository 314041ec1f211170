// See tokenizer.h: construction from a spec, decoding, and look-ups in the tables. Encoding is in encode.cpp,
// files in tokenizer_files.cpp.
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer_impl.h"

namespace ingot {
namespace {

/// The added tokens that are found before normalization, or after it, as they read there.
std::vector<AddedToken> select(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> out;
  for (const AddedToken& t : spec.added_tokens) {
    if (t.normalized != normalized) continue;
    out.push_back(t);
    if (normalized && spec.nfc && utf8::valid_prefix(t.content) == t.content.size())
      out.back().content = nfc::normalize(t.content).value_or(t.content);
    if (normalized && (spec.spaces == SpaceRule::prepend || spec.spaces == SpaceRule::replace) &&
        spec.over_characters())
      out.back().content = mark_spaces(spec.spaces, t.content, false);
  }
  return out;
}

/// What a token of a model over characters stands for.
std::string bytes_of_character_token(const std::string& token) {
  if (const int byte = fallback_byte(token); byte >= 0) return std::string(1, static_cast<char>(byte));
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const bool mark = std::string_view(token).substr(at).starts_with(kSpaceMark);
    out += mark ? ' ' : token[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  return out;
}

void check_spec(const TokenizerSpec& spec) {
  std::set<std::string_view> contents;
  int32_t previous = -1;
  for (const AddedToken& t : spec.added_tokens) {
    if (t.id <= previous) fail("added_tokens: id {} of '{}' occurs twice or out of order", t.id, t.content);
    if (!contents.insert(t.content).second) fail("added_tokens: '{}' occurs twice", t.content);
    const auto at = static_cast<size_t>(t.id);
    if (at < spec.vocabulary.size() && !spec.vocabulary[at].empty() && spec.vocabulary[at] != t.content)
      fail("added_tokens: id {} of '{}' belongs to '{}' in model.vocab", t.id, t.content,
           spec.vocabulary[at]);
    previous = t.id;
  }
  const auto known = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < spec.vocabulary.size() &&
           !spec.vocabulary[static_cast<size_t>(id)].empty();
  };
  for (size_t rank = 0; rank < spec.merges.size(); ++rank)
    if (!known(spec.merges[rank][0]) || !known(spec.merges[rank][1]))
      fail("model.merges[{}]: part with id {} or {} is not in model.vocab", rank, spec.merges[rank][0],
           spec.merges[rank][1]);
}

}  // namespace

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

std::string mark_spaces(SpaceRule rule, std::string_view text, bool at_start) {
  const bool marked = text.starts_with(' ') || text.starts_with(kSpaceMark);
  const bool prefix =
      rule == SpaceRule::prepend ||
      (!marked && (rule == SpaceRule::metaspace_always || (rule == SpaceRule::metaspace_first && at_start)));
  std::string out(prefix ? kSpaceMark : "");
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text)
    if (c == ' ')
      out += kSpaceMark;
    else
      out += c;
  return out;
}

Tokenizer::Impl::Impl(TokenizerSpec s)
    : spec(std::move(s)),
      before(select(spec, false)),
      after(select(spec, true)),
      before_finder(before),
      after_finder(after) {
  check_spec(spec);
  if (spec.model != TokenizerSpec::Model::chars) {
    pre_tokenizer = std::make_unique<PreTokenizer>(spec);
    if (spec.model == TokenizerSpec::Model::unigram)
      unigram = std::make_unique<UnigramModel>(spec);
    else
      bpe = std::make_unique<BpeModel>(spec);
  } else {
    for (size_t id = 0; id < spec.vocabulary.size(); ++id) {
      const std::string& c = spec.vocabulary[id];
      const utf8::Step step = c.empty() ? utf8::Step{utf8::Status::invalid, 0, 0} : utf8::decode(c);
      if (step.status != utf8::Status::valid || step.length != c.size())
        fail("model.vocab[{}]: expected one character, found '{}'", id, c);
      if (!id_of_character.emplace(step.code_point, static_cast<int32_t>(id)).second)
        fail("model.vocab[{}]: character '{}' occurs twice", id, c);
    }
  }
  build_tokens();
  choose_roles();
  const std::string canonical = write_tokenizer_json(spec);
  hash = hash128_hex(canonical.data(), canonical.size());
}

void Tokenizer::Impl::build_tokens() {
  size_t count = spec.vocabulary.size();
  for (const AddedToken& t : spec.added_tokens) count = std::max(count, static_cast<size_t>(t.id) + 1);
  bytes.resize(count);
  special.resize(count);
  for (size_t id = 0; id < spec.vocabulary.size(); ++id) {
    const std::string& token = spec.vocabulary[id];
    bytes[id] = spec.over_characters()                    ? bytes_of_character_token(token)
                : spec.model == TokenizerSpec::Model::bpe ? byte_level::from_alphabet(token).value_or(token)
                                                          : token;
  }
  for (const AddedToken& t : spec.added_tokens) {
    bytes[static_cast<size_t>(t.id)] = t.content;
    special[static_cast<size_t>(t.id)] = t.special;
  }
}

std::optional<int32_t> Tokenizer::Impl::find_token(std::string_view content) const {
  for (const AddedToken& t : spec.added_tokens)
    if (t.content == content) return t.id;
  return std::nullopt;
}

void Tokenizer::Impl::choose_roles() {
  const auto first_of = [&](int32_t from_template, std::initializer_list<std::string_view> names) {
    std::optional<int32_t> id;
    if (from_template >= 0) id = from_template;
    for (const std::string_view name : names)
      if (!id) id = find_token(name);
    return id;
  };
  roles.bos = first_of(spec.template_bos,
                       {"<|begin_of_text|>", "<|bos|>", "<s>", "<|startoftext|>", "<|endoftext|>"});
  roles.eos = first_of(spec.template_eos, {"<|endoftext|>", "<|end_of_text|>", "<|eos|>", "</s>"});
  roles.pad = first_of(-1, {"<|pad|>", "<pad>"});
  if (spec.template_bos >= 0) begin = spec.template_bos;
}

std::unique_ptr<EncodeScratch> Tokenizer::Impl::borrow() const {
  {
    const std::lock_guard lock(mutex_);
    if (!pool_.empty()) {
      auto scratch = std::move(pool_.back());
      pool_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<EncodeScratch>();
}

void Tokenizer::Impl::give_back(std::unique_ptr<EncodeScratch> scratch) const {
  const std::lock_guard lock(mutex_);
  pool_.push_back(std::move(scratch));
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Tokenizer Tokenizer::from_spec(TokenizerSpec spec) {
  return Tokenizer(std::make_shared<const Impl>(std::move(spec)));
}

Tokenizer Tokenizer::from_characters(std::string_view text, std::span<const std::string> special_tokens) {
  std::set<uint32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const utf8::Step step = utf8::decode(text.substr(at));
    if (step.status != utf8::Status::valid) fail("the text is not valid UTF-8 at byte {}", at);
    characters.insert(step.code_point);
    at += step.length;
  }
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::chars;
  for (const uint32_t c : characters) utf8::append(spec.vocabulary.emplace_back(), c);
  for (const std::string& content : special_tokens)
    spec.added_tokens.push_back(
        {static_cast<int32_t>(spec.vocabulary.size() + spec.added_tokens.size()), content, true, false});
  return from_spec(std::move(spec));
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(impl_->bytes.size());
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size() || impl_->bytes[static_cast<size_t>(id)].empty())
    throw Error(fmt::format("token id {} is not in this vocabulary of {} tokens", id, vocab_size()),
                "the ids were made with another tokenizer");
  return impl_->bytes[static_cast<size_t>(id)];
}

std::string Tokenizer::decode_bytes(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) out += token_bytes(id);
  if (impl_->spec.strip_space && out.starts_with(' ')) out.erase(0, 1);
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  return utf8::repair(decode_bytes(ids));
}

std::optional<int32_t> Tokenizer::special_id(std::string_view content) const {
  return impl_->find_token(content);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<size_t>(id)];
}

const TokenRoles& Tokenizer::roles() const {
  return impl_->roles;
}
std::optional<int32_t> Tokenizer::begin_token() const {
  return impl_->begin;
}
const std::string& Tokenizer::content_hash() const {
  return impl_->hash;
}
const TokenizerSpec& Tokenizer::spec() const {
  return impl_->spec;
}

void SpelledSpecials::add(int32_t id) {
  ++count_;
  int32_t lowest = lowest_id_;
  while (id < lowest && !lowest_id_.compare_exchange_weak(lowest, id)) {
  }
}

std::string SpelledSpecials::warning(const Tokenizer& tokenizer, std::string_view where,
                                     std::string_view option) const {
  if (count_ == 0) return "";
  const int64_t n = count_;
  return fmt::format(
      "{} spells special tokens {}, e.g. {}; they are encoded as plain text, and {} makes them tokens", where,
      n == 1 ? "once" : fmt::format("{} times", n), tokenizer.token_bytes(lowest_id_), option);
}

std::string StreamDecoder::push(int32_t id) {
  waiting_ += tokenizer_.token_bytes(id);
  std::string out;
  std::string_view rest = waiting_;
  while (!rest.empty()) {
    const size_t good = utf8::valid_prefix(rest);
    out.append(rest.substr(0, good));
    rest.remove_prefix(good);
    if (rest.empty()) break;
    const utf8::Step step = utf8::decode(rest);
    if (step.status == utf8::Status::cut) break;
    out.append(utf8::kReplacement);
    rest.remove_prefix(step.length);
  }
  waiting_ = std::string(rest);
  return out;
}

std::string StreamDecoder::finish() {
  const bool unfinished = !waiting_.empty();
  waiting_.clear();
  return std::string(unfinished ? utf8::kReplacement : "");
}

}  // namespace ingot
