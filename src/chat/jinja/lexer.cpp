// See lexer.h.
#include "chat/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot::chat::jinja {

void fail_in_template(const std::string& name, const Place& place, const std::string& message,
                      const std::string& hint) {
  throw Error(fmt::format("'{}', line {}, column {}: {}", name, place.line, place.column, message), hint);
}

namespace {

bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_blank(char c) {  // white space of ASCII
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
}

/// CRLF and CR become LF; one LF at the end is dropped.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      out += source[i];
    else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class TemplateLexer {
 public:
  TemplateLexer(std::string_view source, const std::string& name)
      : source_(with_plain_newlines(source)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    push(Token::Kind::end, "", at_);
    return std::move(tokens_);
  }

 private:
  Place place(size_t at) {
    for (; placed_ < at; ++placed_) {
      if (source_[placed_] == '\n') {
        ++line_;
        line_begin_ = placed_ + 1;
      }
    }
    return {line_, static_cast<int>(
                       count_characters(std::string_view(source_).substr(line_begin_, at - line_begin_))) +
                       1};
  }
  void push(Token::Kind kind, std::string text, size_t at) {
    tokens_.push_back({kind, std::move(text), place(at)});
  }
  [[noreturn]] void fault(size_t at, const std::string& message, const std::string& hint = {}) {
    fail_in_template(name_,
                     at >= placed_     ? place(at)
                     : tokens_.empty() ? Place{}
                                       : tokens_.back().place,
                     message, hint);
  }
  bool looking_at(std::string_view s) const { return std::string_view(source_).substr(at_).starts_with(s); }

  /// Text up to the next tag, and the tag.
  void text() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        emit_text(at_, source_.size());
        at_ = source_.size();
        return;
      }
      if (source_[tag + 1] == '{' || source_[tag + 1] == '%' || source_[tag + 1] == '#') break;
    }
    const char kind = source_[tag + 1];
    const char mark = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    size_t end = tag;
    if (mark == '-') {
      while (end > at_ && is_blank(source_[end - 1])) --end;
    } else if (mark != '+' && kind != '{') {  // lstrip_blocks: white space alone before it on its line
      size_t begin = end;
      while (begin > at_ && (source_[begin - 1] == ' ' || source_[begin - 1] == '\t')) --begin;
      if (begin == 0 || source_[begin - 1] == '\n') end = begin;
    }
    emit_text(at_, end);
    at_ = tag + 2;
    if (mark == '-' || mark == '+') ++at_;
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw_block(tag)) return;
    push(kind == '{' ? Token::Kind::print_begin : Token::Kind::block_begin, "", tag);
    words(kind);
  }

  void emit_text(size_t begin, size_t end) {
    if (end > begin) push(Token::Kind::text, source_.substr(begin, end - begin), begin);
  }

  /// Skips what the end of a tag takes with it: all white space behind "-", else one newline (trim_blocks).
  void skip_behind(char mark, bool trims_newline) {
    if (mark == '-')
      while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
    else if (trims_newline && mark != '+' && at_ < source_.size() && source_[at_] == '\n')
      ++at_;
  }

  void comment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fault(tag, "the comment has no end '#}'");
    const char mark = end > at_ ? source_[end - 1] : '\0';
    at_ = end + 2;
    skip_behind(mark == '-' || mark == '+' ? mark : '\0', true);
  }

  /// {% raw %} ... {% endraw %} is text as it stands.
  bool raw_block(size_t tag) {
    size_t at = at_;
    const auto spaces = [&](size_t& i) {
      while (i < source_.size() && is_blank(source_[i])) ++i;
    };
    const auto word = [&](size_t& i, std::string_view w) {
      spaces(i);
      if (!std::string_view(source_).substr(i).starts_with(w)) return false;
      i += w.size();
      spaces(i);
      return true;
    };
    if (!word(at, "raw")) return false;
    char mark = '\0';
    if (at < source_.size() && source_[at] == '-') mark = source_[at++];
    if (!std::string_view(source_).substr(at).starts_with("%}")) return false;
    at_ = at + 2;
    skip_behind(mark, false);
    for (size_t end = at_; (end = source_.find("{%", end)) != std::string::npos; ++end) {
      size_t i = end + 2;
      char before = '\0', after = '\0';
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) before = source_[i++];
      if (!word(i, "endraw")) continue;
      if (i < source_.size() && (source_[i] == '-' || source_[i] == '+')) after = source_[i++];
      if (!std::string_view(source_).substr(i).starts_with("%}")) continue;
      size_t stop = end;
      if (before == '-')
        while (stop > at_ && is_blank(source_[stop - 1])) --stop;
      else if (before != '+') {
        size_t begin = stop;
        while (begin > at_ && (source_[begin - 1] == ' ' || source_[begin - 1] == '\t')) --begin;
        if (begin > 0 && source_[begin - 1] == '\n') stop = begin;
      }
      emit_text(at_, stop);
      at_ = i + 2;
      skip_behind(after, true);
      return true;
    }
    fault(tag, "'raw' has no 'endraw'");
  }

  /// The words of a tag up to its end. Brackets hide what looks like an end.
  void words(char kind) {
    const char* const close = kind == '{' ? "}}" : "%}";
    const Place opened = tokens_.back().place;
    std::string open;  // brackets that wait for their end
    for (;;) {
      while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
      if (at_ >= source_.size())
        fail_in_template(name_, opened, fmt::format("the tag has no end '{}'", close));
      const char c = source_[at_];
      if (open.empty()) {
        const bool marked =
            (c == '-' || c == '+') && std::string_view(source_).substr(at_ + 1).starts_with(close);
        if ((marked && (c == '-' || kind == '%')) || looking_at(close)) {
          push(kind == '{' ? Token::Kind::print_end : Token::Kind::block_end, "", at_);
          at_ += marked ? 3 : 2;
          return skip_behind(marked ? c : '\0', kind == '%');
        }
      }
      if (begins_word(c))
        word();
      else if (is_digit(c))
        number();
      else if (c == '\'' || c == '"')
        string(c);
      else
        symbol(open);
    }
  }

  void word() {
    const size_t begin = at_;
    while (at_ < source_.size() && (begins_word(source_[at_]) || is_digit(source_[at_]))) ++at_;
    push(Token::Kind::name, source_.substr(begin, at_ - begin), begin);
  }

  void number() {
    const size_t begin = at_;
    std::string digits;
    const auto take = [&](auto&& wanted) {
      while (at_ < source_.size() &&
             (wanted(source_[at_]) ||
              (source_[at_] == '_' && at_ + 1 < source_.size() && wanted(source_[at_ + 1])))) {
        if (source_[at_] != '_') digits += source_[at_];
        ++at_;
      }
    };
    int base = 10;
    const char letter = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (letter == 'x' || letter == 'o' || letter == 'b')) {
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
      at_ += 2;
      take([](char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
    } else {
      take(is_digit);
    }
    bool real = false;
    if (base == 10 && at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      real = true;
      digits += '.';
      ++at_;
      take(is_digit);
    }
    if (base == 10 && at_ < source_.size() && (source_[at_] | 0x20) == 'e') {
      const size_t sign =
          at_ + 1 < source_.size() && (source_[at_ + 1] == '-' || source_[at_ + 1] == '+') ? 1 : 0;
      if (at_ + 1 + sign < source_.size() && is_digit(source_[at_ + 1 + sign])) {
        real = true;
        digits += source_.substr(at_, 1 + sign);
        at_ += 1 + sign;
        take(is_digit);
      }
    }
    try {
      size_t used = 0;
      if (!real) digits = std::to_string(std::stoll(digits, &used, base));
    } catch (const std::exception&) {
      fault(begin, fmt::format("'{}' is no integer of 64 bits", source_.substr(begin, at_ - begin)));
    }
    push(real ? Token::Kind::number : Token::Kind::integer, digits, begin);
  }

  void string(char quote) {
    const size_t begin = at_++;
    std::string out;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\' && at_ + 1 < source_.size())
        escape(out);
      else
        out += source_[at_++];
    }
    if (at_ >= source_.size()) fault(begin, "the string has no end");
    ++at_;
    push(Token::Kind::string, std::move(out), begin);
  }

  /// One escape as Python's "unicode-escape" reads it.
  void escape(std::string& out) {
    static constexpr std::string_view kPlain = "\\'\"abfnrtv";
    static constexpr std::string_view kMeaning = "\\'\"\a\b\f\n\r\t\v";
    const size_t begin = at_;
    const char c = source_[++at_];
    ++at_;
    if (c == '\n') return;
    if (const size_t i = kPlain.find(c); i != std::string_view::npos) {
      out += kMeaning[i];
      return;
    }
    int length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const int base = length > 0 ? 16 : 8;
    if (c >= '0' && c <= '7') {
      --at_;
      for (length = 1; length < 3 && at_ + static_cast<size_t>(length) < source_.size() &&
                       source_[at_ + static_cast<size_t>(length)] >= '0' &&
                       source_[at_ + static_cast<size_t>(length)] <= '7';)
        ++length;
    }
    if (length == 0) {
      if (c == 'N') fault(begin, "the escape \\N{...} is not supported", "write the character itself");
      out += '\\';
      out += c;
      return;
    }
    uint32_t code = 0;
    for (int i = 0; i < length; ++i, ++at_) {
      const char d = at_ < source_.size() ? source_[at_] : '\0';
      const int v = is_digit(d)                              ? d - '0'
                    : (d | 0x20) >= 'a' && (d | 0x20) <= 'f' ? (d | 0x20) - 'a' + 10
                                                             : 99;
      if (v >= base) fault(begin, "the escape is cut short");
      code = code * static_cast<uint32_t>(base) + static_cast<uint32_t>(v);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fault(begin, "the escape is no character");
    utf8::append(out, code);
  }

  void symbol(std::string& open) {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}=><.:|,;";
    const char c = source_[at_];
    std::string found(1, c);
    for (const std::string_view s : kLong)
      if (looking_at(s)) found = s;
    if (found.size() == 1 && kShort.find(c) == std::string_view::npos) {
      const size_t length = character_length(source_, at_);
      fault(at_, fmt::format("'{}' is not part of an expression", utf8::repair(source_.substr(at_, length))));
    }
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted) fault(at_, fmt::format("'{}' closes nothing", c));
      open.pop_back();
    }
    push(Token::Kind::symbol, found, at_);
    at_ += found.size();
  }

  std::string source_;
  const std::string& name_;
  size_t at_ = 0;
  size_t placed_ = 0, line_begin_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source, const std::string& name, const Limits& limits) {
  if (source.size() > limits.source_bytes)
    throw Error(
        fmt::format("'{}' has {} bytes, a template may have {}", name, source.size(), limits.source_bytes));
  return TemplateLexer(source, name).run();
}

}  // namespace ingot::chat::jinja
