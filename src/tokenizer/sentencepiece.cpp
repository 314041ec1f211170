// parse_sentencepiece(): a SentencePiece model file to a TokenizerSpec. The file is a protocol buffer
// (google/sentencepiece, sentencepiece_model.proto); only the fields that decide ids are read. Merges follow
// from the scores as in transformers' converter.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 22, kMaxPieceBytes = 4096;

/// Field numbers and values of the format.
namespace field {
enum Model : uint32_t { kPieces = 1, kTrainer = 2, kNormalizer = 3 };
enum PieceField : uint32_t { kText = 1, kScore = 2, kType = 3 };
enum Trainer : uint32_t {
  kModelType = 3,
  kSuffixMark = 24,
  kByteFallback = 35,
  kUnknown = 40,
  kBegin = 41,
  kEnd = 42
};
enum Normalizer : uint32_t { kName = 1, kCharacterMap = 2, kDummyPrefix = 3, kRemoveExtra = 4, kEscape = 5 };
}  // namespace field
enum PieceType : uint64_t { kNormal = 1, kUnknownPiece, kControl, kUserDefined, kUnused, kByte };

/// The fields of one message, in order.
class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  struct Field {
    uint32_t number = 0;
    uint64_t number_value = 0;  ///< varint, or the bits of a fixed-width number
    std::string_view bytes;     ///< text or an inner message
  };
  bool next(Field& f) {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    f = {static_cast<uint32_t>(key >> 3), 0, {}};
    if (key >> 3 == 0 || key >> 32 != 0) refuse("a field without a number");
    switch (key & 7) {
      case 0:
        f.number_value = varint();
        return true;
      case 1:
        f.number_value = fixed(8);
        return true;
      case 2:
        f.bytes = take(varint());
        return true;
      case 5:
        f.number_value = fixed(4);
        return true;
      default:
        refuse(fmt::format("a field of kind {}", key & 7));
    }
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(fmt::format("'{}' is not a SentencePiece model: {}", name_, what),
                "the file is damaged or something else");
  }

 private:
  std::string_view take(uint64_t n) {
    if (n > rest_.size()) refuse(fmt::format("{} bytes are announced, {} are left", n, rest_.size()));
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  uint64_t fixed(size_t n) {
    uint64_t value = 0;
    std::memcpy(&value, take(n).data(), n);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number of more than 64 bits");
  }
  std::string_view rest_;
  const std::string& name_;
};

struct Piece {
  std::string text;
  float score = 0;
  uint64_t type = kNormal;
};

struct ModelFile {
  std::vector<Piece> pieces;
  uint64_t type = 1;
  bool byte_fallback = false, suffix_mark = false;
  int64_t unknown = 0, begin = 1, end = 2;
  std::string normalizer;
  bool character_map = false, dummy_prefix = true, remove_extra = true, escape = true;
};

Piece read_piece(std::string_view bytes, const std::string& name, size_t number) {
  Message m(bytes, name);
  Piece p;
  for (Message::Field f; m.next(f);) {
    if (f.number == field::kText) p.text = f.bytes;
    if (f.number == field::kScore) p.score = std::bit_cast<float>(static_cast<uint32_t>(f.number_value));
    if (f.number == field::kType) p.type = f.number_value;
  }
  if (p.text.empty() || p.text.size() > kMaxPieceBytes || utf8::valid_prefix(p.text) != p.text.size())
    m.refuse(fmt::format("piece {} is empty, not UTF-8 or longer than {} bytes", number, kMaxPieceBytes));
  if (!std::isfinite(p.score)) m.refuse(fmt::format("piece {} has a score that is not finite", number));
  if (p.type < kNormal || p.type > kByte) m.refuse(fmt::format("piece {} is of kind {}", number, p.type));
  return p;
}

ModelFile read_file(std::string_view bytes, const std::string& name) {
  ModelFile file;
  Message model(bytes, name);
  for (Message::Field f; model.next(f);) {
    if (f.number == field::kPieces) {
      if (file.pieces.size() == kMaxPieces)
        model.refuse(fmt::format("it has more than {} pieces", kMaxPieces));
      file.pieces.push_back(read_piece(f.bytes, name, file.pieces.size()));
    }
    if (f.number == field::kTrainer) {
      Message m(f.bytes, name);
      for (Message::Field t; m.next(t);) {
        if (t.number == field::kModelType) file.type = t.number_value;
        if (t.number == field::kByteFallback) file.byte_fallback = t.number_value != 0;
        if (t.number == field::kSuffixMark) file.suffix_mark = t.number_value != 0;
        if (t.number == field::kUnknown) file.unknown = static_cast<int32_t>(t.number_value);
        if (t.number == field::kBegin) file.begin = static_cast<int32_t>(t.number_value);
        if (t.number == field::kEnd) file.end = static_cast<int32_t>(t.number_value);
      }
    }
    if (f.number == field::kNormalizer) {
      Message m(f.bytes, name);
      for (Message::Field n; m.next(n);) {
        if (n.number == field::kName) file.normalizer = n.bytes;
        if (n.number == field::kCharacterMap) file.character_map = !n.bytes.empty();
        if (n.number == field::kDummyPrefix) file.dummy_prefix = n.number_value != 0;
        if (n.number == field::kRemoveExtra) file.remove_extra = n.number_value != 0;
        if (n.number == field::kEscape) file.escape = n.number_value != 0;
      }
    }
  }
  if (file.pieces.empty()) model.refuse("it has no pieces");
  return file;
}

