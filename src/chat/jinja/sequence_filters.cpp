// See builtins.h: filters of lists and dicts.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "chat/jinja/builtins.h"

namespace ingot::chat::jinja {
namespace {

using Kind = Value::Kind;

/// "a.b.0": the attribute of an attribute, numbers index.
Value path_attribute(Interpreter& in, Value v, const Value& path) {
  if (!path.is_text()) return in.subscript(v, path);
  for (const Text& part : split(path.as_text(), ".", -1, false)) {
    const std::string& name = part.bytes();
    if (!name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      v = in.subscript(v, Value::integer(std::stoll(name)));
    else
      v = in.subscript(v, Value::text(part));  // item first, then attribute, as Jinja's environment.getitem
  }
  return v;
}

/// What sort, min, max, unique and groupby compare: strings without case unless told.
Value sort_key(Interpreter& in, const Value& item, const Value* attribute, bool case_sensitive) {
  const bool by_attribute = attribute != nullptr && attribute->kind() != Kind::none;
  Value key = by_attribute ? path_attribute(in, item, *attribute) : item;
  if (!case_sensitive && key.is_text()) return Value::text(with_case(key.as_text(), LetterCase::lower));
  return key;
}

bool flag(const Value* v) {
  return v != nullptr && v->truth();
}

Value filter_first(Interpreter& in, const Value& v, Arguments&) {
  const List items =
      v.is_text() ? in.slice(v, Value::integer(0), Value::integer(1), Value::none()).items() : v.items();
  return items.empty() ? Value::undefined("the sequence is empty, it has no first item") : items.front();
}

Value filter_last(Interpreter& in, const Value& v, Arguments&) {
  const List items =
      v.is_text() ? in.slice(v, Value::integer(-1), Value::none(), Value::none()).items() : v.items();
  return items.empty() ? Value::undefined("the sequence is empty, it has no last item") : items.back();
}

Value filter_list(Interpreter& in, const Value& v, Arguments&) {
  return in.made_list(v.items(), v.origin());
}

Value filter_join(Interpreter& in, const Value& v, Arguments& a) {
  const Value* separator = a.find(0, "d");
  const Value* attribute = a.find(1, "attribute");
  List parts;
  for (const Value& item : v.items()) {
    if (!parts.empty() && separator != nullptr) parts.push_back(*separator);
    parts.push_back(attribute != nullptr && attribute->kind() != Kind::none
                        ? path_attribute(in, item, *attribute)
                        : item);
    in.charge(1);
  }
  return in.concatenate(parts);
}

Value filter_reverse(Interpreter& in, const Value& v, Arguments&) {
  List items = v.items();
  std::reverse(items.begin(), items.end());
  if (!v.is_text()) return in.made_list(std::move(items), v.origin());
  return in.concatenate(items);
}

Value filter_map(Interpreter& in, const Value& v, Arguments& a) {
  List out;
  const Value* attribute = nullptr;
  if (a.positional.empty()) attribute = a.find(0, "attribute");
  if (attribute != nullptr) {
    const Value* otherwise = a.find(1, "default");
    for (const Value& item : v.items()) {
      Value found = path_attribute(in, item, *attribute);
      out.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : found);
    }
    return in.made_list(std::move(out));
  }
  const std::string name = a.need(0, "attribute").str().bytes();
  for (size_t i = 0; i < a.positional.size(); ++i) a.find(i, "");
  for (const Value& item : v.items()) {
    Arguments rest;
    rest.positional.assign(a.positional.begin() + 1, a.positional.end());
    rest.named = a.named;
    out.push_back(in.filter(name, item, rest));
  }
  for (const auto& [key, value] : a.named) a.find(a.positional.size(), key);
  return in.made_list(std::move(out));
}

/// select, reject, selectattr, rejectattr: the items for which a test holds.
Value chosen(Interpreter& in, const Value& v, Arguments& a, bool by_attribute, bool wanted) {
  const size_t first = by_attribute ? 1 : 0;
  if (by_attribute) a.need(0, "attribute");
  for (size_t i = 0; i < a.positional.size(); ++i) a.find(i, "");
  List out;
  for (const Value& item : v.items()) {
    in.charge(1);
    const Value subject = by_attribute ? path_attribute(in, item, a.positional[0]) : item;
    bool holds = false;
    if (a.positional.size() <= first) {
      holds = subject.truth();
    } else {
      Arguments rest;
      rest.positional.assign(a.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                             a.positional.end());
      holds = in.test(a.positional[first].str().bytes(), subject, rest);
    }
    if (holds == wanted) out.push_back(item);
  }
  return in.made_list(std::move(out));
}

List sorted(Interpreter& in, const Value& v, const Value* attribute, bool case_sensitive, bool reverse) {
  std::vector<std::pair<List, Value>> keyed;
  std::vector<Text> attributes;
  if (attribute != nullptr && attribute->is_text()) attributes = split(attribute->as_text(), ",", -1, false);
  for (Value& item : v.items()) {
    List keys;
    for (const Text& name : attributes) {
      const Value one = Value::text(name);
      keys.push_back(sort_key(in, item, &one, case_sensitive));
    }
    if (attributes.empty()) keys.push_back(sort_key(in, item, attribute, case_sensitive));
    keyed.emplace_back(std::move(keys), std::move(item));
    in.charge(20);
  }
  const auto less = [](const auto& x, const auto& y) {
    for (size_t i = 0; i < x.first.size(); ++i) {
      if (x.first[i].less(y.first[i])) return true;
      if (y.first[i].less(x.first[i])) return false;
    }
    return false;
  };
  if (reverse)
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) { return less(y, x); });
  else
    std::stable_sort(keyed.begin(), keyed.end(), less);
  List out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return out;
}

