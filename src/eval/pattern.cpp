// See pattern.h.
#include "eval/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot {
namespace {

constexpr uint32_t kPatternSteps = 10'000'000;  // of backtracking, for one search
constexpr size_t kLongestPattern = 1 << 14;

std::string pcre_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  ~Code() {
    pcre2_code_free(code);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

struct Pattern::Match {
  size_t begin, end;
  std::string chosen;
};

Pattern::Pattern(const std::string& pattern, bool ignore_case, bool multiline)
    : code_(std::make_unique<Code>()), pattern_(pattern) {
  if (pattern.size() > kLongestPattern)
    fail("the pattern has {} bytes, expected at most {}", pattern.size(), kLongestPattern);
  if (utf8::valid_prefix(pattern) != pattern.size()) fail("the pattern is not valid UTF-8");
  uint32_t options = PCRE2_UTF | PCRE2_UCP;
  if (ignore_case) options |= PCRE2_CASELESS;
  if (multiline) options |= PCRE2_MULTILINE;
  int error = 0;
  size_t at = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error,
                              &at, nullptr);
  if (code_->code == nullptr)
    throw Error(
        fmt::format("the pattern '{}' is wrong at character {}: {}", pattern, at, pcre_message(error)),
        "write a regular expression as Python's re reads it");
  code_->data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  code_->context = pcre2_match_context_create(nullptr);
  INGOT_CHECK(code_->data != nullptr && code_->context != nullptr, "out of memory");
  pcre2_set_match_limit(code_->context, kPatternSteps);
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<Pattern::Match> Pattern::matches(const std::string& text) const {
  std::vector<Match> found;
  uint32_t groups = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_CAPTURECOUNT, &groups);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0;
  uint32_t options = PCRE2_NO_UTF_CHECK;
  while (at <= text.size()) {
    const int n = pcre2_match(code_->code, subject, text.size(), at, options, code_->data, code_->context);
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0)
      throw Error(
          fmt::format("the pattern '{}' on a text of {} bytes: {}", pattern_, text.size(), pcre_message(n)),
          "write a pattern that backtracks less");
    const size_t* ends = pcre2_get_ovector_pointer(code_->data);
    Match m{ends[0], ends[1], text.substr(ends[0], ends[1] - ends[0])};
    if (groups > 0) m.chosen.clear();
    for (size_t g = 1; g <= groups && m.chosen.empty(); ++g)
      if (static_cast<int>(g) < n && ends[2 * g] != PCRE2_UNSET)
        m.chosen = text.substr(ends[2 * g], ends[2 * g + 1] - ends[2 * g]);
    at = m.end;
    // Behind an empty match another may begin, but not the same one again.
    if (m.begin == m.end) at += at < text.size() ? utf8::decode(std::string_view(text).substr(at)).length : 1;
    found.push_back(std::move(m));
  }
  return found;
}

std::vector<std::string> Pattern::find_all(std::string_view text) const {
  std::vector<std::string> out;
  for (Match& m : matches(utf8::repair(text))) out.push_back(std::move(m.chosen));
  return out;
}

std::string Pattern::replace_all(std::string_view text, std::string_view by) const {
  const std::string whole = utf8::repair(text);
  std::string out;
  size_t at = 0;
  for (const Match& m : matches(whole)) {
    out.append(whole, at, m.begin - at).append(by);
    at = m.end;
  }
  return out.append(whole, at);
}

std::vector<std::string> Pattern::split(std::string_view text) const {
  const std::string whole = utf8::repair(text);
  std::vector<std::string> out;
  size_t at = 0;
  for (const Match& m : matches(whole)) {
    out.push_back(whole.substr(at, m.begin - at));
    at = m.end;
  }
  out.push_back(whole.substr(at));
  return out;
}

std::string escape_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace ingot
