// See tokenizer_report.h.
#include "tokenizer/tokenizer_report.h"

#include <algorithm>

#include "base/philox.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer_spec.h"

namespace ingot {
namespace {

constexpr size_t kLongest = 10;
constexpr int64_t kRandomTexts = 200;

const std::vector<NamedText>& samples() {
  static const std::vector<NamedText> texts = {
      {"English",
       "The river runs under the old bridge, and nobody who crosses it in the morning remembers who built "
       "it. There's a plaque, but it says only that the stones were carried here by hand.\n"},
      {"German",
       "Der Fluss fließt unter der alten Brücke hindurch, und niemand weiß mehr, wer sie gebaut hat.\n"},
      {"Russian", "Река течёт под старым мостом, и никто уже не помнит, кто его построил.\n"},
      {"Chinese", "河水从老桥下流过，没有人记得这座桥是谁建造的。\n"},
      {"Arabic", "يجري النهر تحت الجسر القديم، ولا أحد يتذكر من بناه.\n"},
      {"Hindi", "नदी पुराने पुल के नीचे बहती है, और किसी को याद नहीं कि उसे किसने बनाया था।\n"},
      {"Python",
       "def total(rows, key=\"price\"):\n    result = 0.0\n    for row in rows:\n        if row.get(key) is "
       "not None:\n            result += float(row[key])\n    return result\n"},
      {"C++",
       "template <class T>\nT clamp(const T& x, const T& low, const T& high) {\n  return x < low ? low : "
       "(high < x ? high : x);  // the interval is closed\n}\n"},
      {"numbers", "3.14159265358979 1,000,000 2024-02-29 0x7fff 192.168.0.1 12345678 = 2 * 6172839\n"},
      {"emoji and white space",
       "🙂👍🏽 👨‍👩‍👧‍👦 🇩🇪\t\t|\n\n\n        return;\r\n   …   ✓\n"}};
  return texts;
}

/// Random bytes, letters, spaces and characters of all planes.
std::string random_text(uint64_t number) {
  const Random random(number, RandomPurpose::test, 0);
  std::string text;
  for (uint64_t i = 0; i < 1 + random.bits(0) % 60; ++i) {
    const uint32_t kind = random.bits(2 * i + 1) % 4, value = random.bits(2 * i + 2);
    if (kind == 0)
      text += static_cast<char>(value);
    else if (kind == 1)
      utf8::append(text, value % 0xD800);
    else
      text += kind == 2 ? ' ' : static_cast<char>('a' + value % 26);
  }
  return text;
}

/// Whether a token's own text gives it: alone, behind a line, or without the space that the tokenizer adds.
bool is_made(const Tokenizer& t, int32_t id) {
  const std::string_view bytes = t.token_bytes(id);
  const auto gives = [&](std::string_view text) {
    const std::vector<int32_t> ids = t.encode(text);
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return gives(bytes) || (bytes.starts_with(' ') && gives(bytes.substr(1))) ||
         gives("\n" + std::string(bytes));
}

}  // namespace

TokenizerReport report_on(const Tokenizer& t, std::span<const NamedText> given) {
  TokenizerReport r;
  const auto size = static_cast<size_t>(t.vocab_size());
  const bool characters = t.spec().model == TokenizerSpec::Model::chars;
  std::vector<bool> known(size), used(size);
  for (size_t id = 0; id < t.spec().vocabulary.size(); ++id) known[id] = !t.spec().vocabulary[id].empty();
  for (const AddedToken& a : t.spec().added_tokens) known[static_cast<size_t>(a.id)] = true;
  const auto comes_back = [&](std::string_view text, const std::vector<int32_t>& ids) {
    return t.decode_bytes(ids) == text;
  };
  const std::vector<NamedText> none;
  for (const NamedText& text :
       !given.empty() ? given : std::span<const NamedText>(characters ? none : samples())) {
    const std::vector<int32_t> ids = t.encode(text.text);
    for (const int32_t id : ids) used[static_cast<size_t>(id)] = true;
    r.texts.push_back({text.name, static_cast<int64_t>(text.text.size()), static_cast<int64_t>(ids.size()),
                       comes_back(text.text, ids)});
  }
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!known[i]) {
      ++r.holes;
      continue;
    }
    if (t.is_special(id)) {
      r.special.push_back(id);
      continue;
    }
    if (!given.empty() && !used[i]) r.unused.push_back(id);
    if (!is_made(t, id)) r.unreachable.push_back(id);
    r.longest.push_back(id);
  }
  std::stable_sort(r.longest.begin(), r.longest.end(),
                   [&](int32_t a, int32_t b) { return t.token_bytes(a).size() > t.token_bytes(b).size(); });
  r.longest.resize(std::min(r.longest.size(), kLongest));
  for (int64_t n = 0; n < kRandomTexts && !characters; ++n) {
    const std::string text = random_text(static_cast<uint64_t>(n));
    ++r.random_texts;
    r.random_back += comes_back(text, t.encode(text));
  }
  return r;
}

}  // namespace ingot
