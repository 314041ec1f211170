// to_pcre2_dialect(): rewrites or refuses what Oniguruma and PCRE2 would read differently. See regex.h.
#include <cctype>

#include "base/error.h"
#include "tokenizer/regex.h"

namespace ingot {
namespace {

// Unicode White_Space without brackets: tab to carriage return, next line, and the separators.
constexpr std::string_view kSpaceClass = R"(\t-\r\x{85}\p{Z})";

class Rewriter {
 public:
  explicit Rewriter(const std::string& pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else {
        outside_class(c);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& why) const {
    throw Error(fmt::format("pattern '{}': {} at offset {} is not supported: {}", in_, what, at_, why),
                "rewrite the pattern without it");
  }
  char peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  void copy(size_t count) {
    out_.append(in_, at_, count);
    at_ += count;
  }

  void escape() {
    const char c = peek(1);
    class_is_empty_ = false;
    if (c == '\0') refuse("a trailing backslash", "it escapes nothing");
    if (c == 's' || c == 'S') {
      if (in_class_ && c == 'S') refuse("\\S inside [...]", "it has no short equivalent");
      out_ += in_class_ ? std::string(kSpaceClass) : fmt::format("[{}{}]", c == 'S' ? "^" : "", kSpaceClass);
      at_ += 2;
      return;
    }
    const bool letter_or_digit = std::isalnum(static_cast<unsigned char>(c)) != 0;
    static constexpr std::string_view kSame = "pPrntfadDxAzG";
    if (letter_or_digit && kSame.find(c) == std::string_view::npos)
      refuse(fmt::format("'\\{}'", c), "Oniguruma and PCRE2 do not agree on it");
    const size_t close = in_.find('}', at_);
    const bool braces = peek(2) == '{' && (c == 'p' || c == 'P' || c == 'x') && close != std::string::npos;
    copy(braces ? close + 1 - at_ : 2);
  }

  void inside_class(char c) {
    if (c == ']' && !class_is_empty_) {
      in_class_ = false;
    } else if (c == '[') {
      refuse("'[' inside [...]",
             "nested and POSIX classes differ between engines; write \\[ for the bracket");
    } else if (c == '&' && peek(1) == '&') {
      refuse("'&&' inside [...]", "class intersection is not in PCRE2");
    }
    class_is_empty_ = false;
    copy(1);
  }

  void outside_class(char c) {
    if (c == '[') {
      in_class_ = class_is_empty_ = true;
      copy(peek(1) == '^' ? 2 : 1);
      return;
    }
    if (c == '(' && peek(1) == '*') refuse("'(*'", "it is an instruction to PCRE2");
    if (c == '(' && peek(1) == '?') group_head();
    if (c == '{' && peek(1) == ',') refuse("'{,n}'", "write {0,n}");
    if (c == '}' && peek(1) == '+') refuse("'{...}+'", "possessive in PCRE2, repeated in Oniguruma");
    copy(1);
  }

  /// (?:  (?=  (?!  (?>  (?<=  (?<!  and (?i: or (?-i: mean the same in both.
  void group_head() {
    const std::string_view rest = std::string_view(in_).substr(at_ + 2);
    for (const std::string_view ok : {":", "=", "!", ">", "<=", "<!", "i:", "-i:", "i)", "-i)"})
      if (rest.starts_with(ok)) return;
    refuse(fmt::format("'(?{}'", rest.substr(0, 1)), "only groups, look-around and the option i are known");
  }

  const std::string& in_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool class_is_empty_ = false;
};

}  // namespace

std::string to_pcre2_dialect(const std::string& pattern) {
  return Rewriter(pattern).run();
}

}  // namespace ingot