Value filter_sort(Interpreter& in, const Value& v, Arguments& a) {
  const Value *reverse = a.find(0, "reverse"), *sensitive = a.find(1, "case_sensitive"),
              *attribute = a.find(2, "attribute");
  return in.made_list(sorted(in, v, attribute, flag(sensitive), flag(reverse)));
}

Value filter_dict_sort(Interpreter& in, const Value& v, Arguments& a) {
  const Value *sensitive = a.find(0, "case_sensitive"), *by = a.find(1, "by"),
              *reverse = a.find(2, "reverse");
  if (!v.is_dict()) throw Fault{fmt::format("dictsort needs a dict, found {}", v.type_name()), {}};
  List pairs;
  for (const auto& [key, value] : v.as_dict().items) pairs.push_back(Value::tuple({key, value}));
  const Value index = Value::integer(by != nullptr && by->str().bytes() == "value" ? 1 : 0);
  return in.made_list(sorted(in, Value::list(std::move(pairs)), &index, flag(sensitive), flag(reverse)));
}

Value extreme(Interpreter& in, const Value& v, Arguments& a, bool largest) {
  const Value *sensitive = a.find(0, "case_sensitive"), *attribute = a.find(1, "attribute");
  const List items = v.items();
  if (items.empty()) return Value::undefined("the sequence is empty");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const Value x = sort_key(in, items[i], attribute, flag(sensitive));
    const Value y = sort_key(in, items[best], attribute, flag(sensitive));
    if (largest ? y.less(x) : x.less(y)) best = i;
  }
  return items[best];
}

Value filter_unique(Interpreter& in, const Value& v, Arguments& a) {
  const Value *sensitive = a.find(0, "case_sensitive"), *attribute = a.find(1, "attribute");
  List keys, out;
  for (const Value& item : v.items()) {
    Value key = sort_key(in, item, attribute, flag(sensitive));
    in.charge(static_cast<int64_t>(keys.size()));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return k.equals(key); })) continue;
    keys.push_back(std::move(key));
    out.push_back(item);
  }
  return in.made_list(std::move(out));
}

