// See facts.h.
#include "guard/facts.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"

namespace ingot::guard {
namespace {

bool contains_any_case(std::string_view line, std::string_view word) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return !word.empty() && std::search(line.begin(), line.end(), word.begin(), word.end(), same) != line.end();
}

bool matches(std::string_view line, std::string_view pattern) {
  while (true) {
    const size_t bar = pattern.find('|');
    if (contains_any_case(line, pattern.substr(0, bar))) return true;
    if (bar == pattern.npos) return false;
    pattern.remove_prefix(bar + 1);
  }
}

}  // namespace

Facts::Facts() {
  for (size_t i = 0; i < kFacts; ++i) numbers_[i] = kFactTable[i].quiet;
}

void Facts::set(Fact fact, double value) {
  const FactInfo& info = info_of(fact);
  INGOT_CHECK(info.values.empty(), "{} is a text", info.name);
  // What a foreign file says may be anything: it stays in the range that rules were checked against.
  numbers_[static_cast<size_t>(fact)] =
      std::isnan(value) ? info.quiet : std::clamp(value, info.least, info.most);
}

void Facts::set(Fact fact, std::string_view value) {
  INGOT_CHECK(set_text(fact, value), "'{}' is no value of {}", value, info_of(fact).name);
}

bool Facts::set_text(Fact fact, std::string_view value) {
  const auto values = info_of(fact).values;
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end()) return false;
  numbers_[static_cast<size_t>(fact)] = static_cast<double>(found - values.begin());
  return true;
}

std::string Facts::text(Fact fact) const {
  const FactInfo& info = info_of(fact);
  const double value = (*this)[fact];
  return info.values.empty() ? fmt::format("{:.6g}", value)
                             : fmt::format("\"{}\"", info.values[static_cast<size_t>(value)]);
}

std::string Facts::json() const {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  for (const auto& [fact, name] : enum_names(Fact{})) {
    const FactInfo& info = info_of(fact);
    const double value = (*this)[fact];
    if (value == info.quiet) continue;
    if (info.values.empty())
      j[name] = value;
    else
      j[name] = info.values[static_cast<size_t>(value)];
  }
  if (!log_.empty()) j["log"] = log_;
  return j.dump();
}

Facts Facts::parse(const std::string& text) {
  Facts facts;
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) fail("the facts of a journal entry are damaged: {}", text.substr(0, 200));
  for (const auto& [key, value] : j.items()) {
    if (key == "log" && value.is_array()) {
      for (const auto& line : value)
        if (line.is_string()) facts.add_log(line.get<std::string>());
      continue;
    }
    const auto fact = enum_from<Fact>(key, "fact");
    if (info_of(fact).values.empty() && value.is_number())
      facts.set(fact, value.get<double>());
    else if (!value.is_string() || !facts.set_text(fact, value.get<std::string>()))
      fail("the fact '{}' of a journal entry has a value that it cannot have", key);
  }
  return facts;
}

int64_t Facts::log_lines(std::string_view pattern) const {
  return std::count_if(log_.begin(), log_.end(),
                       [&](const std::string& line) { return matches(line, pattern); });
}

void Facts::add_log(std::string line) {
  if (line.size() > 400) line.resize(400);
  log_.push_back(utf8::repair(line));
  if (log_.size() > kLogLines) log_.erase(log_.begin());
}

}  // namespace ingot::guard
