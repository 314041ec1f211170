// The tokens of a template as its parsers read them, with the messages of unexpected ones. Internal.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/lexer.h"

namespace ingot::chat::jinja {

class TokenStream {
 public:
  TokenStream(std::vector<Token> tokens, const std::string& name, int depth_limit)
      : tokens_(std::move(tokens)), name_(name), depth_limit_(depth_limit) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  size_t position() const { return at_; }
  /// A name that was read since `position`.
  bool mentions(std::string_view word, size_t position) const {
    for (; position < at_; ++position)
      if (tokens_[position].kind == Token::Kind::name && tokens_[position].text == word) return true;
    return false;
  }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_symbol(std::string_view s) const { return is(Token::Kind::symbol) && current().text == s; }
  bool is_word(std::string_view s) const { return is(Token::Kind::name) && current().text == s; }
  bool skip_symbol(std::string_view s) { return is_symbol(s) && (++at_, true); }
  bool skip_word(std::string_view s) { return is_word(s) && (++at_, true); }
  void expect_symbol(std::string_view s) {
    if (!skip_symbol(s)) fault(fmt::format("expected '{}', found {}", s, found()));
  }
  void expect_word(std::string_view s) {
    if (!skip_word(s)) fault(fmt::format("expected '{}', found {}", s, found()));
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (!is(kind)) fault(fmt::format("expected {}, found {}", what, found()));
    ++at_;
  }
  std::string expect_name() {
    if (!is(Token::Kind::name)) fault(fmt::format("expected a name, found {}", found()));
    return take().text;
  }
  std::string found() const {
    switch (current().kind) {
      case Token::Kind::text:
        return "text";
      case Token::Kind::print_begin:
        return "'{{'";
      case Token::Kind::print_end:
        return "'}}'";
      case Token::Kind::block_begin:
        return "'{%'";
      case Token::Kind::block_end:
        return "'%}'";
      case Token::Kind::end:
        return "the end of the template";
      default:
        return "'" + current().text + "'";
    }
  }
  [[noreturn]] void fault(const std::string& message, const std::string& hint = {}) const {
    fail_in_template(name_, current().place, message, hint);
  }
  [[noreturn]] void fault_at(const Place& place, const std::string& message,
                             const std::string& hint = {}) const {
    fail_in_template(name_, place, message, hint);
  }

  /// One level of nesting as long as it lives.
  class Level {
   public:
    explicit Level(TokenStream& stream) : stream_(stream) {
      if (++stream_.depth_ > stream_.depth_limit_) {
        --stream_.depth_;
        stream_.fault(fmt::format("the template nests deeper than {}", stream_.depth_limit_));
      }
    }
    ~Level() { --stream_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenStream& stream_;
  };

 private:
  std::vector<Token> tokens_;
  const std::string& name_;
  int depth_ = 0, depth_limit_;
  size_t at_ = 0;
};

/// Expressions, in parse_expressions.cpp. `tuples`: commas make a tuple; `choices`: `a if b else c` is read.
ExpressionPtr parse_expression(TokenStream& tokens);
ExpressionPtr parse_tuple(TokenStream& tokens, bool choices = true);
/// The filters that follow `input` (null: of {% filter %} and {% set %}); `bare`: the first has no '|'.
ExpressionPtr parse_filters(TokenStream& tokens, ExpressionPtr input, bool bare);

}  // namespace ingot::chat::jinja
