// See journal.h.
#include "guard/journal.h"

#include <cmath>

#include "base/enum_json.h"
#include "base/error.h"
#include "base/log.h"

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

Entry Entry::parse(std::string_view line) {
  try {
    const Json j = Json::parse(line);
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
    if (!std::isfinite(e.time)) fail("its time is not finite");
    if (!j.contains("facts")) return e;
    e.situation = Situation{.now = e.time,
                            .facts = Facts::parse(j.at("facts").dump()),
                            .suspects = j.at("suspects").get<Suspects>(),
                            .matching_before = j.at("matching").get<std::set<std::string>>(),
                            .ranks = j.value("ranks", std::set<std::string>())};
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

void remember(std::vector<PastMatch>& past, const Entry& e) {
  if (e.event == Event::noted || e.event == Event::alerted || e.event == Event::decided)
    past.push_back({e.rule, e.time, e.nodes, e.event == Event::decided});
  if (e.event == Event::done && !past.empty()) past.back().excluded += static_cast<int64_t>(e.nodes.size());
}

}  // namespace ingot::guard
