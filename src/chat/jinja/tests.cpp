// See builtins.h: what may stand behind `is`.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;

template <Kind kKind>
bool is_kind(Interpreter&, const Value& v, Arguments&) {
  return v.kind() == kKind;
}

template <bool kValue>
bool is_truth_value(Interpreter&, const Value& v, Arguments&) {
  return v.kind() == Kind::boolean && v.as_boolean() == kValue;
}

bool is_compared(Interpreter& in, const char* op, const Value& v, Arguments& a) {
  return in.compare(op, v, a.need(0, "other"));
}

int64_t integer_of(const Value& v) {
  if (v.kind() != Kind::integer && v.kind() != Kind::boolean)
    throw Fault{fmt::format("expected an integer, found {}", v.type_name()), {}};
  return v.as_integer();
}

bool is_case(const Value& v, LetterCase how) {
  const Text t = v.str();
  const LetterCase other = how == LetterCase::lower ? LetterCase::upper : LetterCase::lower;
  return with_case(t, how).bytes() == t.bytes() && with_case(t, other).bytes() != t.bytes();
}

const std::map<std::string_view, TestFunction>& all_tests() {
  static const std::map<std::string_view, TestFunction> table = {
      {"!=", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "!=", v, a); }},
      {"<", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "<", v, a); }},
      {"<=", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "<=", v, a); }},
      {"==", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "==", v, a); }},
      {">", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, ">", v, a); }},
      {">=", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, ">=", v, a); }},
      {"boolean", is_kind<Kind::boolean>},
      {"callable", is_kind<Kind::function>},
      {"defined", [](Interpreter&, const Value& v, Arguments&) { return !v.is_undefined(); }},
      {"divisibleby",
       [](Interpreter& in, const Value& v, Arguments& a) {
         return in.arithmetic("%", v, a.need(0, "num")).equals(Value::integer(0));
       }},
      {"eq", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "==", v, a); }},
      {"equalto", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "==", v, a); }},
      {"escaped", [](Interpreter&, const Value& v, Arguments&) { return v.is_text() && v.as_text().safe(); }},
      {"even", [](Interpreter&, const Value& v, Arguments&) { return integer_of(v) % 2 == 0; }},
      {"false", is_truth_value<false>},
      {"filter", [](Interpreter&, const Value& v,
                    Arguments&) { return v.is_text() && find_filter(v.as_text().bytes()) != nullptr; }},
      {"float", is_kind<Kind::number>},
      {"ge", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, ">=", v, a); }},
      {"greaterthan",
       [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, ">", v, a); }},
      {"gt", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, ">", v, a); }},
      {"in",
       [](Interpreter& in, const Value& v, Arguments& a) { return in.compare("in", v, a.need(0, "seq")); }},
      {"integer", is_kind<Kind::integer>},
      {"iterable",
       [](Interpreter&, const Value& v, Arguments&) {
         return v.is_undefined() || v.is_text() || v.is_sequence() || v.is_dict();
       }},
      {"le", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "<=", v, a); }},
      {"lessthan", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "<", v, a); }},
      {"lower", [](Interpreter&, const Value& v, Arguments&) { return is_case(v, LetterCase::lower); }},
      {"lt", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "<", v, a); }},
      {"mapping", is_kind<Kind::dict>},
      {"ne", [](Interpreter& in, const Value& v, Arguments& a) { return is_compared(in, "!=", v, a); }},
      {"none", is_kind<Kind::none>},
      {"number", [](Interpreter&, const Value& v, Arguments&) { return v.is_number(); }},
      {"odd", [](Interpreter&, const Value& v, Arguments&) { return integer_of(v) % 2 != 0; }},
      {"sameas",
       [](Interpreter&, const Value& v, Arguments& a) {
         const Value& other = a.need(0, "other");
         return v.kind() == other.kind() &&
                (v.identity() != nullptr ? v.identity() == other.identity() : v.equals(other));
       }},
      {"sequence",
       [](Interpreter&, const Value& v, Arguments&) {
         return v.is_undefined() || v.is_text() || v.is_sequence() || v.is_dict();
       }},
      {"string", is_kind<Kind::text>},
      {"test", [](Interpreter&, const Value& v,
                  Arguments&) { return v.is_text() && find_test(v.as_text().bytes()) != nullptr; }},
      {"true", is_truth_value<true>},
      {"undefined", [](Interpreter&, const Value& v, Arguments&) { return v.is_undefined(); }},
      {"upper", [](Interpreter&, const Value& v, Arguments&) { return is_case(v, LetterCase::upper); }},
  };
  return table;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto found = all_tests().find(name);
  return found == all_tests().end() ? nullptr : found->second;
}

std::string test_names() {
  std::string out;
  for (const auto& [name, function] : all_tests()) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

}  // namespace ingot::chat::jinja
