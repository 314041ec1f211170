// Parses expressions; each function is one level of precedence, the loosest first.
#include <algorithm>

#include "chat/jinja/token_stream.h"

namespace ingot::chat::jinja {
namespace {

using ExpressionKind = Expression::Kind;

ExpressionPtr make(ExpressionKind kind, const Place& place) {
  auto e = std::make_unique<Expression>();
  e->kind = kind;
  e->place = place;
  return e;
}

constexpr int kMaxTreeDepth =
    400;  // a chain of operators or filters deepens the tree without nesting the source

/// Makes `child` (which may be null) the next item of `e`.
void adopt(TokenStream& t, Expression& e, ExpressionPtr child) {
  if (child) e.depth = std::max(e.depth, child->depth + 1);
  if (e.depth > kMaxTreeDepth) t.fault_at(e.place, "the expression is too long: it nests too deep");
  e.items.push_back(std::move(child));
}

template <class... Items>
ExpressionPtr make(TokenStream& t, ExpressionKind kind, const Place& place, Items... items) {
  ExpressionPtr e = make(kind, place);
  (adopt(t, *e, std::move(items)), ...);
  return e;
}

ExpressionPtr parse_unary(TokenStream& t, bool filters = true);
ExpressionPtr parse_primary(TokenStream& t);
ExpressionPtr parse_postfix(TokenStream& t, ExpressionPtr e);

ExpressionPtr arithmetic(TokenStream& t, const Token& symbol, ExpressionPtr left, ExpressionPtr right) {
  ExpressionPtr e = make(t, ExpressionKind::arithmetic, symbol.place, std::move(left), std::move(right));
  e->name = symbol.text;
  return e;
}

ExpressionPtr parse_power(TokenStream& t) {
  ExpressionPtr left = parse_unary(t);
  while (t.is_symbol("**")) {
    const Token symbol = t.take();
    left = arithmetic(t, symbol, std::move(left), parse_unary(t));
  }
  return left;
}

ExpressionPtr parse_product(TokenStream& t) {
  ExpressionPtr left = parse_power(t);
  while (t.is_symbol("*") || t.is_symbol("/") || t.is_symbol("//") || t.is_symbol("%")) {
    const Token symbol = t.take();
    left = arithmetic(t, symbol, std::move(left), parse_power(t));
  }
  return left;
}

ExpressionPtr parse_concatenation(TokenStream& t) {
  const Place place = t.current().place;
  ExpressionPtr first = parse_product(t);
  if (!t.is_symbol("~")) return first;
  ExpressionPtr e = make(t, ExpressionKind::concatenation, place, std::move(first));
  while (t.skip_symbol("~")) adopt(t, *e, parse_product(t));
  return e;
}

ExpressionPtr parse_sum(TokenStream& t) {
  ExpressionPtr left = parse_concatenation(t);
  while (t.is_symbol("+") || t.is_symbol("-")) {
    const Token symbol = t.take();
    left = arithmetic(t, symbol, std::move(left), parse_concatenation(t));
  }
  return left;
}

ExpressionPtr parse_comparison(TokenStream& t) {
  const Place place = t.current().place;
  ExpressionPtr first = parse_sum(t);
  ExpressionPtr e;
  for (;;) {
    std::string op;
    for (const char* symbol : {"==", "!=", "<", "<=", ">", ">="})
      if (t.is_symbol(symbol)) op = symbol;
    const bool outside = t.is_word("not") && t.ahead().kind == Token::Kind::name && t.ahead().text == "in";
    if (t.is_word("in")) op = "in";
    if (outside) op = "not in";
    if (op.empty()) break;
    t.take();
    if (outside) t.take();
    if (!e) e = make(t, ExpressionKind::comparison, place, std::move(first));
    e->operators.push_back(op);
    adopt(t, *e, parse_sum(t));
  }
  return e ? std::move(e) : std::move(first);
}

ExpressionPtr parse_not(TokenStream& t) {
  const TokenStream::Level level(t);
  const Place place = t.current().place;
  if (t.skip_word("not")) return make(t, ExpressionKind::negated, place, parse_not(t));
  return parse_comparison(t);
}

ExpressionPtr parse_and(TokenStream& t) {
  const Place place = t.current().place;
  ExpressionPtr left = parse_not(t);
  while (t.skip_word("and")) left = make(t, ExpressionKind::both, place, std::move(left), parse_not(t));
  return left;
}

ExpressionPtr parse_or(TokenStream& t) {
  const Place place = t.current().place;
  ExpressionPtr left = parse_and(t);
  while (t.skip_word("or")) left = make(t, ExpressionKind::either, place, std::move(left), parse_and(t));
  return left;
}

ExpressionPtr constant(const Place& place, Value value) {
  ExpressionPtr e = make(ExpressionKind::constant, place);
  e->value = std::move(value);
  return e;
}

ExpressionPtr parse_name(TokenStream& t) {
  const Token token = t.take();
  const std::string& n = token.text;
  if (n == "true" || n == "True") return constant(token.place, Value::boolean(true));
  if (n == "false" || n == "False") return constant(token.place, Value::boolean(false));
  if (n == "none" || n == "None") return constant(token.place, Value::none());
  ExpressionPtr e = make(ExpressionKind::name, token.place);
  e->name = n;
  return e;
}

ExpressionPtr parse_dict(TokenStream& t) {
  ExpressionPtr e = make(ExpressionKind::dict, t.current().place);
  t.expect_symbol("{");
  while (!t.is_symbol("}")) {
    if (!e->items.empty()) t.expect_symbol(",");
    if (t.is_symbol("}")) break;
    adopt(t, *e, parse_expression(t));
    t.expect_symbol(":");
    adopt(t, *e, parse_expression(t));
  }
  t.expect_symbol("}");
  return e;
}

ExpressionPtr parse_list(TokenStream& t) {
  ExpressionPtr e = make(ExpressionKind::list, t.current().place);
  t.expect_symbol("[");
  while (!t.is_symbol("]")) {
    if (!e->items.empty()) t.expect_symbol(",");
    if (t.is_symbol("]")) break;
    adopt(t, *e, parse_expression(t));
  }
  t.expect_symbol("]");
  return e;
}

ExpressionPtr parse_parentheses(TokenStream& t) {
  const Place place = t.current().place;
  t.expect_symbol("(");
  if (t.skip_symbol(")")) return make(ExpressionKind::tuple, place);
  ExpressionPtr e = parse_tuple(t);
  t.expect_symbol(")");
  return e;
}

ExpressionPtr parse_primary(TokenStream& t) {
  const TokenStream::Level level(t);
  const Place place = t.current().place;
  switch (t.current().kind) {
    case Token::Kind::name:
      return parse_name(t);
    case Token::Kind::string: {
      std::string text;
      while (t.is(Token::Kind::string)) text += t.take().text;
      return constant(place, Value::text(text));
    }
    case Token::Kind::integer:
      return constant(place, Value::integer(std::stoll(t.take().text)));
    case Token::Kind::number: {
      const Token token = t.take();
      try {
        return constant(place, Value::number(std::stod(token.text)));
      } catch (const std::exception&) {
        t.fault_at(place, fmt::format("the number {} is out of range", token.text));
      }
    }
    default:
      break;
  }
  if (t.is_symbol("(")) return parse_parentheses(t);
  if (t.is_symbol("[")) return parse_list(t);
  if (t.is_symbol("{")) return parse_dict(t);
  t.fault(fmt::format("expected an expression, found {}", t.found()));
}

/// Arguments in parentheses, appended to a call, filter or test.
void parse_arguments(TokenStream& t, Expression& e) {
  t.expect_symbol("(");
  bool first = true;
  while (!t.is_symbol(")")) {
    if (!first) t.expect_symbol(",");
    first = false;
    if (t.is_symbol(")")) break;
    if (t.skip_symbol("*")) {
      e.more_positional = parse_expression(t);
    } else if (t.skip_symbol("**")) {
      e.more_named = parse_expression(t);
    } else if (t.is(Token::Kind::name) && t.ahead().kind == Token::Kind::symbol && t.ahead().text == "=") {
      std::string name = t.take().text;
      t.take();
      e.named.emplace_back(std::move(name), parse_expression(t));
    } else {
      if (!e.named.empty() || e.more_positional || e.more_named)
        t.fault("an argument without a name stands behind one with a name");
      adopt(t, e, parse_expression(t));
    }
  }
  t.expect_symbol(")");
}

ExpressionPtr parse_subscript(TokenStream& t, ExpressionPtr object) {
  const Place place = t.current().place;
  t.expect_symbol("[");
  ExpressionPtr parts[3];
  size_t colons = 0;
  for (;;) {
    if (t.is_symbol(":")) {
      if (++colons > 2) t.fault("a slice has at most two ':'");
      t.take();
    } else if (t.is_symbol("]")) {
      break;
    } else {
      if (parts[colons]) t.fault(fmt::format("expected ']', found {}", t.found()));
      parts[colons] = parse_expression(t);
    }
  }
  t.expect_symbol("]");
  if (colons > 0)
    return make(t, ExpressionKind::slice, place, std::move(object), std::move(parts[0]), std::move(parts[1]),
                std::move(parts[2]));
  if (!parts[0]) t.fault_at(place, "the brackets hold no index");
  return make(t, ExpressionKind::subscript, place, std::move(object), std::move(parts[0]));
}

ExpressionPtr parse_postfix(TokenStream& t, ExpressionPtr e) {
  for (;;) {
    const Place place = t.current().place;
    if (t.skip_symbol(".")) {
      if (t.is(Token::Kind::integer)) {
        e = make(t, ExpressionKind::subscript, place, std::move(e),
                 constant(place, Value::integer(std::stoll(t.take().text))));
      } else {
        e = make(t, ExpressionKind::attribute, place, std::move(e));
        e->name = t.expect_name();
      }
    } else if (t.is_symbol("[")) {
      e = parse_subscript(t, std::move(e));
    } else if (t.is_symbol("(")) {
      e = make(t, ExpressionKind::call, place, std::move(e));
      parse_arguments(t, *e);
    } else {
      return e;
    }
  }
}

ExpressionPtr parse_test(TokenStream& t, ExpressionPtr input) {
  const Place place = t.current().place;
  const bool negated = t.skip_word("not");
  ExpressionPtr e = make(t, ExpressionKind::test, place, std::move(input));
  e->name = t.expect_name();
  using K = Token::Kind;
  const bool begins_argument = t.is(K::name) || t.is(K::string) || t.is(K::integer) || t.is(K::number) ||
                               t.is_symbol("[") || t.is_symbol("{");
  if (t.is_symbol("(")) {
    parse_arguments(t, *e);
  } else if (begins_argument && !t.is_word("else") && !t.is_word("or") && !t.is_word("and")) {
    if (t.is_word("is")) t.fault("two tests with 'is' cannot follow each other");
    adopt(t, *e, parse_postfix(t, parse_primary(t)));
  }
  return negated ? make(t, ExpressionKind::negated, place, std::move(e)) : std::move(e);
}

/// What may follow a value: filters, tests, and calls of their results.
ExpressionPtr parse_filters_and_tests(TokenStream& t, ExpressionPtr e) {
  for (;;) {
    if (t.is_symbol("|")) {
      e = parse_filters(t, std::move(e), false);
    } else if (t.skip_word("is")) {
      e = parse_test(t, std::move(e));
    } else if (t.is_symbol("(")) {
      e = make(t, ExpressionKind::call, t.current().place, std::move(e));
      parse_arguments(t, *e);
    } else {
      return e;
    }
  }
}

ExpressionPtr parse_unary(TokenStream& t, bool filters) {
  const TokenStream::Level level(t);
  const Place place = t.current().place;
  ExpressionPtr e;
  if (t.skip_symbol("-"))
    e = make(t, ExpressionKind::minus, place, parse_unary(t, false));
  else if (t.skip_symbol("+"))
    e = make(t, ExpressionKind::plus, place, parse_unary(t, false));
  else
    e = parse_primary(t);
  e = parse_postfix(t, std::move(e));
  return filters ? parse_filters_and_tests(t, std::move(e)) : std::move(e);
}

}  // namespace

ExpressionPtr parse_filters(TokenStream& t, ExpressionPtr input, bool bare) {
  while (bare || t.is_symbol("|")) {
    if (!bare) t.take();
    bare = false;
    ExpressionPtr e = make(t, ExpressionKind::filter, t.current().place, std::move(input));
    e->name = t.expect_name();
    if (t.is_symbol("(")) parse_arguments(t, *e);
    input = std::move(e);
  }
  return input;
}

ExpressionPtr parse_expression(TokenStream& t) {
  const TokenStream::Level level(t);
  ExpressionPtr e = parse_or(t);
  while (t.is_word("if")) {
    const Place place = t.take().place;
    ExpressionPtr condition = parse_or(t);
    ExpressionPtr otherwise;
    if (t.skip_word("else")) otherwise = parse_expression(t);
    e = make(t, ExpressionKind::choice, place, std::move(e), std::move(condition), std::move(otherwise));
  }
  return e;
}

ExpressionPtr parse_tuple(TokenStream& t, bool choices) {
  const Place place = t.current().place;
  const auto one = [&] { return choices ? parse_expression(t) : parse_or(t); };
  ExpressionPtr first = one();
  if (!t.is_symbol(",")) return first;
  ExpressionPtr e = make(t, ExpressionKind::tuple, place, std::move(first));
  while (t.skip_symbol(",")) {
    if (t.is_symbol(")") || t.is(Token::Kind::block_end) || t.is(Token::Kind::print_end)) break;
    adopt(t, *e, one());
  }
  return e;
}

}  // namespace ingot::chat::jinja
