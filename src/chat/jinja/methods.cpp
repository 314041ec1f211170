// See builtins.h: the methods of strings, lists and dicts, as Python has them.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;
using Method = Value (*)(Interpreter&, const Value& self, Arguments&);
using MethodTable = std::map<std::string_view, Method>;

const Text& text_argument(Arguments& a, size_t index, std::string_view name) {
  const Value& v = a.need(index, name);
  if (!v.is_text()) throw Fault{fmt::format("'{}' is a {}, expected a str", name, v.type_name()), {}};
  return v.as_text();
}

int64_t integer_argument(Arguments& a, size_t index, std::string_view name, int64_t otherwise) {
  const Value* v = a.find(index, name);
  if (v == nullptr || v->kind() == Kind::none) return otherwise;
  if (v->kind() != Kind::integer && v->kind() != Kind::boolean)
    throw Fault{fmt::format("'{}' is a {}, expected an integer", name, v->type_name()), {}};
  return v->as_integer();
}

template <bool kLeft, bool kRight>
Value strip_method(Interpreter& in, const Value& self, Arguments& a) {
  const Value* characters = a.find(0, "chars");
  const bool given = characters != nullptr && characters->kind() != Kind::none;
  return in.made(
      strip(self.as_text(), kLeft, kRight, given ? &text_argument(a, 0, "chars").bytes() : nullptr));
}

template <LetterCase kCase>
Value case_method(Interpreter& in, const Value& self, Arguments&) {
  return in.made(with_case(self.as_text(), kCase));
}

Value texts(Interpreter& in, std::vector<Text> parts, Origin origin) {
  List out;
  for (Text& t : parts) out.push_back(Value::text(std::move(t)));
  return in.made_list(std::move(out), origin);
}

template <bool kRight>
Value split_method(Interpreter& in, const Value& self, Arguments& a) {
  const Value* separator = a.find(0, "sep");
  const int64_t limit = integer_argument(a, 1, "maxsplit", -1);
  in.charge(static_cast<int64_t>(self.as_text().size() / 16));
  if (separator == nullptr || separator->kind() == Kind::none) {
    in.charge(static_cast<int64_t>(kRight ? self.as_text().size() : 0));
    return texts(in, split_at_space(self.as_text(), limit, kRight), self.origin());
  }
  const Text& by = text_argument(a, 0, "sep");
  if (by.size() == 0) throw Fault{"the separator is empty", {}};
  return texts(in, split(self.as_text(), by.bytes(), limit, kRight), self.origin());
}

template <bool kRight>
Value partition_method(Interpreter&, const Value& self, Arguments& a) {
  const Text& t = self.as_text();
  const Text& by = text_argument(a, 0, "sep");
  if (by.size() == 0) throw Fault{"the separator is empty", {}};
  const size_t at = kRight ? t.bytes().rfind(by.bytes()) : t.bytes().find(by.bytes());
  const Value empty = Value::text(Text());
  if (at == std::string::npos)
    return kRight ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  return Value::tuple({Value::text(t.slice(0, at)), Value::text(t.slice(at, at + by.size())),
                       Value::text(t.slice(at + by.size(), t.size()))});
}

/// startswith, endswith: one string or a tuple of them, in the part from `start` to `end`.
template <bool kEnd>
Value affix_method(Interpreter& in, const Value& self, Arguments& a) {
  const Value& wanted = a.need(0, "prefix");
  const Value begin = Value::integer(integer_argument(a, 1, "start", 0));
  const Value* stop = a.find(2, "end");
  const Value part = in.slice(self, begin, stop != nullptr ? *stop : Value::none(), Value::none());
  const std::string& s = part.as_text().bytes();
  const List options = wanted.kind() == Kind::tuple ? wanted.as_list() : List{wanted};
  return Value::boolean(std::any_of(options.begin(), options.end(), [&](const Value& v) {
    if (!v.is_text()) throw Fault{fmt::format("expected a str, found {}", v.type_name()), {}};
    return kEnd ? s.ends_with(v.as_text().bytes()) : s.starts_with(v.as_text().bytes());
  }));
}

template <bool kRight, bool kMustFind>
Value find_in_text(Interpreter& in, const Value& self, Arguments& a) {
  const std::string& wanted = text_argument(a, 0, "sub").bytes();
  const int64_t start = integer_argument(a, 1, "start", 0);
  const Value* stop = a.find(2, "end");
  const Value part =
      in.slice(self, Value::integer(start), stop != nullptr ? *stop : Value::none(), Value::none());
  const std::string& s = part.as_text().bytes();
  const size_t at = kRight ? s.rfind(wanted) : s.find(wanted);
  if (at == std::string::npos) {
    if (kMustFind) throw Fault{"the substring was not found", {}};
    return Value::integer(-1);
  }
  const int64_t offset = start < 0 ? std::max<int64_t>(0, self.length() + start) : start;
  return Value::integer(offset + static_cast<int64_t>(count_characters(std::string_view(s).substr(0, at))));
}

