// See parser.h: parses statements; expressions are in parse_expressions.cpp.
#include <algorithm>
#include <array>

#include "chat/jinja/parser.h"
#include "chat/jinja/token_stream.h"

namespace ingot::chat::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;
using Words = std::vector<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : t_(tokens) {}

  /// Up to a tag that begins with one of `ends` (its first word is not taken), or to the end if there are
  /// none.
  Statements body(const Words& ends, const Place& opened, std::string_view tag) {
    const TokenStream::Level level(t_);
    Statements out;
    for (;;) {
      switch (t_.current().kind) {
        case Token::Kind::text: {
          StatementPtr s = make(Statement::Kind::text);
          s->text = t_.take().text;
          out.push_back(std::move(s));
          break;
        }
        case Token::Kind::print_begin: {
          t_.take();
          StatementPtr s = make(Statement::Kind::print);
          s->expression = parse_tuple(t_);
          t_.expect(Token::Kind::print_end, "'}}'");
          out.push_back(std::move(s));
          break;
        }
        case Token::Kind::block_begin: {
          const auto& next = t_.ahead();
          if (next.kind == Token::Kind::name &&
              std::find(ends.begin(), ends.end(), next.text) != ends.end()) {
            t_.take();
            return out;
          }
          t_.take();
          out.push_back(statement());
          t_.expect(Token::Kind::block_end, "'%}'");
          break;
        }
        default:
          if (!ends.empty()) t_.fault_at(opened, fmt::format("'{}' has no '{}'", tag, ends.back()));
          return out;
      }
    }
  }

 private:
  StatementPtr make(Statement::Kind kind) {
    auto s = std::make_unique<Statement>();
    s->kind = kind;
    s->place = t_.current().place;
    return s;
  }

  /// The body of a tag that ends with `end`; the end's word is taken.
  Statements closed_body(Statement& s, std::string_view end, std::string_view tag) {
    t_.expect(Token::Kind::block_end, "'%}'");
    Statements out = body({end}, s.place, tag);
    t_.expect_word(end);
    return out;
  }

  StatementPtr statement() {
    if (!t_.is(Token::Kind::name))
      t_.fault(fmt::format("expected the name of a statement, found {}", t_.found()));
    const std::string word = t_.current().text;
    if (word == "if") return branch();
    if (word == "for") return loop();
    if (word == "set") return assign();
    if (word == "macro") return macro();
    if (word == "call") return call_block();
    if (word == "filter") return filtered();
    if (word == "with") return with();
    if (word == "generation") {
      StatementPtr s = make(Statement::Kind::generation);
      t_.take();
      s->bodies.push_back(closed_body(*s, "endgeneration", word));
      return s;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) t_.fault(fmt::format("'{}' stands outside of a loop", word));
      StatementPtr s = make(word == "break" ? Statement::Kind::stop_loop : Statement::Kind::next_item);
      t_.take();
      return s;
    }
    static constexpr std::array kElsewhere = {"include", "import", "from", "extends", "block"};
    if (std::find(kElsewhere.begin(), kElsewhere.end(), word) != kElsewhere.end())
      t_.fault(fmt::format("the statement '{}' is not supported: a template reads no other files", word));
    t_.fault(fmt::format("the statement '{}' is not known here", word),
             "statements: if, for, set, macro, call, filter, with, generation, raw, break, continue");
  }

  StatementPtr branch() {
    StatementPtr s = make(Statement::Kind::branch);
    t_.take();
    for (;;) {
      s->conditions.push_back(parse_tuple(t_, false));
      t_.expect(Token::Kind::block_end, "'%}'");
      s->bodies.push_back(body({"elif", "else", "endif"}, s->place, "if"));
      const std::string word = t_.take().text;
      if (word == "elif") continue;
      if (word == "else") s->bodies.push_back(closed_body(*s, "endif", "if"));
      return s;
    }
  }

  StatementPtr loop() {
    StatementPtr s = make(Statement::Kind::loop);
    t_.take();
    s->targets.push_back(target(false));
    t_.expect_word("in");
    s->expression = parse_tuple(t_, false);
    if (t_.skip_word("if")) s->conditions.push_back(parse_expression(t_));
    s->recursive = t_.skip_word("recursive");
    t_.expect(Token::Kind::block_end, "'%}'");
    ++loops_;
    s->bodies.push_back(body({"else", "endfor"}, s->place, "for"));
    --loops_;
    if (t_.take().text == "else") s->bodies.push_back(closed_body(*s, "endfor", "for"));
    return s;
  }

  StatementPtr assign() {
    StatementPtr s = make(Statement::Kind::assign);
    t_.take();
    s->targets.push_back(target(true));
    if (t_.skip_symbol("=")) {
      s->expression = parse_tuple(t_);
    } else {
      s->filter = parse_filters(t_, nullptr, false);
      s->bodies.push_back(outside_loops([&] { return closed_body(*s, "endset", "set"); }));
    }
    return s;
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> out;
    t_.expect_symbol("(");
    while (!t_.is_symbol(")")) {
      if (!out.empty()) t_.expect_symbol(",");
      Parameter p;
      p.name = t_.expect_name();
      if (t_.skip_symbol("="))
        p.fallback = parse_expression(t_);
      else if (!out.empty() && out.back().fallback)
        t_.fault("a parameter without a default stands behind one with a default");
      out.push_back(std::move(p));
    }
    t_.expect_symbol(")");
    return out;
  }

  /// Loops outside of a function's or a capture's body cannot be left from inside.
  template <class Parse>
  Statements outside_loops(Parse&& parse) {
    const int loops = std::exchange(loops_, 0);
    Statements out = parse();
    loops_ = loops;
    return out;
  }

  StatementPtr macro() {
    StatementPtr s = make(Statement::Kind::macro);
    t_.take();
    s->text = t_.expect_name();
    s->parameters = parameters();
    const size_t begin = t_.position();
    s->bodies.push_back(outside_loops([&] { return closed_body(*s, "endmacro", "macro"); }));
    s->takes_varargs = t_.mentions("varargs", begin);
    s->takes_kwargs = t_.mentions("kwargs", begin);
    return s;
  }

  StatementPtr call_block() {
    StatementPtr s = make(Statement::Kind::call_block);
    t_.take();
    if (t_.is_symbol("(")) s->parameters = parameters();
    s->expression = parse_expression(t_);
    if (s->expression->kind != Expression::Kind::call)
      t_.fault_at(s->place, "'call' needs the call of a macro");
    s->bodies.push_back(outside_loops([&] { return closed_body(*s, "endcall", "call"); }));
    return s;
  }

  StatementPtr filtered() {
    StatementPtr s = make(Statement::Kind::filtered);
    t_.take();
    s->expression = parse_filters(t_, nullptr, true);
    s->bodies.push_back(outside_loops([&] { return closed_body(*s, "endfilter", "filter"); }));
    return s;
  }

  StatementPtr with() {
    StatementPtr s = make(Statement::Kind::with);
    t_.take();
    while (!t_.is(Token::Kind::block_end)) {
      if (!s->targets.empty()) t_.expect_symbol(",");
      s->targets.push_back(target(false));
      t_.expect_symbol("=");
      s->conditions.push_back(parse_expression(t_));
    }
    s->bodies.push_back(closed_body(*s, "endwith", "with"));
    return s;
  }

  Target single_target(bool attributes) {
    const TokenStream::Level level(t_);
    if (t_.skip_symbol("(")) {
      Target inner = target(attributes);
      t_.expect_symbol(")");
      return inner;
    }
    Target out;
    const Place place = t_.current().place;
    out.name = t_.expect_name();
    for (const char* constant : {"true", "false", "none", "True", "False", "None"})
      if (out.name == constant) t_.fault_at(place, fmt::format("nothing can be assigned to '{}'", out.name));
    if (attributes && t_.skip_symbol(".")) out.attribute = t_.expect_name();
    return out;
  }

  Target target(bool attributes) {
    Target first = single_target(attributes);
    if (!t_.is_symbol(",")) return first;
    Target out;
    out.parts.push_back(std::move(first));
    while (t_.skip_symbol(",")) {
      if (t_.is_symbol("=") || t_.is_symbol(")") || t_.is_word("in")) break;
      out.parts.push_back(single_target(attributes));
    }
    return out;
  }

  TokenStream& t_;
  int loops_ = 0;
};

}  // namespace

Statements parse_template(std::string_view source, const std::string& name, const Limits& limits) {
  TokenStream tokens(tokenize_template(source, name, limits), name, limits.depth);
  return StatementParser(tokens).body({}, {}, "");
}

}  // namespace ingot::chat::jinja
