// Tokenizer::encode: added tokens first, then valid UTF-8 is normalized, cut into pieces and merged; bytes
// that are not UTF-8 are merged as they are. Order of steps: huggingface/tokenizers,
// AddedVocabulary::extract_and_normalize.
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "base/utf8.h"
#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

namespace ingot {
namespace {

constexpr size_t kMaxText = std::numeric_limits<int32_t>::max() / 2;

/// Length of the bytes in front that are not UTF-8.
size_t ill_formed_prefix(std::string_view text) {
  size_t bad = 0;
  while (bad < text.size()) {
    const utf8::Step step = utf8::decode(text.substr(bad));
    if (step.status == utf8::Status::valid) break;
    bad += step.length;
  }
  return bad;
}

/// One call of encode.
class Encoding {
 public:
  Encoding(const Tokenizer::Impl& tokenizer, const EncodeOptions& options, EncodeScratch& scratch,
           std::vector<int32_t>& ids)
      : t_(tokenizer), options_(options), scratch_(scratch), ids_(ids) {}

  void text(std::string_view text) {
    whole_ = text;
    split_added(text, text, t_.before_finder, t_.before,
                [this](std::string_view plain) { this->plain(plain); });
  }

 private:
  /// The special token in bytes [begin, end) of `text` counts; `written` is the part of the whole text that
  /// became it.
  bool may_be_special(std::string_view written, std::string_view text, size_t begin, size_t end) const {
    if (!options_.parse_special) return false;
    if (options_.special_ranges == nullptr) return true;
    const auto base = static_cast<size_t>(written.data() - whole_.data());
    // Positions in composed text are not those of the whole: then all of it must lie in a range.
    const size_t first = written == text ? base + begin : base;
    const size_t last = written == text ? base + end : base + written.size();
    for (const SpecialRange& r : *options_.special_ranges)
      if (r.begin <= first && last <= r.end) return true;
    return false;
  }

  /// Emits added tokens and passes on the text between them.
  template <class Rest>
  void split_added(std::string_view written, std::string_view text, const AddedTokenFinder& finder,
                   const std::vector<AddedToken>& tokens, Rest&& rest) {
    size_t covered = 0;
    for (size_t from = 0; !finder.empty();) {
      AddedTokenFinder::Found found = finder.find(text, from);
      if (found.index < 0) break;
      from = found.end;
      const AddedToken& token = tokens[static_cast<size_t>(found.index)];
      if (token.special && !may_be_special(written, text, found.begin, found.end)) {
        if (options_.spelled != nullptr) options_.spelled->add(token.id);
        continue;
      }
      found = AddedTokenFinder::extent(token, text, found, covered);
      if (found.index < 0) continue;
      if (found.begin > covered) rest(text.substr(covered, found.begin - covered));
      ids_.push_back(token.id);
      covered = found.end;
    }
    if (covered < text.size()) rest(text.substr(covered));
  }

  void plain(std::string_view text) {
    if (t_.pre_tokenizer == nullptr) return characters(text);
    if (t_.spec.over_characters()) return over_characters(text);
    while (!text.empty()) {
      const size_t good = utf8::valid_prefix(text);
      if (good > 0) normalized(text.substr(0, good));
      text.remove_prefix(good);
      const size_t bad = ill_formed_prefix(text);
      if (bad > 0) t_.bpe->encode(text.substr(0, bad), scratch_.bpe, ids_);
      text.remove_prefix(bad);
    }
  }

  void normalized(std::string_view text) {
    std::optional<std::string> composed;
    if (t_.spec.nfc) composed = nfc::normalize(text);
    split_added(text, composed ? std::string_view(*composed) : text, t_.after_finder, t_.after,
                [this](std::string_view rest) { pieces(rest); });
  }

  void pieces(std::string_view text) {
    if (t_.spec.add_prefix_space && !text.starts_with(' ')) {
      scratch_.prefixed.assign(1, ' ');
      scratch_.prefixed += text;
      text = scratch_.prefixed;
    }
    t_.pre_tokenizer->split(text, scratch_.regex,
                            [this](std::string_view piece) { t_.bpe->encode(piece, scratch_.bpe, ids_); });
  }