Value filter_group_by(Interpreter& in, const Value& v, Arguments& a) {
  const Value& attribute = a.need(0, "attribute");
  const Value *otherwise = a.find(1, "default"), *sensitive = a.find(2, "case_sensitive");
  const Value keys_of = attribute;
  List groups;
  for (const Value& item : sorted(in, v, &keys_of, flag(sensitive), false)) {
    Value key = path_attribute(in, item, attribute);
    if (key.is_undefined() && otherwise != nullptr) key = *otherwise;
    const auto same = [&](const Value& group) {
      return sort_key(in, group.as_list()[0], nullptr, flag(sensitive))
          .equals(sort_key(in, key, nullptr, flag(sensitive)));
    };
    if (groups.empty() || !same(groups.back())) {
      groups.push_back(Value::tuple({key, Value::list({item})}));
    } else {
      List members = groups.back().as_list()[1].as_list();
      in.charge(static_cast<int64_t>(members.size()));
      members.push_back(item);
      groups.back() = Value::tuple({groups.back().as_list()[0], Value::list(std::move(members))});
    }
  }
  return in.made_list(std::move(groups));
}

Value filter_items(Interpreter& in, const Value& v, Arguments&) {
  if (v.is_undefined()) return Value::list({});
  if (!v.is_dict()) throw Fault{fmt::format("items needs a dict, found {}", v.type_name()), {}};
  List out;
  for (const auto& [key, value] : v.as_dict().items) out.push_back(Value::tuple({key, value}));
  return in.made_list(std::move(out));
}

Value filter_sum(Interpreter& in, const Value& v, Arguments& a) {
  const Value *attribute = a.find(0, "attribute"), *start = a.find(1, "start");
  Value total = start != nullptr ? *start : Value::integer(0);
  for (const Value& item : v.items())
    total = in.arithmetic("+", total,
                          attribute != nullptr && attribute->kind() != Kind::none
                              ? path_attribute(in, item, *attribute)
                              : item);
  return total;
}

Value filter_attribute(Interpreter& in, const Value& v, Arguments& a) {
  const std::string name = a.need(0, "name").str().bytes();
  if (v.is_dict()) return find_method(v, name);
  return in.attribute(v, name);
}

Value filter_batch(Interpreter& in, const Value& v, Arguments& a) {
  const Value *width = &a.need(0, "linecount"), *fill = a.find(1, "fill_with");
  const int64_t n = width->as_integer();
  if (n < 1) throw Fault{"batch needs a count of at least 1", {}};
  List out, row;
  for (const Value& item : v.items()) {
    if (static_cast<int64_t>(row.size()) == n) out.push_back(Value::list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    in.charge(n);
    while (fill != nullptr && fill->kind() != Kind::none && static_cast<int64_t>(row.size()) < n)
      row.push_back(*fill);
    out.push_back(Value::list(std::move(row)));
  }
  return in.made_list(std::move(out));
}

const std::map<std::string_view, FilterFunction>& sequence_filters() {
  static const std::map<std::string_view, FilterFunction> table = {
      {"attr", filter_attribute},
      {"batch", filter_batch},
      {"dictsort", filter_dict_sort},
      {"first", filter_first},
      {"groupby", filter_group_by},
      {"items", filter_items},
      {"join", filter_join},
      {"last", filter_last},
      {"list", filter_list},
      {"map", filter_map},
      {"max", [](Interpreter& in, const Value& v, Arguments& a) { return extreme(in, v, a, true); }},
      {"min", [](Interpreter& in, const Value& v, Arguments& a) { return extreme(in, v, a, false); }},
      {"reject",
       [](Interpreter& in, const Value& v, Arguments& a) { return chosen(in, v, a, false, false); }},
      {"rejectattr",
       [](Interpreter& in, const Value& v, Arguments& a) { return chosen(in, v, a, true, false); }},
      {"reverse", filter_reverse},
      {"select", [](Interpreter& in, const Value& v, Arguments& a) { return chosen(in, v, a, false, true); }},
      {"selectattr",
       [](Interpreter& in, const Value& v, Arguments& a) { return chosen(in, v, a, true, true); }},
      {"sort", filter_sort},
      {"sum", filter_sum},
      {"unique", filter_unique},
  };
  return table;
}

}  // namespace

FilterFunction find_sequence_filter(std::string_view name) {
  const auto found = sequence_filters().find(name);
  return found != sequence_filters().end() ? found->second : nullptr;
}

std::string sequence_filter_names() {
  std::string out;
  for (const auto& [name, function] : sequence_filters())
    out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

}  // namespace ingot::chat::jinja