void require_known(const ModelFile& file, const std::string& name) {
  const auto refuse = [&](bool bad, const std::string& what) {
    if (bad)
      throw Error(fmt::format("'{}': {}", name, what),
                  "Ingot reads SentencePiece models of type BPE or unigram with byte fallback and without "
                  "normalisation, as Llama 2 and Gemma have them; see docs/tokenizer.md");
  };
  constexpr const char* kTypes[] = {"?", "unigram", "bpe", "word", "char"};
  refuse(file.type < 1 || file.type > 2,
         fmt::format("the model type is {}", file.type < 5 ? kTypes[file.type] : std::to_string(file.type)));
  refuse(
      !file.byte_fallback,
      "byte_fallback is false: characters without a token would become one unknown token, which loses text");
  refuse(file.character_map,
         fmt::format("text is normalised by the rule '{}', which Ingot does not do", file.normalizer));
  refuse(file.remove_extra, "remove_extra_whitespaces is true: white space would be lost");
  refuse(!file.escape, "escape_whitespaces is false");
  refuse(file.suffix_mark, "treat_whitespace_as_suffix is true");
}

/// Every way to make a piece from two others, by falling score, then by length of the parts.
void add_merges(const ModelFile& file, TokenizerSpec& spec) {
  struct Merge {
    float score;
    size_t left_size, right_size;
    std::array<int32_t, 2> ids;
  };
  std::unordered_map<std::string_view, int32_t> id_of;
  for (size_t i = 0; i < file.pieces.size(); ++i) id_of.emplace(file.pieces[i].text, static_cast<int32_t>(i));
  const auto part = [&](std::string_view text) {
    const auto it = id_of.find(text);
    if (it == id_of.end()) return -1;
    const uint64_t type = file.pieces[static_cast<size_t>(it->second)].type;
    return type == kNormal || type == kUserDefined ? it->second : -1;
  };
  std::vector<Merge> merges;
  for (const Piece& p : file.pieces) {
    if (p.type != kNormal && p.type != kUserDefined) continue;
    std::vector<Merge> local;
    const std::string_view text = p.text;
    size_t characters = 0, done = 0;
    for (const char c : text) characters += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    for (size_t at = utf8::decode(text).length; at < text.size();
         at += utf8::decode(text.substr(at)).length) {
      ++done;
      const int32_t left = part(text.substr(0, at)), right = part(text.substr(at));
      if (left >= 0 && right >= 0) local.push_back({p.score, done, characters - done, {left, right}});
    }
    std::sort(local.begin(), local.end(), [](const Merge& a, const Merge& b) { return a.ids < b.ids; });
    merges.insert(merges.end(), local.begin(), local.end());
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.left_size, a.right_size) < std::pair(b.left_size, b.right_size);
  });
  for (const Merge& m : merges) spec.merges.push_back(m.ids);
}

}  // namespace

TokenizerSpec parse_sentencepiece(std::string_view bytes, const std::string& name) {
  const ModelFile file = read_file(bytes, name);
  require_known(file, name);
  TokenizerSpec spec;
  const bool unigram = file.type == 1;
  spec.model = unigram ? TokenizerSpec::Model::unigram : TokenizerSpec::Model::character_bpe;
  spec.spaces = file.dummy_prefix ? SpaceRule::prepend : SpaceRule::replace;
  spec.strip_space = file.dummy_prefix;
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& p = file.pieces[i];
    if (!seen.emplace(p.text, i).second)
      throw Error(fmt::format("'{}': piece '{}' occurs twice", name, p.text), "the file is damaged");
    spec.vocabulary.push_back(p.text);
    if (unigram) spec.scores.push_back(p.score);
    const bool special = p.type == kControl || p.type == kUnknownPiece;
    if (special || p.type == kUserDefined)
      spec.added_tokens.push_back({.id = static_cast<int32_t>(i), .content = p.text, .special = special});
  }
  const auto is_control = [&](int64_t id) {
    return id >= 0 && static_cast<size_t>(id) < file.pieces.size() &&
           file.pieces[static_cast<size_t>(id)].type == kControl;
  };
  if (is_control(file.begin)) spec.template_bos = static_cast<int32_t>(file.begin);
  if (unigram && file.unknown >= 0 && static_cast<size_t>(file.unknown) < file.pieces.size())
    spec.unknown = static_cast<int32_t>(file.unknown);
  if (!unigram) add_merges(file, spec);
  return spec;
}

}  // namespace ingot