  /// Text between added tokens, for a model over characters. Bytes that are no text become their own tokens.
  void over_characters(std::string_view text) {
    const bool at_start = text.data() == whole_.data();
    for (bool first = true; !text.empty(); first = false) {
      const size_t good = utf8::valid_prefix(text);
      if (good > 0 || first) marked(text.substr(0, good), first, at_start && first);
      text.remove_prefix(good);
      const size_t bad = ill_formed_prefix(text);
      if (bad > 0 && t_.unigram != nullptr) t_.unigram->encode_bytes(text.substr(0, bad), ids_);
      if (bad > 0 && t_.bpe != nullptr) t_.bpe->encode(text.substr(0, bad), scratch_.bpe, ids_);
      text.remove_prefix(bad);
    }
  }

  /// Marks spaces, in the normalizer's place or in the pre-tokenizer's. Only the first run of such a text
  /// gets a mark in front; it may be empty.
  void marked(std::string_view text, bool first, bool at_start) {
    const SpaceRule rule = t_.spec.spaces;
    const auto mark = [&](std::string_view part, bool front) {
      return mark_spaces(front ? rule : SpaceRule::replace, part, at_start && front);
    };
    if (text.empty()) return marked_pieces(mark(text, true));
    if (rule == SpaceRule::replace || rule == SpaceRule::prepend) {
      const std::string normal = mark(text, first);
      return split_added(text, normal, t_.after_finder, t_.after,
                         [this](std::string_view rest) { marked_pieces(rest); });
    }
    split_added(text, text, t_.after_finder, t_.after, [&](std::string_view rest) {
      const bool begins = rest.data() == text.data();
      const SpaceRule here = begins && first                                 ? rule
                             : begins || rule != SpaceRule::metaspace_always ? SpaceRule::replace
                                                                             : rule;
      marked_pieces(mark_spaces(here, rest, at_start && begins));
    });
  }

  void marked_pieces(std::string_view text) {
    t_.pre_tokenizer->split(text, scratch_.regex, [this](std::string_view piece) {
      if (t_.unigram != nullptr)
        t_.unigram->encode(piece, scratch_.unigram, ids_);
      else if (t_.spec.ignore_merges)
        t_.bpe->encode(piece, scratch_.bpe, ids_);
      else
        t_.bpe->encode_characters(piece, scratch_.bpe, ids_);
    });
  }

  void characters(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const utf8::Step step = utf8::decode(text.substr(at));
      if (step.status != utf8::Status::valid)
        fail("the text is not valid UTF-8 near '{}'", excerpt(text, at));
      const auto id = t_.id_of_character.find(step.code_point);
      if (id == t_.id_of_character.end())
        throw Error(fmt::format("character U+{:04X} is not in the character vocabulary, near '{}'",
                                step.code_point, excerpt(text, at)),
                    "make the vocabulary from all the text, or use a byte-level tokenizer");
      ids_.push_back(id->second);
      at += step.length;
    }
  }
  static std::string excerpt(std::string_view text, size_t at) {
    const size_t begin = at < 20 ? 0 : at - 20;
    return utf8::repair(text.substr(begin, at - begin + 4));
  }

  std::string_view whole_;
  const Tokenizer::Impl& t_;
  const EncodeOptions& options_;
  EncodeScratch& scratch_;
  std::vector<int32_t>& ids_;
};

}  // namespace

void Tokenizer::encode_to(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const {
  if (text.size() > kMaxText)
    throw Error(fmt::format("a text of {} bytes is too long to encode at once, the limit is {}", text.size(),
                            kMaxText),
                "cut it into documents");
  if (options.add_bos && !impl_->roles.bos) throw Error("this tokenizer has no begin-of-text token");
  if (options.add_eos && !impl_->roles.eos) throw Error("this tokenizer has no end-of-text token");
  if (options.add_bos) ids.push_back(*impl_->roles.bos);
  auto scratch = impl_->borrow();
  scratch->regex.begin_text(text.size());
  Encoding(*impl_, options, *scratch, ids).text(text);
  impl_->give_back(std::move(scratch));
  if (options.add_eos) ids.push_back(*impl_->roles.eos);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<int32_t> ids;
  encode_to(text, options, ids);
  return ids;
}

std::vector<std::vector<int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                          EncodeOptions options) const {
  std::vector<std::vector<int32_t>> out(texts.size());
  parallel_for(static_cast<int64_t>(texts.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      encode_to(texts[i], options, out[i]);
  });
  return out;
}

}  // namespace ingot
