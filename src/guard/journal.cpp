// See journal.h.
#include "guard/journal.h"

#include "base/enum_json.h"
#include "base/error.h"
#include "report/json_lines.h"

namespace ingot::guard {

using Json = nlohmann::ordered_json;

std::string Entry::json() const {
  Json j{{"n", number}, {"time", time}, {"event", event}};
  if (!rule.empty()) j["rule"] = rule;
  if (!actions.empty()) j["actions"] = actions;
  if (!nodes.empty()) j["nodes"] = nodes;
  if (index >= 0) j["index"] = index;
  if (value != 0) j["value"] = value;
  if (!reason.empty()) j["reason"] = reason;
  if (!text.empty()) j["text"] = text;
  if (situation) {
    j["facts"] = Json::parse(situation->facts.json());
    j["matching"] = situation->matching_before;
    if (!situation->ranks.empty()) j["ranks"] = situation->ranks;
    j["suspects"] = situation->suspects;
  }
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Entry Entry::parse(std::string_view line, const std::string& where) {
  const Json j = parse_object_line(line, "journal entry", 8, where);
  try {
    Entry e{.number = j.at("n").get<int64_t>(),
            .time = j.at("time").get<double>(),
            .event = j.at("event").get<Event>(),
            .rule = j.value("rule", ""),
            .reason = j.value("reason", ""),
            .text = j.value("text", ""),
            .actions = j.value("actions", std::vector<Action>()),
            .nodes = j.value("nodes", std::vector<std::string>()),
            .index = j.value("index", int64_t{-1}),
            .value = j.value("value", int64_t{0})};
    if (j.contains("facts"))
      e.situation = Situation{.now = e.time,
                              .facts = Facts::parse(j.at("facts").dump()),
                              .suspects = j.at("suspects").get<Suspects>(),
                              .matching_before = j.at("matching").get<std::set<std::string>>(),
                              .ranks = j.value("ranks", std::set<std::string>())};
    return e;
  } catch (const Json::exception& e) {
    fail("{}: not a journal entry: {}", where, e.what());
  } catch (const Error& e) {
    fail("{}: not a journal entry: {}", where, e.what());
  }
}

std::vector<Entry> FileStore::entries() {
  std::vector<Entry> entries;
  if (fs_.exists(folder_ + "/journal.jsonl"))
    read_lines(fs_, folder_ + "/journal.jsonl", [&](std::string_view line, const std::string& where) {
      entries.push_back(Entry::parse(line, where));
    });
  return entries;
}

void FileStore::append(const Entry& entry) {
  append_line(fs_, folder_ + "/journal.jsonl", entry.json());
}

void FileStore::keep(const Books& books) {
  write_file_atomically(fs_, folder_ + "/books.json", books.json());
}

std::optional<Books> FileStore::books() {
  const std::string path = folder_ + "/books.json";
  if (!fs_.exists(path)) return std::nullopt;
  return Books::parse(fs_.read(path));
}

void remember(std::vector<PastMatch>& past, const Entry& e) {
  if (e.event == Event::noted || e.event == Event::alerted || e.event == Event::decided)
    past.push_back({e.rule, e.time, e.nodes, e.event == Event::decided});
  if (e.event == Event::done && !past.empty()) past.back().excluded += static_cast<int64_t>(e.nodes.size());
}

}  // namespace ingot::guard