Value count_in_text(Interpreter&, const Value& self, Arguments& a) {
  const std::string& wanted = text_argument(a, 0, "sub").bytes();
  const std::string& s = self.as_text().bytes();
  if (wanted.empty()) return Value::integer(self.length() + 1);
  int64_t count = 0;
  for (size_t at = s.find(wanted); at != std::string::npos; at = s.find(wanted, at + wanted.size())) ++count;
  return Value::integer(count);
}

Value replace_method(Interpreter& in, const Value& self, Arguments& a) {
  const Text& old = text_argument(a, 0, "old");
  const Text& with = text_argument(a, 1, "new");
  const int64_t count = integer_argument(a, 2, "count", -1);
  const double most =
      static_cast<double>(self.as_text().size() + 1) * static_cast<double>(with.size() + 1) / 4096;
  in.charge(static_cast<int64_t>(std::min(most, 1e18)));
  return in.made(replace(self.as_text(), old.bytes(), with, count));
}

Value join_method(Interpreter& in, const Value& self, Arguments& a) {
  Text out;
  bool first = true;
  for (const Value& item : a.need(0, "iterable").items()) {
    if (!item.is_text()) throw Fault{fmt::format("join needs strings, found {}", item.type_name()), {}};
    if (!first) out.append(self.as_text());
    first = false;
    out.append(item.as_text());
    in.charge(1 + static_cast<int64_t>(self.as_text().size() / 64));
  }
  return in.made(std::move(out));
}

template <bool kEnd>
Value remove_affix(Interpreter&, const Value& self, Arguments& a) {
  const Text& t = self.as_text();
  const std::string& affix = text_argument(a, 0, "prefix").bytes();
  if (kEnd && t.bytes().ends_with(affix)) return Value::text(t.slice(0, t.size() - affix.size()));
  if (!kEnd && t.bytes().starts_with(affix)) return Value::text(t.slice(affix.size(), t.size()));
  return self;
}

/// ljust, rjust, zfill: padding before (or behind) to a width.
template <bool kBefore, bool kZeros>
Value justify(Interpreter& in, const Value& self, Arguments& a) {
  const int64_t width = std::clamp<int64_t>(integer_argument(a, 0, "width", 0), 0, 1 << 20);
  const Value* fill = kZeros ? nullptr : a.find(1, "fillchar");
  const Text one = fill != nullptr ? fill->as_text() : Text(kZeros ? "0" : " ");
  Text pad;
  for (int64_t i = self.length(); i < width; ++i) pad.append(one);
  const Text& t = self.as_text();
  const size_t sign = kZeros && (t.bytes().starts_with('-') || t.bytes().starts_with('+')) ? 1 : 0;
  Text out = t.slice(0, kBefore ? sign : t.size());
  out.append(pad);
  if (kBefore) out.append(t, sign, t.size());
  return in.made(std::move(out));
}

enum class Class : uint8_t { digits, letters, both, spaces, lower, upper };
template <Class kClass>
Value all_are(Interpreter&, const Value& self, Arguments&) {
  const std::string& s = self.as_text().bytes();
  bool all = !s.empty();
  for (size_t at = 0; at < s.size() && all;) {
    uint32_t c = 0;
    at += character_length(s, at, &c);
    const bool digit = c >= '0' && c <= '9';
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= 0xC0 && c != 0xD7 && c != 0xF7 && !is_space(c));
    all = kClass == Class::digits    ? digit
          : kClass == Class::letters ? letter
          : kClass == Class::both    ? digit || letter
          : kClass == Class::spaces  ? is_space(c)
                                     : true;
  }
  if (kClass == Class::lower || kClass == Class::upper) {
    const bool low = kClass == Class::lower;
    all = with_case(self.as_text(), low ? LetterCase::lower : LetterCase::upper).bytes() == s &&
          with_case(self.as_text(), low ? LetterCase::upper : LetterCase::lower).bytes() != s;
  }
  return Value::boolean(all);
}

