// See journal.h.
#include "guard/journal.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"

namespace ingot::guard {
namespace {

using Json = nlohmann::ordered_json;

Json actions_json(const std::vector<Action>& actions) {
  Json j = Json::array();
  for (const Action a : actions) j.push_back(name_of(a));
  return j;
}

template <class Strings>
Json strings_json(const Strings& strings) {
  Json j = Json::array();
  for (const std::string& s : strings) j.push_back(s);
  return j;
}

std::string text_of_json(const Json& j) {
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string Entry::json() const {
  Json j{{"n", number}, {"time", time}, {"event", name_of(event)}};
  if (!rule.empty()) j["rule"] = rule;
  if (!actions.empty()) j["actions"] = actions_json(actions);
  if (!nodes.empty()) j["nodes"] = strings_json(nodes);
  if (index >= 0) j["index"] = index;
  if (value != 0) j["value"] = value;
  if (!reason.empty()) j["reason"] = reason;
  if (!text.empty()) j["text"] = text;
  if (situation) {
    j["facts"] = Json::parse(situation->facts.json());
    j["matching"] = strings_json(situation->matching_before);
    if (!situation->ranks.empty()) j["ranks"] = strings_json(situation->ranks);
    j["suspects"] = Json::object();
    for (const auto& [node, signs] : situation->suspects) {
      Json& facts = j["suspects"][node] = Json::array();
      for (const Fact f : signs) facts.push_back(info_of(f).name);
    }
  }
  return text_of_json(j);
}

Entry Entry::parse(std::string_view line) {
  try {
    const Json j = Json::parse(line);
    Entry e;
    e.number = j.at("n").get<int64_t>();
    e.time = j.at("time").get<double>();
    if (!std::isfinite(e.time)) fail("its time is not finite");
    e.event = enum_from<Event>(j.at("event").get<std::string>(), "event");
    e.rule = j.value("rule", "");
    for (const auto& a : j.value("actions", Json::array()))
      e.actions.push_back(enum_from<Action>(a.get<std::string>(), "action"));
    e.nodes = j.value("nodes", std::vector<std::string>());
    e.index = j.value("index", int64_t{-1});
    e.value = j.value("value", int64_t{0});
    e.reason = j.value("reason", "");
    e.text = j.value("text", "");
    if (!j.contains("facts")) return e;
    Situation s;
    s.now = e.time;
    s.facts = Facts::parse(j.at("facts").dump());
    for (const auto& name : j.at("matching")) s.matching_before.insert(name.get<std::string>());
    s.ranks = j.value("ranks", std::set<std::string>());
    for (const auto& [node, signs] : j.at("suspects").items())
      for (const auto& name : signs) {
        Fact fact{};
        if (!find_fact(name.get<std::string>(), fact)) fail("it names '{}', which is no fact", name.dump());
        s.suspects[node].insert(fact);
      }
    e.situation = std::move(s);
    return e;
  } catch (const nlohmann::json::exception& e) {
    fail("a journal entry is damaged: {}", e.what());
  }
}

std::vector<Entry> FileStore::entries() {
  const std::string path = folder_ + "/journal.jsonl";
  std::vector<Entry> entries;
  if (!fs_.exists(path)) return entries;
  const std::string content = fs_.read(path);
  std::string_view rest = content;
  for (size_t end, line = 1; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1), ++line) {
    try {
      entries.push_back(Entry::parse(rest.substr(0, end)));
    } catch (const Error& e) {
      log::warn("leaving out a damaged line: {}:{}: {}", path, line, e.what());
    }
  }
  return entries;
}

void FileStore::append(const Entry& entry) {
  const std::string path = folder_ + "/journal.jsonl";
  std::string line = entry.json() + "\n";
  // A torn last line must not swallow this one.
  if (!whole_ && fs_.exists(path) && fs_.size(path) > 0 && fs_.read(path).back() != '\n')
    line.insert(0, "\n");
  whole_ = false;
  const auto file = fs_.open_append(path);
  file->append(line.data(), line.size());
  file->sync();
  file->close();
  whole_ = true;
}

void FileStore::keep(const Books& books) {
  write_file_atomically(fs_, folder_ + "/books.json", books.json());
}

std::optional<Books> FileStore::books() {
  const std::string path = folder_ + "/books.json";
  if (!fs_.exists(path)) return std::nullopt;
  return Books::parse(fs_.read(path));
}

std::vector<PastMatch> past_of(const std::vector<Entry>& entries) {
  std::vector<PastMatch> past;
  for (const Entry& e : entries) {
    if (e.event == Event::noted || e.event == Event::alerted)
      past.push_back({e.rule, e.time, e.nodes, false});
    if (e.event == Event::decided) past.push_back({e.rule, e.time, e.nodes, true});
    if (e.event == Event::done && !past.empty()) past.back().excluded += static_cast<int64_t>(e.nodes.size());
  }
  return past;
}

}  // namespace ingot::guard