const MethodTable& text_methods() {
  static const MethodTable table = {
      {"capitalize", case_method<LetterCase::capital>},
      {"casefold", case_method<LetterCase::lower>},
      {"count", count_in_text},
      {"endswith", affix_method<true>},
      {"find", find_in_text<false, false>},
      {"format",
       [](Interpreter& in, const Value& self, Arguments& a) {
         for (size_t i = 0; i < a.positional.size(); ++i) a.find(i, "");
         for (const auto& [key, value] : a.named) a.find(a.positional.size(), key);
         return in.made(format_braces(self.as_text(), a));
       }},
      {"index", find_in_text<false, true>},
      {"isalnum", all_are<Class::both>},
      {"isalpha", all_are<Class::letters>},
      {"isdecimal", all_are<Class::digits>},
      {"isdigit", all_are<Class::digits>},
      {"islower", all_are<Class::lower>},
      {"isnumeric", all_are<Class::digits>},
      {"isspace", all_are<Class::spaces>},
      {"isupper", all_are<Class::upper>},
      {"join", join_method},
      {"ljust", justify<false, false>},
      {"lower", case_method<LetterCase::lower>},
      {"lstrip", strip_method<true, false>},
      {"partition", partition_method<false>},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"replace", replace_method},
      {"rfind", find_in_text<true, false>},
      {"rindex", find_in_text<true, true>},
      {"rjust", justify<true, false>},
      {"rpartition", partition_method<true>},
      {"rsplit", split_method<true>},
      {"rstrip", strip_method<false, true>},
      {"split", split_method<false>},
      {"splitlines",
       [](Interpreter& in, const Value& self, Arguments& a) {
         const Value* keep = a.find(0, "keepends");
         return texts(in, split_lines(self.as_text(), keep != nullptr && keep->truth()), self.origin());
       }},
      {"startswith", affix_method<false>},
      {"strip", strip_method<true, true>},
      {"swapcase", case_method<LetterCase::swapped>},
      {"title", case_method<LetterCase::title>},
      {"upper", case_method<LetterCase::upper>},
      {"zfill", justify<true, true>},
  };
  return table;
}

const MethodTable& list_methods() {
  static const MethodTable table = {
      {"copy", [](Interpreter& in, const Value& self,
                  Arguments&) { return in.made_list(self.as_list(), self.origin()); }},
      {"count",
       [](Interpreter& in, const Value& self, Arguments& a) {
         const Value& wanted = a.need(0, "value");
         in.charge(self.length());
         return Value::integer(std::count_if(self.as_list().begin(), self.as_list().end(),
                                             [&](const Value& v) { return v.equals(wanted); }));
       }},
      {"index",
       [](Interpreter& in, const Value& self, Arguments& a) {
         const Value& wanted = a.need(0, "value");
         in.charge(self.length());
         const auto found = std::find_if(self.as_list().begin(), self.as_list().end(),
                                         [&](const Value& v) { return v.equals(wanted); });
         if (found == self.as_list().end()) throw Fault{"the value is not in the list", {}};
         return Value::integer(found - self.as_list().begin());
       }},
  };
  return table;
}

const MethodTable& dict_methods() {
  static const MethodTable table = {
      {"copy",
       [](Interpreter& in, const Value& self, Arguments&) {
         in.charge(self.length());
         return Value::dict(self.as_dict(), self.origin());
       }},
      {"get",
       [](Interpreter& in, const Value& self, Arguments& a) {
         const Value& key = a.need(0, "key");
         const Value* otherwise = a.find(1, "default");
         in.charge(1 + self.length() / 16);
         const Value* found = self.as_dict().find(key);
         return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value::none();
       }},
      {"items",
       [](Interpreter& in, const Value& self, Arguments&) {
         List out;
         for (const auto& [key, value] : self.as_dict().items) out.push_back(Value::tuple({key, value}));
         return in.made_list(std::move(out), self.origin());
       }},
      {"keys", [](Interpreter& in, const Value& self,
                  Arguments&) { return in.made_list(self.items(), self.origin()); }},
      {"values",
       [](Interpreter& in, const Value& self, Arguments&) {
         List out;
         for (const auto& [key, value] : self.as_dict().items) out.push_back(value);
         return in.made_list(std::move(out), self.origin());
       }},
  };
  return table;
}

/// Methods that change their object: the sandbox of transformers refuses them too.
bool changes_object(const Value& object, std::string_view name) {
  static constexpr std::array kList = {"append", "clear",  "extend",  "insert",
                                       "pop",    "remove", "reverse", "sort"};
  static constexpr std::array kDict = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.kind() == Kind::list) return std::find(kList.begin(), kList.end(), name) != kList.end();
  return object.is_dict() && std::find(kDict.begin(), kDict.end(), name) != kDict.end();
}

}  // namespace

Value find_method(const Value& object, std::string_view name) {
  if (!object.is_text() && !object.is_sequence() && !object.is_dict()) return {};
  const MethodTable& table = object.is_text()   ? text_methods()
                             : object.is_dict() ? dict_methods()
                                                : list_methods();
  const std::string full = fmt::format("{}.{}", object.type_name(), name);
  if (changes_object(object, name))
    return Value::function(full, [full](Interpreter&, Arguments&) -> Value {
      throw Fault{fmt::format("'{}' would change its object, which templates may not", full),
                  "make a new value with +"};
    });
  const auto found = table.find(name);
  if (found == table.end()) return {};
  return Value::function(full, [object, method = found->second, full](Interpreter& in, Arguments& a) {
    Value out = method(in, object, a);
    a.refuse_others(full);
    return out;
  });
}

}  // namespace ingot::chat::jinja
